//! Advised against control connections, as the gateway's `/v1/benefit` has them.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;
use spand_tests::lab::topology::Topology;
use spand_tests::product::Api;

/// Transfers of one size class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Class {
    size: String,
    control: Arm,
    advised: Arm,
    /// Advised less control in percent of control: mean, and the ends of its 95 % interval.
    difference: Option<[f64; 3]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Arm {
    transfers: u64,
    started_on_advice: u64,
    mean_ms: Option<f64>,
    median_ms: Option<f64>,
    retransmitted: Option<f64>,
}

/// The classes in which there are transfers.
pub(crate) fn read(document: &Value) -> Result<Vec<Class>> {
    let classes = document.get("classes").and_then(Value::as_array);
    let classes = classes.with_context(|| format!("the answer to /v1/benefit holds no classes: {document}"))?;
    let mut read = Vec::new();
    for class in classes {
        let (control, advised) = (arm(class.get("control"))?, arm(class.get("advised"))?);
        if control.transfers + advised.transfers > 0 {
            let percent = class.pointer("/difference/completion_ms/percent").and_then(Value::as_array);
            let percent: Option<Vec<f64>> = percent.and_then(|ends| ends.iter().map(Value::as_f64).collect());
            read.push(Class {
                size: class.get("size").and_then(Value::as_str).unwrap_or("?").to_owned(),
                control,
                advised,
                difference: percent.and_then(|ends| ends.try_into().ok()),
            });
        }
    }
    Ok(read)
}

fn arm(arm: Option<&Value>) -> Result<Arm> {
    let number = |name: &str| arm.and_then(|arm| arm.get(name));
    Ok(Arm {
        transfers: number("transfers").and_then(Value::as_u64).context("/v1/benefit lacks an arm's transfers")?,
        started_on_advice: number("started_on_advice").and_then(Value::as_u64).unwrap_or(0),
        mean_ms: number("completion_mean_ms").and_then(Value::as_f64),
        median_ms: number("completion_median_ms").and_then(Value::as_f64),
        retransmitted: number("retransmitted_mean_segments").and_then(Value::as_f64),
    })
}

/// Transfers in both arms.
pub(crate) fn transfers(classes: &[Class]) -> u64 {
    classes.iter().map(|class| class.control.transfers + class.advised.transfers).sum()
}

/// The result so far, in one line.
pub(crate) fn so_far(classes: &[Class]) -> String {
    let words: Vec<String> = classes
        .iter()
        .map(|class| match class.difference {
            Some([mean, low, high]) => format!("{} {mean:+.0} % ({low:+.0} to {high:+.0})", size(&class.size)),
            None => format!("{} -", size(&class.size)),
        })
        .collect();
    words.join(", ")
}

/// The table: for each size both arms and their difference.
pub(crate) fn table(classes: &[Class]) -> String {
    let mut text = format!(
        "  {:<8} {:>29}   {:>29}   {}\n  {:<8} {:>9} {:>9} {:>9}   {:>9} {:>9} {:>9}   {:>6} {:>18}\n",
        "",
        "control: plain TCP",
        "advised",
        "difference of completion time",
        "size",
        "transfers",
        "median ms",
        "mean ms",
        "transfers",
        "median ms",
        "mean ms",
        "mean",
        "95 % interval"
    );
    for class in classes {
        let arm = |arm: &Arm| {
            let ms = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.0}"));
            format!("{:>9} {:>9} {:>9}", arm.transfers, ms(arm.median_ms), ms(arm.mean_ms))
        };
        let difference = match class.difference {
            Some([mean, low, high]) => {
                let interval = format!("{low:+.1} to {high:+.1} %");
                format!("{:>6} {interval:>18}  {}", format!("{mean:+.1} %"), verdict(low, high))
            }
            None => format!("{:>6} {:>18}  {}", "-", "-", NOT_ENOUGH),
        };
        writeln!(text, "  {:<8} {}   {}   {difference}", size(&class.size), arm(&class.control), arm(&class.advised))
            .ok();
    }
    text
}

const NOT_ENOUGH: &str = "not enough data yet";

fn verdict(low: f64, high: f64) -> &'static str {
    if high < 0.0 {
        "advised is faster"
    } else if low > 0.0 {
        "advised is slower"
    } else {
        NOT_ENOUGH
    }
}

/// Lines below the table: how many of the advised were started on advice, and retransmissions by arm.
pub(crate) fn further(classes: &[Class]) -> String {
    let sum = |of: fn(&Class) -> Arm| {
        classes.iter().map(of).fold((0, 0, 0.0), |(all, started, again), arm| {
            let here = arm.retransmitted.unwrap_or(0.0) * arm.transfers as f64;
            (all + arm.transfers, started + arm.started_on_advice, again + here)
        })
    };
    let (control, _, control_again) = sum(|class| class.control);
    let (advised, started, advised_again) = sum(|class| class.advised);
    let each = |again: f64, transfers: u64| again / transfers.max(1) as f64;
    format!(
        "  of {advised} advised connections {started} were started on advice; the others count as advised too\n  retransmitted \
         segments a transfer: control {:.2}, advised {:.2}\n",
        each(control_again, control),
        each(advised_again, advised)
    )
}

