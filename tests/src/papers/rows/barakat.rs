//! Where slow start overflows a buffer, and byte counting that slows down (Barakat & Altman).

use anyhow::{Result, ensure};
use spand_proto::growth::threshold::first_overflow;

use crate::papers::ns::{Figures, Output, number};
use crate::papers::row::{Judged, Outcomes, Row, Setting, Way};

const SCRIPT: &str = "barakat.tcl";
const WINDOW: &str = "window_at_first_drop_segments";
const SECONDS: &str = "first_drop_seconds";
/// 1 where the first drop came in slow start, 0 where later or not at all.
const IN_SLOW_START: &str = "in_slow_start";

/// Rate times empty round trip, in packets.
const PIPE: f64 = 191.0;
const BUFFERS: [u32; 4] = [20, 50, 100, 200];
/// `d` and whether the receiver delays acknowledgements.
const RECEIVERS: [(u32, &str); 2] = [(1, "no"), (2, "yes")];

/// T12.
pub(super) fn overflow() -> Row {
    let mut settings = Vec::new();
    for (d, delack) in RECEIVERS {
        for buffer in BUFFERS {
            let setting = Setting::new(open(d, buffer), &[("delack", delack)]).with("buffer", buffer);
            settings.push(setting.clone());
            let limit = first_overflow(f64::from(buffer), PIPE, f64::from(d)).floor();
            settings.push(Setting { name: limited(d, buffer), ..setting }.with("threshold", limit));
        }
    }
    Row {
        id: "T12",
        what: "Barakat & Altman: the window at which slow start first overflows a buffer of B packets, pipe of 191 packets of 512 bytes",
        expected: "no drop in slow start with a threshold at W_B",
        source: "slide `Corollaries`, W_B = min(B + µT, B (d + 1)); how near to W_B the first drop comes has no number there",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings,
        judge: overflow_judged,
    }
}

fn open(d: u32, buffer: u32) -> String {
    format!("d{d}-buffer{buffer}")
}

fn limited(d: u32, buffer: u32) -> String {
    format!("d{d}-buffer{buffer}-limited")
}

fn overflow_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for (d, _) in RECEIVERS {
        for buffer in BUFFERS {
            let model = first_overflow(f64::from(buffer), PIPE, f64::from(d));
            let found =
                outcomes.one(&open(d, buffer), WINDOW).map(|window| format!("{window:.0} ({:.2} x)", window / model));
            judged.report(format!("d = {d}, B = {buffer}: window at the first drop"), format!("{model:.0}"), found);
            let found = outcomes.one(&limited(d, buffer), IN_SLOW_START).map(in_words);
            let what = format!("d = {d}, B = {buffer}, threshold at W_B: drops in slow start");
            judged.target(what, "none", found);
        }
    }
    judged
}

/// Options of a setting.
type Options = &'static [(&'static str, &'static str)];

/// Setting and options.
const BYTE_COUNTING: [(&str, Options); 3] = [
    ("d1", &[("delack", "no")]),
    ("d2", &[("delack", "yes")]),
    ("dbc2-beyond", &[("growth", "dbc 2"), ("rule-threshold", "100"), ("after", "formula")]),
];
/// As the product has it: the threshold ends slow start.
const ENDED: &str = "dbc2-ended";

/// T13.
pub(super) fn byte_counting() -> Row {
    let settings = BYTE_COUNTING.iter().map(|(name, options)| Setting::new(*name, options));
    let ended = Setting::new(ENDED, &[("growth", "dbc 2"), ("delack", "yes"), ("threshold", "100")]);
    Row {
        id: "T13",
        what: "Barakat & Altman: decreasing byte counting (dmax = 2, W_th = 100) on a buffer of 50 packets",
        expected: "nothing: the slides' plots have no scale, and their text no number",
        source: "slides `Decreasing Byte Counting`, `Simulation`",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: settings.chain([ended]).collect(),
        judge: byte_counting_judged,
    }
}

fn byte_counting_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for (name, _) in BYTE_COUNTING {
        let first = outcomes.one(name, WINDOW).zip(outcomes.one(name, SECONDS));
        let found = first.map(|(window, seconds)| format!("{window:.0} segments after {seconds:.2} s"));
        judged.report(format!("{name}: window at the first drop"), "", found);
    }
    let found = outcomes.one(ENDED, IN_SLOW_START).map(|dropped| in_words(dropped).0);
    judged.report("slow start ended at W_th, as the product does: drops in slow start", "", found);
    judged
}

/// Whether there was a drop in slow start, and whether that will do.
fn in_words(dropped: f64) -> (String, bool) {
    ((if dropped > 0.0 { "a drop" } else { "none" }).to_owned(), dropped == 0.0)
}

fn read(output: &Output) -> Result<Figures> {
    let Ok(drop) = output.line("drop") else {
        output.line("none")?;
        return Ok(Figures::from([(IN_SLOW_START.to_owned(), 0.0)]));
    };
    let phase = drop.get(2).map_or("", String::as_str);
    ensure!(["slow-start", "avoidance"].contains(&phase), "a drop in the phase `{phase}`");
    let in_slow_start = if phase == "slow-start" { 1.0 } else { 0.0 };
    Ok(Figures::from([
        (SECONDS.to_owned(), number(drop, 0)?),
        (WINDOW.to_owned(), number(drop, 1)?),
        (IN_SLOW_START.to_owned(), in_slow_start),
    ]))
}
