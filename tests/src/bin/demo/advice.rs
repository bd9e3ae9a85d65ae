//! What the gateway advises for several sizes, as it answers over JSON.

use anyhow::{Context, Result};
use serde_json::Value;
use spand_tests::lab::topology::Topology;
use spand_tests::product::Api;

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
