//! B-TCP, many transfers that share a bottleneck (Gonçalves, chapter 5).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};

use crate::campaign::statistics::Mean;
use crate::papers::ns::{Figures, Output, number};
use crate::papers::row::{Judged, Outcomes, Row, Setting, Way, percent};

pub(super) const SCRIPT: &str = "btcp-mice.tcl";

/// A mouse has at most these packets.
const MICE_PACKETS: f64 = 32.0;
/// When the constant stream runs, in seconds.
const STREAM: std::ops::Range<f64> = 300.0..500.0;

/// Bands of changes; none is neither.
const BELOW: RangeInclusive<f64> = f64::NEG_INFINITY..=-f64::MIN_POSITIVE;
const ABOVE: RangeInclusive<f64> = f64::MIN_POSITIVE..=f64::INFINITY;

/// Kinds of senders: name in settings, growth.
pub(super) const KINDS: [(&str, &str); 3] =
    [("newreno", "standard"), ("burst4", "burst 4 32"), ("burst8", "burst 8 32")];
const LOADS: [u32; 5] = [250, 500, 750, 1000, 1250];

/// Other bottlenecks than 1.5 Mbit/s with 7 packets: name, options.
const BOTTLENECKS: [(&str, &[(&str, &str)]); 3] =
    [("queue3", &[("queue", "3")]), ("queue14", &[("queue", "14")]), ("slow", &[("rate", "1Mb"), ("queue", "4")])];

/// T3.
pub(super) fn shared() -> Row {
    let mut settings = Vec::new();
    for load in LOADS {
        for (kind, growth) in KINDS {
            let setting = Setting::new(named("queue7", load, kind), &[("growth", growth)]).with("flows", load);
            let is_end = [250, 1250].contains(&load);
            settings.push(if is_end { setting.clone() } else { setting.clone().long() });
            let reverse = Setting { name: named("reverse", load, kind), ..setting.clone() }.with("reverse", "yes");
            settings.push(reverse.long());
            for (bottleneck, options) in BOTTLENECKS.iter().filter(|_| is_end) {
                let mut other = Setting { name: named(bottleneck, load, kind), ..setting.clone() };
                other.options.extend(options.iter().map(|(name, value)| (*name, (*value).to_owned())));
                settings.push(if load == 1250 { other.long() } else { other });
            }
        }
    }
    Row {
        id: "T3",
        what: "Gonçalves Figures 15 to 19 and 21: mice (up to 32 packets) among 250 to 1250 transfers of random size",
        expected: "B-TCP(8) faster than NewReno with fewer drops at every load; B-TCP(4) slower than NewReno with a queue of 3 packets and at 1 Mbit/s",
        source: "5.2, 5.3 (\"38 % to 19 %\" is reported, not a target: no f is named)",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 20,
        quick_seeds: 5,
        settings,
        judge: shared_judged,
    }
}

fn named(path: &str, load: u32, kind: &str) -> String {
    format!("{path}-{load}-{kind}")
}

fn shared_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for load in LOADS {
        let at = |kind: &str| named("queue7", load, kind);
        let baseline = (at("newreno"), figure("standard", "mice_mean_seconds"));
        let seconds = outcomes.mean(&baseline.0, &baseline.1);
        judged.report(format!("{load}: NewReno's mean (s)"), "", seconds.map(|mean| format!("{:.3}", mean.value)));
        for kind in ["burst4", "burst8"] {
            let change = outcomes.change((&at(kind), &mice()), (&baseline.0, &baseline.1));
            let what = format!("{load}: {kind} against NewReno");
            if kind == "burst8" {
                judged.within(what, "below", BELOW, change, percent);
            } else {
                judged.report(what, "-38 to -19 % (no f named)", change.map(|c| percent(&c)));
            }
        }
        let loss =
            |kind: &str, rule: &str| outcomes.mean(&at(kind), &figure(rule, "mice_loss")).map(|m| m.value * 100.0);
        let found = (|| Some((loss("newreno", "standard")?, loss("burst4", "burst")?, loss("burst8", "burst")?)))();
        let drops = found.map(|(reno, four, eight)| format!("{reno:.2}, {four:.2}, {eight:.2} %"));
        judged.report(format!("{load}: mice's drops, NewReno, f = 4, f = 8"), "", drops);
        let (ours, theirs) = (figure("burst", "mice_loss"), figure("standard", "mice_loss"));
        let change = outcomes.change((&at("burst8"), &ours), (&at("newreno"), &theirs));
        judged.within(format!("{load}: mice's drops, f = 8 against NewReno"), "fewer", BELOW, change, percent);
    }
    for (path, load, kind, expected, band) in [
        ("queue3", 250, "burst4", "above", Some(ABOVE)),
        ("queue3", 1250, "burst4", "above", Some(ABOVE)),
        ("queue3", 250, "burst8", "above (Figure 19)", None),
        ("queue3", 1250, "burst8", "above (Figure 19)", None),
        ("slow", 250, "burst4", "above", Some(ABOVE)),
        ("slow", 1250, "burst4", "above", Some(ABOVE)),
        ("slow", 250, "burst8", "below (Figure 17)", None),
        ("slow", 1250, "burst8", "below (Figure 17)", None),
        ("queue14", 250, "burst4", "-43 % at most", None),
        ("queue14", 1250, "burst4", "", None),
        ("queue14", 250, "burst8", "-30 % at most", None),
        ("queue14", 1250, "burst8", "", None),
    ] {
        let change = outcomes.change((&named(path, load, kind), &mice()), (&named(path, load, "newreno"), &reno()));
        let what = format!("{path}, {load}: {kind} against NewReno");
        match band {
            Some(band) => judged.within(what, expected, band, change, percent),
            None => judged.report(what, expected, change.map(|c| percent(&c))),
        }
    }
    for load in LOADS {
        for kind in ["burst4", "burst8"] {
            let baseline = (named("reverse", load, "newreno"), reno());
            let change = outcomes.change((&named("reverse", load, kind), &mice()), (&baseline.0, &baseline.1));
            judged.report(format!("reverse, {load}: {kind} against NewReno"), "", change.map(|c| percent(&c)));
        }
    }
    judged
}

