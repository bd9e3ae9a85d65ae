//! B-TCP, one transfer alone (Gonçalves).

use anyhow::Result;

use crate::papers::ns::{Figures, Output, number};
use crate::papers::row::{Judged, Outcomes, Row, Setting, Way};

const SCRIPT: &str = "btcp-single.tcl";
const TRANSFER: &str = "transfer_seconds";

/// The path of Figure 14.
const SHARED_PATH: [(&str, &str); 3] = [("queue", "7"), ("delay", "35ms"), ("access", "5ms")];

/// Setting, packets, growth, seconds: Table II's undisturbed medians.
const ALONE: [(&str, &str, &str, f64); 6] = [
    ("newreno-7", "7", "standard", 0.383_518),
    ("burst4-7", "7", "burst 4 32", 0.222_257),
    ("burst8-7", "7", "burst 8 32", 0.297_213),
    ("newreno-8", "8", "standard", 0.389_193),
    ("burst4-8", "8", "burst 4 32", 0.227_932),
    ("burst8-8", "8", "burst 8 32", 0.302_887),
];

/// Setting, growth, seconds: section 4.3.
const SATELLITE: [(&str, &str, f64); 13] = [
    ("newreno", "standard", 7.04),
    ("burst2", "burst 2 32", 5.03),
    ("burst3", "burst 3 32", 5.12),
    ("burst4", "burst 4 32", 6.08),
    ("burst5", "burst 5 32", 6.12),
    ("burst6", "burst 6 32", 7.07),
    ("burst7", "burst 7 32", 8.06),
    ("burst8", "burst 8 32", 8.09),
    ("burst9", "burst 9 32", 8.11),
    ("burst4-mice24", "burst 4 24", 7.08),
    ("burst4-mice40", "burst 4 40", 5.13),
    ("burst8-mice24", "burst 8 24", 10.08),
    ("burst8-mice40", "burst 8 40", 7.10),
];

/// T1.
pub(super) fn alone() -> Row {
    let settings = ALONE.iter().map(|(name, packets, growth, _)| {
        Setting::new(*name, &SHARED_PATH).with("packets", packets).with("growth", growth)
    });
    Row {
        id: "T1",
        what: "Gonçalves Table II: a transfer of 7 and of 8 packets alone on the path of Figure 14",
        expected: "to 1 µs",
        source: "Table II (medians that nothing disturbed); B-TCP(4) with 7 packets: computed",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: settings.collect(),
        judge: |outcomes| {
            let mut judged = Judged::default();
            for (name, packets, growth, seconds) in ALONE {
                let found = outcomes.one(name, TRANSFER);
                judged.near(format!("{growth}, {packets} packets (s)"), seconds, 1e-6, 6, found);
            }
            judged
        },
    }
}

/// T2.
pub(super) fn satellite() -> Row {
    let settings = SATELLITE.iter().map(|(name, growth, _)| Setting::new(*name, &[("growth", growth)]));
    Row {
        id: "T2",
        what: "Gonçalves 4.3: 64 packets over 1.5 Mbit/s and a round trip of 1 s, without losses",
        expected: "f = 7, 8, 9 a second above NewReno, f up to 6 not above it; to 0.02 s",
        source: "Figures 10 to 13 for the order; seconds computed from the growth rule",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: settings.collect(),
        judge: satellite_judged,
    }
}

fn satellite_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for (name, growth, seconds) in SATELLITE {
        judged.near(format!("{growth} (s)"), seconds, 0.02, 2, outcomes.one(name, TRANSFER));
    }
    judged
}

fn read(output: &Output) -> Result<Figures> {
    Ok(Figures::from([(TRANSFER.to_owned(), number(output.line("transfer")?, 0)?)]))
}
