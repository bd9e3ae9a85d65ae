//! Openings by the senders under way (Yu & Newman, section 5).

use anyhow::Result;

use crate::campaign::statistics::Mean;
use crate::papers::ns::{Figures, Output, number};
use crate::papers::row::{Judged, Outcomes, Row, Setting, Way, seeds};

const SCRIPT: &str = "yu.tcl";
/// The same for the rule that asks when losses were.
const LOSSES_SCRIPT: &str = "yu-losses.tcl";
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
/// Each halving of each sender counts, in place of a queue's overflow.
const MISS_EACH: &str = "miss-each";

fn scheme(name: &str, scheme: &str) -> Setting {
    let script = (scheme == MISS.1).then_some(LOSSES_SCRIPT);
    Setting { script, ..Setting::new(name, &[]).with("scheme", scheme) }
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
        expected: "first 5 s, times Reno's: LISS 1.48, ISS 1.61, MISS and JS 2.22, or more",
        source: "5.1: 84,545 packets with Reno, 124,719, 136,307, 187,868 and 187,678 with LISS, ISS, MISS and JS; of totals it has no number here",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 5,
        quick_seeds: 1,
        settings,
        judge: long_lives_judged,
    }
}

fn long_lives_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for (name, text) in [("liss", 1.48), ("iss", 1.61), ("js", 2.22), ("miss", 2.22), (MISS_EACH, 2.22)] {
        let found = ratio(outcomes, name, FIRST);
        judged.within(format!("{name}: first 5 s"), format!("{text} or more"), text..=f64::INFINITY, found, times);
    }
    for name in ["liss", "iss", "miss", "js"] {
        judged.report(
            format!("{name}: total"),
            "about equal (no number)",
            ratio(outcomes, name, TOTAL).map(|mean| times(&mean)),
        );
    }
    for name in ["liss", "miss", "js"] {
        let window = outcomes.mean(name, WINDOW).map(|mean| format!("{:.1} segments", mean.value));
        judged.report(format!("{name}: mean first window"), "", window);
    }
    judged
}

/// T5b: delays of the access links, which the text leaves open.
const ACCESS: [&str; 3] = ["1ms", "25ms", "35ms"];

fn with_access(name: &str, delay: &str) -> String {
    format!("{name}-{delay}")
}

/// T5b.
pub(super) fn access_delays() -> Row {
    let schemes = [(RENO, RENO), LISS, MISS];
    let of = |delay: &'static str| {
        schemes.map(|(name, option)| scheme(&with_access(name, delay), option).with("access", delay).long())
    };
    Row {
        id: "T5b",
        what: "Yu & Newman Figure 3 at 16 Mbit/s with other delays of the access links: first 5 s",
        expected: "nothing: the text has no access links",
        source: "5.1, Figure 2",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: ACCESS.into_iter().flat_map(of).collect(),
        judge: access_delays_judged,
    }
}

fn access_delays_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for delay in ACCESS {
        let reno = outcomes.one(&with_access(RENO, delay), FIRST);
        judged.report(format!("{delay}: Reno's packets"), "", reno.map(|packets| format!("{packets:.0}")));
        for name in [LISS.0, MISS.0] {
            let ratio = outcomes.one(&with_access(name, delay), FIRST).zip(reno).map(|(packets, reno)| packets / reno);
            judged.report(format!("{delay}: {name}, times Reno's"), "", ratio.map(|ratio| format!("{ratio:.2}")));
        }
    }
    judged
}

/// T6.
pub(super) fn short_lives() -> Row {
    let settings = schemes(&[LISS, ISS, MISS, JS]).into_iter().map(|setting| setting.with("life", 5)).collect();
    Row {
        id: "T6",
        what: "Yu & Newman Figure 17: the same with connections of 5 s in the mean",
        expected: "LISS, ISS, MISS and JS above Reno in the first 5 s and in total; MISS not above the other three",
        source: "5.3: all four outperform Reno in both, and MISS loses most of its effect",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 3,
        quick_seeds: 1,
        settings,
        judge: short_lives_judged,
    }
}

fn short_lives_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for name in ["liss", "iss", "miss", "js"] {
        for (figure, words) in [(FIRST, "first 5 s"), (TOTAL, "total")] {
            let what = format!("{name}: {words}, times Reno's");
            judged.within(what, "above 1", 1.0..=f64::INFINITY, ratio(outcomes, name, figure), times);
        }
    }
    for name in ["liss", "iss", "js"] {
        let what = format!("miss: first 5 s, times that of {name}");
        judged.within(what, "1 or less", 0.0..=1.0, ratio_of(outcomes, "miss", name, FIRST), times);
    }
    judged
}

/// T7.
pub(super) fn other_thresholds() -> Row {
    Row {
        id: "T7",
        what: "Yu & Newman, thresholds of others, cached and averaged, against LISS, in the network of Figure 3",
        expected: "nothing: the text compares them among 600 nodes with lives of 5 s, which are not published",
        source: "5.4, Figure 20: there cached is comparable to LISS, and averaged worse",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 3,
        quick_seeds: 1,
        settings: schemes(&[LISS, CACHED, AVERAGED]),
        judge: other_thresholds_judged,
    }
}

fn other_thresholds_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for name in [AVERAGED.0, CACHED.0] {
        let found = ratio_of(outcomes, name, LISS.0, FIRST).map(|mean| times(&mean));
        judged.report(format!("{name}: first 5 s, times LISS's"), "", found);
    }
    for name in [LISS.0, CACHED.0, AVERAGED.0] {
        let found = ratio(outcomes, name, FIRST).map(|mean| times(&mean));
        judged.report(format!("{name}: first 5 s, times Reno's"), "", found);
    }
    judged
}

/// A figure as a multiple of Reno's, seed by seed.
fn ratio(outcomes: &Outcomes, name: &str, figure: &str) -> Option<Mean> {
    ratio_of(outcomes, name, RENO, figure)
}

fn ratio_of(outcomes: &Outcomes, name: &str, other: &str, figure: &str) -> Option<Mean> {
    let change = outcomes.change((name, figure), (other, figure))?;
    Some(Mean { value: 1.0 + change.value, ..change })
}

fn times(mean: &Mean) -> String {
    let half = mean.half_width.map_or_else(String::new, |half| format!(" ±{half:.2}"));
    format!("{:.2}{half} ({})", mean.value, seeds(mean.count))
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