/// T4.
pub(super) fn medians() -> Row {
    let settings = KINDS
        .iter()
        .map(|(kind, growth)| Setting::new(*kind, &[("growth", growth), ("flows", "250"), ("reverse", "yes")]));
    Row {
        id: "T4",
        what: "Gonçalves Table II: medians of the mice among 250 transfers with reverse traffic",
        expected: "7 or 8 packets that nothing disturbed, the same for all three kinds: .383518/.222257/.297213 or .389193/.227932/.302887 s",
        source: "Table II",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 2,
        quick_seeds: 2,
        settings: settings.collect(),
        judge: medians_judged,
    }
}

fn medians_judged(outcomes: &Outcomes) -> Judged {
    const EXACT: [[f64; 3]; 2] = [[0.383_518, 0.222_257, 0.297_213], [0.389_193, 0.227_932, 0.302_887]];
    let mut judged = Judged::default();
    for seed in [1, 2] {
        let median =
            |kind: &str, rule: &str| outcomes.by_seed(kind, &figure(rule, "mice_median_seconds")).get(&seed).copied();
        let found =
            (|| Some([median("newreno", "standard")?, median("burst4", "burst")?, median("burst8", "burst")?]))();
        let found = found.map(|found| {
            let is_exact =
                EXACT.iter().any(|row| row.iter().zip(found).all(|(exact, found)| (exact - found).abs() < 1.5e-6));
            (found.map(|seconds| format!("{seconds:.6}")).join(" / "), is_exact)
        });
        judged.target(format!("seed {seed}: NewReno / f = 4 / f = 8 (s)"), "either row, exactly", found);
    }
    judged
}

/// The name of a figure of the transfers with this rule.
pub(super) fn figure(rule: &str, name: &str) -> String {
    format!("{rule}_{name}")
}

/// NewReno's mean.
pub(super) fn reno() -> String {
    figure("standard", "mice_mean_seconds")
}

/// B-TCP's mean.
pub(super) fn mice() -> String {
    figure("burst", "mice_mean_seconds")
}

pub(super) fn is_below(change: &Mean) -> bool {
    change.value < 0.0 && change.is_off_zero()
}

/// What the main transfers with one rule came to.
#[derive(Default)]
struct Class {
    seconds: Vec<f64>,
    /// Of mice that began while the constant stream ran.
    during: Vec<f64>,
    sent: f64,
    dropped: f64,
}

/// Mice and elephants of each rule.
pub(super) fn read(output: &Output) -> Result<Figures> {
    let mut classes: BTreeMap<(&str, &str), Class> = BTreeMap::new();
    let class =
        |words: &[String]| -> Result<&str> { Ok(if number(words, 1)? <= MICE_PACKETS { "mice" } else { "elephants" }) };
    let mut ended = 0_u32;
    for words in output.lines("flow") {
        let rule = words.first().context("a rule")?;
        let (begun, seconds) = (number(words, 2)?, number(words, 3)?);
        let class = classes.entry((rule, class(words)?)).or_default();
        class.seconds.push(seconds);
        class.sent += number(words, 4)?;
        if STREAM.contains(&begun) {
            class.during.push(seconds);
        }
        ended += 1;
    }
    for words in output.lines("drop") {
        let rule = words.first().context("a rule")?;
        classes.entry((rule, class(words)?)).or_default().dropped += 1.0;
    }
    let begun = number(output.line("begun")?, 0)?;
    ensure!(f64::from(ended) <= begun, "{ended} transfers ended, {begun} began");
    let mut figures = Figures::from([("unfinished".to_owned(), begun - f64::from(ended))]);
    for ((rule, name), class) in classes {
        let mut add = |what: &str, value: Option<f64>| {
            figures.extend(value.map(|value| (format!("{rule}_{name}_{what}"), value)));
        };
        add("count", Some(class.seconds.len() as f64));
        add("mean_seconds", Mean::of(&class.seconds).map(|mean| mean.value));
        add("median_seconds", median(&class.seconds));
        add("during_mean_seconds", Mean::of(&class.during).map(|mean| mean.value));
        add("loss", (class.sent > 0.0).then(|| class.dropped / class.sent));
    }
    Ok(figures)
}

/// The middle one, or between the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(lower, upper))
}