/// A class as people write sizes.
fn size(class: &str) -> String {
    match class.strip_suffix("kB").or_else(|| class.strip_suffix("MB")) {
        Some(number) => format!("{number} {}", if class.ends_with("kB") { "KB" } else { "MB" }),
        None => class.to_owned(),
    }
}

// What the gateway advises for several sizes, as it answers over JSON.

/// Sizes for which advice is printed.
const SIZES_BYTES: [u64; 5] = [10_000, 30_000, 100_000, 1_000_000, 10_000_000];

/// Asks for advice towards the first client of each network and prints it.
pub(crate) fn print(api: &Api, lab: &Topology) -> Result<()> {
    println!(
        "  {:<18} {:>8} {:>6} {:>8} {:>7} {:>8}  {:<32} clipped by",
        "network", "size", "share", "optimal", "window", "ssthresh", "pacing"
    );
    for network in &lab.networks {
        let client = network.addresses.first().context("a network without clients")?;
        for bytes in SIZES_BYTES {
            let answer = api.json(&format!("/v1/advice?destination={client}&bytes={bytes}"))?;
            println!("  {:<18} {:>5} KB {}", network.plan.prefix.to_string(), bytes / 1_000, row(&answer));
        }
    }
    Ok(())
}

/// One answer in words; a refusal says why.
fn row(answer: &Value) -> String {
    let Some(start) = answer.get("start").filter(|start| !start.is_null()) else {
        let why = answer.pointer("/refusal/message").and_then(Value::as_str);
        return format!("refused: {}", why.unwrap_or("no reason given"));
    };
    let number = |pointer: &str| {
        start.pointer(pointer).and_then(Value::as_u64).map_or("-".to_owned(), |number| number.to_string())
    };
    let pacing = match start.pointer("/pacing/rate_bytes_per_s").and_then(Value::as_u64) {
        Some(rate) => format!("{:.1} Mbit/s after {} segments", rate as f64 * 8e-6, number("/pacing/after_segments")),
        None => "none".to_owned(),
    };
    format!(
        "{:>6} {:>8} {:>7} {:>8}  {pacing:<32} {}",
        number("/account/share_segments"),
        number("/account/transfer/optimal_segments"),
        number("/cwnd_segments"),
        number("/ssthresh_segments"),
        start.get("clipped_by").and_then(Value::as_str).unwrap_or("-")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(percent: &Value) -> Value {
        let arm = |transfers: u64, mean: f64, again: f64| {
            json!({"transfers": transfers, "started_on_advice": transfers / 2, "completion_mean_ms": mean,
                "completion_median_ms": null, "retransmitted_mean_segments": again})
        };
        let difference = if percent.is_null() { json!(null) } else { json!({"completion_ms": {"percent": percent}}) };
        json!({"classes": [
            {"size": "10kB", "control": arm(0, 0.0, 0.0), "advised": arm(0, 0.0, 0.0), "difference": null},
            {"size": "100kB", "control": arm(20, 500.0, 0.0), "advised": arm(20, 400.0, 1.0), "difference": difference},
        ]})
    }

    #[test]
    fn an_interval_with_zero_says_that_there_is_not_enough_data_and_one_without_says_which_is_faster() {
        for (percent, sentence) in [
            (json!([-20.0, -30.0, -10.0]), "advised is faster"),
            (json!([-20.0, -41.0, 1.0]), NOT_ENOUGH),
            (json!([20.0, 1.0, 39.0]), "advised is slower"),
            (json!(null), NOT_ENOUGH),
        ] {
            let classes = read(&document(&percent)).unwrap();
            let text = table(&classes);
            assert!(text.contains(sentence) && text.contains("100 KB"), "{text}");
            assert_eq!(text.lines().count(), 3, "a class without transfers has no row: {text}");
        }
    }

    #[test]
    fn both_arms_are_counted() {
        let classes = read(&document(&json!([-20.0, -30.0, -10.0]))).unwrap();
        assert_eq!(transfers(&classes), 40);
        assert_eq!(so_far(&classes), "100 KB -20 % (-30 to -10)");
        let text = further(&classes);
        assert!(
            text.contains("of 20 advised connections 10 were") && text.contains("control 0.00, advised 1.00"),
            "{text}"
        );
        assert!(read(&json!({})).is_err());
    }

    #[test]
    fn a_start_and_a_refusal_are_distinguished() {
        let start = json!({"start": {"cwnd_segments": 30, "ssthresh_segments": 40, "clipped_by": "fraction",
            "pacing": {"after_segments": 10, "rate_bytes_per_s": 1_000_000},
            "account": {"share_segments": 40, "transfer": null}}});
        let text = row(&start);
        assert!(
            text.contains("30") && text.contains("8.0 Mbit/s after 10 segments") && text.contains("fraction"),
            "{text}"
        );
        let refusal = json!({"start": null, "refusal": {"reason": "no_estimate", "message": "nothing is known"}});
        assert_eq!(row(&refusal), "refused: nothing is known");
    }
}
