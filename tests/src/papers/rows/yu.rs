//! Openings by the senders under way (Yu & Newman, section 5).

use anyhow::Result;

use crate::benefit::statistics::Mean;
use crate::papers::output::{Figures, Output, number};
use crate::papers::row::{Judged, Outcomes, Row, Setting, Way, seeds};

const SCRIPT: &str = "yu.tcl";
const FIRST: &str = "first_5_s_packets";
const TOTAL: &str = "total_packets";
const WINDOW: &str = "opening_window_segments";

const RENO: &str = "reno";
/// Names of settings and the script's schemes.
const LISS: (&str, &str) = ("liss", "liss:threshold");
const ISS: (&str, &str) = ("iss", "iss:threshold");
const MISS: (&str, &str) = ("miss", "miss:measured");
const JS: (&str, &str) = ("js", "liss:jump");
const CACHED: (&str, &str) = ("cached", "cached:threshold");
const AVERAGED: (&str, &str) = ("averaged", "averaged:threshold");
/// Losses of one queue that overflows count each.
const MISS_EACH: &str = "miss-each";

fn scheme(name: &str, scheme: &str) -> Setting {
    Setting::new(name, &[]).with("scheme", scheme)
}

fn schemes(of: &[(&str, &str)]) -> Vec<Setting> {
    std::iter::once((RENO, RENO)).chain(of.iter().copied()).map(|(name, option)| scheme(name, option)).collect()
}

/// T5.
pub(super) fn long_lives() -> Row {
    let mut settings = schemes(&[LISS, ISS, MISS, JS]);
    settings.push(scheme(MISS_EACH, MISS.1).with("losses", "each").long());
    Row {
        id: "T5",
        what: "Yu & Newman Figure 3 at 16 Mbit/s: packets within the first 5 s of each connection, and in all, of 3,000 s",
        expected: "times Reno's: LISS 1.35 to 1.55, ISS 1.40 to 1.70, JS 1.95 to 2.30, MISS 1.5 or more (losses of a round trip as one: 1.7); total of JS 0.95 to 1.00",
        source: "the text (1.48, 1.61, 2.22, 2.22) and a run of this project",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 5,
        quick_seeds: 1,
        settings,
        judge: long_lives_judged,
    }
}

fn long_lives_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for (name, text, low, high) in [
        ("liss", 1.48, 1.35, 1.55),
        ("iss", 1.61, 1.40, 1.70),
        ("js", 2.22, 1.95, 2.30),
        ("miss", 2.22, 1.7, f64::INFINITY),
    ] {
        let band = if high.is_finite() { format!("{low} to {high}") } else { format!("{low} or more") };
        within(
            &mut judged,
            format!("{name}: first 5 s (text: {text})"),
            &band,
            (low, high),
            ratio(outcomes, name, FIRST),
        );
    }
    let each = ratio(outcomes, MISS_EACH, FIRST);
    within(&mut judged, "miss, every loss by itself: first 5 s".to_owned(), "1.5 or more", (1.5, f64::INFINITY), each);
    within(&mut judged, "js: total".to_owned(), "0.95 to 1.00", (0.95, 1.005), ratio(outcomes, "js", TOTAL));
    for name in ["liss", "iss", "miss"] {
        judged.report(format!("{name}: total"), "about equal", ratio(outcomes, name, TOTAL).map(|mean| times(&mean)));
    }
    for name in ["liss", "miss", "js"] {
        let window = outcomes.mean(name, WINDOW).map(|mean| format!("{:.1} segments", mean.value));
        judged.report(format!("{name}: mean first window"), "", window);
    }
    judged
}

/// T6.
pub(super) fn short_lives() -> Row {
    let settings = schemes(&[LISS, ISS, MISS, JS]).into_iter().map(|setting| setting.with("life", 5)).collect();
    Row {
        id: "T6",
        what: "Yu & Newman Figure 17: the same with connections of 5 s in the mean",
        expected: "MISS the worst of the four; LISS, ISS and JS above Reno in the first 5 s",
        source: "the text, section 5.4",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 3,
        quick_seeds: 1,
        settings,
        judge: short_lives_judged,
    }
}

fn short_lives_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for name in ["liss", "iss", "js"] {
        let found = ratio(outcomes, name, FIRST);
        within(&mut judged, format!("{name}: first 5 s, times Reno's"), "above 1", (1.0, f64::INFINITY), found);
    }
    let of = |name| ratio(outcomes, name, FIRST).map(|mean| mean.value);
    let found = of("miss").zip(of("liss")).zip(of("iss")).zip(of("js"));
    let found = found.map(|(((miss, liss), iss), js)| (format!("{miss:.2}"), miss <= liss.min(iss).min(js)));
    judged.target("miss: first 5 s, times Reno's", "the least of the four", found);
    judged
}

/// T7.
pub(super) fn other_thresholds() -> Row {
    Row {
        id: "T7",
        what: "Yu & Newman Figure 20, in the network of Figure 3 (the one with 600 nodes is not published): thresholds of others, cached and averaged, against LISS",
        expected: "averaged below LISS; cached within 10 % of LISS",
        source: "the text, section 5.4",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 3,
        quick_seeds: 1,
        settings: schemes(&[LISS, CACHED, AVERAGED]),
        judge: other_thresholds_judged,
    }
}

fn other_thresholds_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    let against = |name: &str| {
        let change = outcomes.change((name, FIRST), (LISS.0, FIRST))?;
        Some((1.0 + change.value, change.half_width))
    };
    let averaged = against(AVERAGED.0).map(|(value, _)| (format!("{value:.2}"), value < 1.0));
    judged.target("averaged: first 5 s, times LISS's", "below 1", averaged);
    let cached = against(CACHED.0).map(|(value, _)| (format!("{value:.2}"), (0.9..=1.1).contains(&value)));
    judged.target("cached: first 5 s, times LISS's", "0.9 to 1.1", cached);
    for name in [LISS.0, CACHED.0, AVERAGED.0] {
        let found = ratio(outcomes, name, FIRST).map(|mean| times(&mean));
        judged.report(format!("{name}: first 5 s, times Reno's"), "", found);
    }
    judged
}

/// A figure as a multiple of Reno's, seed by seed.
fn ratio(outcomes: &Outcomes, name: &str, figure: &str) -> Option<Mean> {
    let change = outcomes.change((name, figure), (RENO, figure))?;
    Some(Mean { value: 1.0 + change.value, ..change })
}

fn times(mean: &Mean) -> String {
    let half = mean.half_width.map_or_else(String::new, |half| format!(" ±{half:.2}"));
    format!("{:.2}{half} ({})", mean.value, seeds(mean.count))
}

fn within(judged: &mut Judged, what: String, band: &str, (low, high): (f64, f64), found: Option<Mean>) {
    judged.target(what, band, found.map(|mean| (times(&mean), (low..=high).contains(&mean.value))));
}

fn read(output: &Output) -> Result<Figures> {
    let mut figures = Figures::new();
    for line in output.lines("first") {
        figures.insert(format!("first_{}_s_packets", number(line, 0)?), number(line, 1)?);
    }
    figures.insert(TOTAL.to_owned(), number(output.line("total")?, 0)?);
    figures.insert("connections".to_owned(), number(output.line("connections")?, 0)?);
    if let Ok(openings) = output.line("openings") {
        figures.insert("openings".to_owned(), number(openings, 0)?);
        figures.insert(WINDOW.to_owned(), number(openings, 1)?);
        figures.insert("opening_threshold_segments".to_owned(), number(openings, 2)?);
    }
    Ok(figures)
}
