//! B-TCP on further paths, beside NewReno, and by other readings of its text (Gonçalves, 5.3 to 5.6).

use crate::campaign::statistics::Mean;
use crate::papers::row::{Judged, Outcomes, Row, Setting, Way, percent};

use super::btcp_mice::{KINDS, SCRIPT, figure, is_below, mice, read, reno};

const LOADS: [u32; 5] = [250, 500, 750, 1000, 1250];
/// Of 1,200 transfers, those with B-TCP.
const MIXED: [u32; 7] = [0, 200, 400, 600, 800, 1000, 1200];

/// T16.
pub(super) fn other_paths() -> Row {
    let mut settings = Vec::new();
    for load in LOADS {
        for (kind, growth) in KINDS {
            let setting = Setting::new("", &[("growth", growth)]).with("flows", load);
            for (path, more) in [
                ("hops", &[("hops", "2")][..]),
                ("crossed", &[("hops", "2"), ("background", "yes")]),
                ("udp", &[("reverse", "yes"), ("udp", "yes")]),
                ("delack", &[("reverse", "yes"), ("delack", "yes")]),
            ] {
                let mut one = Setting { name: format!("{path}-{load}-{kind}"), ..setting.clone() };
                one.options.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
                settings.push(if load == 250 { one } else { one.long() });
            }
        }
    }
    for f in ["4", "8"] {
        for mixed in MIXED {
            let options = [("flows", "1200"), ("reverse", "yes")];
            let setting = Setting::new(format!("mix{f}-{mixed}"), &options).with("other", format!("burst {f} 32"));
            settings.push(setting.with("mixed", mixed).long());
        }
    }
    Row {
        id: "T16",
        what: "Gonçalves Figures 26, 28, 31 and 33: delayed ACKs, a constant stream, two bottlenecks, B-TCP beside NewReno",
        expected: "two bottlenecks: f = 8 10 % below NewReno or more; during the stream f = 4 above NewReno; NewReno in the mix within 5 % of NewReno alone",
        source: "5.3.2, 5.3.3, 5.4, 5.6",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 10,
        quick_seeds: 3,
        settings,
        judge: other_paths_judged,
    }
}

fn change(outcomes: &Outcomes, path: &str, load: u32, kind: &str, name: &str) -> Option<Mean> {
    outcomes.change(
        (&format!("{path}-{load}-{kind}"), &figure("burst", name)),
        (&format!("{path}-{load}-newreno"), &figure("standard", name)),
    )
}

/// The mean of a change over all loads, where each has one.
fn over_loads(of: impl Fn(u32) -> Option<Mean>) -> Option<f64> {
    let values: Option<Vec<f64>> = LOADS.iter().map(|load| of(*load).map(|mean| mean.value)).collect();
    values.and_then(|values| Mean::of(&values)).map(|mean| mean.value)
}

fn other_paths_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    let text = |value: f64| format!("{:+.1} %", value * 100.0);
    for (path, paper) in [("hops", "-13.78 %"), ("crossed", "-13.25 %")] {
        let f8 = over_loads(|load| change(outcomes, path, load, "burst8", "mice_mean_seconds"));
        let what = format!("{path}: f = 8, mean of the loads");
        judged.target(what, format!("-10 % or more (paper {paper})"), f8.map(|f8| (text(f8), f8 <= -0.10)));
    }
    let during = "mice_during_mean_seconds";
    let f4 = over_loads(|load| change(outcomes, "udp", load, "burst4", during));
    judged.target("udp, during: f = 4, mean of the loads", "above (paper +14.8 %)", f4.map(|f4| (text(f4), f4 > 0.0)));
    let f8 = over_loads(|load| change(outcomes, "udp", load, "burst8", during));
    judged.target("udp, during: f = 8, mean of the loads", "below (paper -12.2 %)", f8.map(|f8| (text(f8), f8 < 0.0)));
    for f in ["4", "8"] {
        for mixed in MIXED.into_iter().filter(|mixed| (1..1200).contains(mixed)) {
            let change = outcomes.change((&format!("mix{f}-{mixed}"), &reno()), (&format!("mix{f}-0"), &reno()));
            let what = format!("mix: NewReno beside {mixed} of f = {f}, against NewReno alone");
            judged.within(what, "within 5 %", -0.05..=0.05, change, percent);
        }
    }
    for load in LOADS {
        for (path, name) in [
            ("hops", "mice_mean_seconds"),
            ("crossed", "mice_mean_seconds"),
            ("udp", during),
            ("delack", "mice_mean_seconds"),
        ] {
            for kind in ["burst4", "burst8"] {
                let change = change(outcomes, path, load, kind, name);
                judged.report(format!("{path}, {load}: {kind} against NewReno"), "", change.map(|c| percent(&c)));
            }
        }
    }
    judged
}

/// What a B-TCP sender does from `mice_t` on before a loss, by each reading.
const AFTER: [&str; 3] = ["avoidance", "slow-start", "hover"];

/// T3b.
pub(super) fn after_the_mice() -> Row {
    let mut settings = Vec::new();
    for load in ["250", "1250"] {
        let options = [("flows", load)];
        settings.push(Setting::new(format!("{load}-newreno"), &options));
        for after in AFTER {
            for f in ["4", "8"] {
                let setting = Setting::new(format!("{load}-burst{f}-{after}"), &options);
                settings.push(setting.with("growth", format!("burst {f} 32")).with("after", after));
            }
        }
    }
    Row {
        id: "T3b",
        what: "Gonçalves, three readings of what follows mice_t without a loss: +1/W per ACK (elsewhere here), slow start, the pseudo-code's floor below zero",
        expected: "nothing: the text does not decide it",
        source: "4.2, Figure 9",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 5,
        quick_seeds: 2,
        settings,
        judge: |outcomes| {
            let mut judged = Judged::default();
            for load in ["250", "1250"] {
                for f in ["4", "8"] {
                    for after in AFTER {
                        let ours = format!("{load}-burst{f}-{after}");
                        let change = outcomes.change((&ours, &mice()), (&format!("{load}-newreno"), &reno()));
                        let found = change.map(|c| {
                            let sign = if is_below(&c) { "" } else { ", not off zero" };
                            format!("{}{sign}", percent(&c))
                        });
                        judged.report(format!("{load}, f = {f}, then {after}: mice against NewReno"), "", found);
                    }
                }
            }
            judged
        },
    }
}
