//! TCP/SPAND's own figures with starts by the project's code (section 6).

use std::ops::RangeInclusive;

use anyhow::{Result, ensure};

use crate::campaign::statistics::Mean;
use crate::papers::ns::{Figures, Output, number};
use crate::papers::row::{Judged, Outcomes, Row, Setting, Standing, Way, percent};

const SCRIPT: &str = "spand.tcl";
const SECONDS: &str = "seconds";
const START: &str = "start_segments";

/// Senders and kilobytes of a transfer.
type Cell = (u32, u32);
const CELLS: [Cell; 6] = [(1, 30), (6, 30), (15, 30), (30, 30), (6, 10), (6, 100)];
/// Those that `--quick` runs.
const QUICK: [Cell; 2] = [(6, 30), (30, 30)];

/// How the senders start: name, options.
type Arm = (&'static str, &'static [(&'static str, &'static str)]);
const BASELINES: [Arm; 2] = [("reno-ssr", &[("scheme", "reno-ssr")]), ("newreno-nssr", &[("scheme", "newreno-nssr")])];
const ADVISED: [Arm; 2] = [("spand", &[("scheme", "spand")]), ("robust", &[("scheme", "spand"), ("rule", "robust")])];
/// On one bottleneck without other traffic only: another rule, and samples of fast retransmits alone.
const FURTHER: [Arm; 3] = [
    ("probe", &[("scheme", "spand"), ("rule", "probe")]),
    ("spand-retransmits", &[("scheme", "spand"), ("timeouts", "none")]),
    ("robust-retransmits", &[("scheme", "spand"), ("rule", "robust"), ("timeouts", "none")]),
];

/// A path: name, figures, options, what the paper says against `*-ssr` and `*-nssr` in percent less.
struct Place {
    name: &'static str,
    figures: &'static str,
    options: &'static [(&'static str, &'static str)],
    against_ssr: &'static str,
    against_nssr: &'static str,
}

const SINGLE: Place = Place {
    name: "single",
    figures: "Figures 10, 11",
    options: &[("telnets", "5")],
    against_ssr: "-50 % or more in most cases",
    against_nssr: "-20 % or more in most cases",
};
const UDP: Place = Place {
    name: "udp",
    figures: "Figures 12, 13",
    options: &[("telnets", "5"), ("udp", "40")],
    against_ssr: "-35 to -65 %",
    against_nssr: "-25 to -50 %",
};
const HOPS: Place = Place {
    name: "hops",
    figures: "Figures 14, 15",
    options: &[("telnets", "5"), ("udp", "40"), ("hops", "5")],
    against_ssr: "-30 to -65 %",
    against_nssr: "-25 to -55 %",
};
const CROWDED: Place = Place {
    name: "crowded",
    figures: "Figures 16, 17",
    options: &[("telnets", "5"), ("udp", "40"), ("udp-kbps", "48"), ("hops", "5")],
    against_ssr: "never slower",
    against_nssr: "never slower",
};

/// An earlier run of the same setting in ns-2 by this project, with its own arithmetic in place of the product's: seconds with
/// starts on advice, of [`CELLS`]. Ten seeds; samples and shares were rounded down there.
const EARLIER: [(Place, [f64; CELLS.len()]); 2] =
    [(SINGLE, [0.324, 0.352, 0.430, 0.705, 0.192, 1.507]), (UDP, [0.415, 0.415, 0.582, 0.872, 0.191, 1.558])];
/// The same in Figure 10 with shares rounded to the nearest segment, as the product does.
const EARLIER_NEAREST: [f64; 4] = [0.316, 0.385, 0.479, 0.625];
/// What the text has of transfers of 30 KB against `*-ssr` and `*-nssr`: section 6.3.1.1 of Figure 10 in most cases, section 6.3.2
/// of Figure 12 in all. Of Figures 11, 13, 18 and 19 it has no number.
const MOST_OF_10: [RangeInclusive<f64>; 2] = [f64::NEG_INFINITY..=-0.50, f64::NEG_INFINITY..=-0.20];
const ALL_OF_12: [RangeInclusive<f64>; 2] = [-0.65..=-0.35, -0.50..=-0.25];

/// Half of the senders without advice: name, figure, clock of theirs in seconds.
const MIXTURES: [(&str, &str, &str); 2] = [("mixed", "Figure 18", "0.05"), ("mixed-coarse", "Figure 19", "0.2")];
/// Senders in a mixture, and the earlier run's seconds of the advised half at 30 KB in both figures.
const MIXED_30: [(u32, [f64; 2]); 5] =
    [(2, [0.547, 0.547]), (6, [0.917, 0.911]), (10, [1.334, 1.283]), (20, [2.775, 2.364]), (30, [3.922, 3.261])];
/// The same at 100 KB, of Figure 18 alone.
const MIXED_100: [(u32, f64); 4] = [(2, 1.253), (6, 2.912), (20, 8.304), (30, 12.318)];

/// T14.
pub(super) fn one_bottleneck() -> Row {
    let mut settings = Vec::new();
    for (place, _) in EARLIER {
        let further = if place.name == SINGLE.name { &FURTHER[..] } else { &[] };
        settings.extend(of_place(&place, further));
    }
    for (name, _, clock) in MIXTURES {
        for (n, size) in mixed_cells() {
            let base = Setting::new(at(name, (n, size), "reno-ssr"), &[("telnets", "5"), ("jitter", "0.1")])
                .with("n", n)
                .with("size", size)
                .with("reno-tick", clock);
            let base = Setting { quick: (n, size) == (6, 30), ..base };
            for (arm, options) in ADVISED {
                let mut mixed = Setting { name: at(name, (n, size), arm), ..base.clone() }.with("mix", "reno-ssr");
                mixed.options.extend(options.iter().map(|(name, value)| (*name, (*value).to_owned())));
                settings.push(mixed);
            }
            settings.push(base.with("scheme", "reno-ssr"));
        }
    }
    Row {
        id: "T14",
        what: "TCP/SPAND Figures 10 to 13, 18, 19: N senders share a bottleneck of 1.6 Mbit/s, 50 ms and ten packets",
        expected: "rule `spand`, 30 KB: Figure 10 more than 50 % below `*-ssr` and over 20 % below `*-nssr` in most cells; Figure 12 35 to 65 % and 25 to 50 % below in each",
        source: "6.3.1.1, 6.3.2; the figures' values are not readable in the text at hand",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 3,
        quick_seeds: 1,
        settings,
        judge: one_bottleneck_judged,
    }
}

/// T15.
pub(super) fn five_bottlenecks() -> Row {
    Row {
        id: "T15",
        what: "TCP/SPAND Figures 14, 15: five such bottlenecks in a row, 50 ms together, 40 sources of 12 kbit/s across each (assumed)",
        expected: "30 to 65 % less than `*-ssr`, 25 to 55 % less than `*-nssr`: how many cells is reported",
        source: "6.4.1",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 3,
        quick_seeds: 1,
        settings: of_place(&HOPS, &[]),
        judge: |outcomes| {
            let mut judged = Judged::default();
            changes(&mut judged, outcomes, &HOPS, &[]);
            count(&mut judged, outcomes, &HOPS, [(-0.65, -0.30), (-0.55, -0.25)]);
            judged
        },
    }
}

/// T15 with more cross traffic.
pub(super) fn crowded_bottlenecks() -> Row {
    Row {
        id: "T15b",
        what: "TCP/SPAND Figures 16, 17: the same with sources of 48 kbit/s",
        expected: "never slower: how many cells is reported",
        source: "6.4.2",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: of_place(&CROWDED, &[]),
        judge: |outcomes| {
            let mut judged = Judged::default();
            changes(&mut judged, outcomes, &CROWDED, &[]);
            count(&mut judged, outcomes, &CROWDED, [(f64::NEG_INFINITY, 0.0); 2]);
            judged
        },
    }
}

/// All cells of a path, each with all arms.
fn of_place(place: &Place, further: &[Arm]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for cell in CELLS {
        for (arm, options) in BASELINES.iter().chain(&ADVISED).chain(further) {
            let all: Vec<_> = place.options.iter().chain(*options).copied().collect();
            let setting = Setting::new(at(place.name, cell, arm), &all).with("n", cell.0).with("size", cell.1);
            settings.push(Setting { quick: QUICK.contains(&cell), ..setting });
        }
    }
    settings
}

fn at(place: &str, (n, size): Cell, arm: &str) -> String {
    format!("{place}-n{n}-{size}kb-{arm}")
}

fn mixed_cells() -> impl Iterator<Item = Cell> {
    MIXED_30.iter().map(|(n, _)| (*n, 30)).chain(MIXED_100.iter().map(|(n, _)| (*n, 100)))
}

/// Mean seconds of a scheme's transfers, and the mean window of starts on advice.
fn read(output: &Output) -> Result<Figures> {
    let mut figures = Figures::new();
    for words in output.lines("transfers") {
        let scheme = words.first().map_or("", String::as_str);
        figures.insert(seconds(scheme), number(words, 2)?);
    }
    ensure!(!figures.is_empty(), "no transfer came to its end");
    if let Some(words) = output.lines("starts").next() {
        figures.insert(START.to_owned(), number(words, 1)?);
    }
    Ok(figures)
}

fn seconds(scheme: &str) -> String {
    format!("{scheme}_{SECONDS}")
}

/// The mean seconds of an arm's transfers, by the name of its scheme.
fn figure(arm: &str) -> String {
    let is_baseline = BASELINES.iter().any(|(name, _)| *name == arm);
    seconds(if is_baseline { arm } else { "spand" })
}

fn change(outcomes: &Outcomes, place: &str, cell: Cell, arm: &str, baseline: &str) -> Option<Mean> {
    outcomes.change((&at(place, cell, arm), &figure(arm)), (&at(place, cell, baseline), &figure(baseline)))
}

fn cell_words((n, size): Cell) -> String {
    format!("N = {n}, {size} KB")
}

/// Each arm against both baselines.
fn changes(judged: &mut Judged, outcomes: &Outcomes, place: &Place, further: &[Arm]) {
    for cell in CELLS {
        for (arm, _) in ADVISED.iter().chain(further) {
            for ((baseline, _), paper) in BASELINES.iter().zip([place.against_ssr, place.against_nssr]) {
                let what = format!("{}, {}: {arm} against {baseline}", place.figures, cell_words(cell));
                let found = change(outcomes, place.name, cell, arm, baseline);
                judged.report(what, paper, found.map(|change| percent(&change)));
            }
        }
    }
}

/// How many cells lie within the paper's bands.
fn count(judged: &mut Judged, outcomes: &Outcomes, place: &Place, bands: [(f64, f64); 2]) {
    for (arm, _) in ADVISED {
        for ((baseline, _), (least, most)) in BASELINES.iter().zip(bands) {
            let found: Option<Vec<f64>> =
                CELLS.iter().map(|cell| Some(change(outcomes, place.name, *cell, arm, baseline)?.value)).collect();
            let within = |changes: Vec<f64>| changes.iter().filter(|change| (least..=most).contains(*change)).count();
            let what = format!("{}: cells of {arm} against {baseline} in the paper's band", place.figures);
            judged.report(what, CELLS.len().to_string(), found.map(|changes| within(changes).to_string()));
        }
    }
}

/// Seconds beside those of an earlier run.
fn beside(judged: &mut Judged, what: String, earlier: f64, found: Option<Mean>) {
    let found =
        found.map(|mean| format!("{:.3} ({:+.0} % of {earlier:.3})", mean.value, (mean.value / earlier - 1.0) * 100.0));
    judged.report(what, "", found);
}

/// The text's numbers: rule `spand` with transfers of 30 KB.
fn by_the_text(judged: &mut Judged, outcomes: &Outcomes) {
    let of_30 = || CELLS.into_iter().filter(|(_, size)| *size == 30);
    for ((baseline, _), band) in BASELINES.iter().zip(MOST_OF_10) {
        let changes: Option<Vec<Mean>> =
            of_30().map(|cell| change(outcomes, SINGLE.name, cell, "spand", baseline)).collect();
        let found = changes.map(|changes| {
            let text: Vec<String> = changes.iter().map(percent).collect();
            let standings: Vec<Standing> = changes.iter().map(|change| Standing::of(change, &band)).collect();
            (text.join(", "), Standing::of_most(&standings))
        });
        let most = format!("most below {:.0} %", band.end() * 100.0);
        judged.target(format!("Figure 10, N = 1, 6, 15, 30: spand against {baseline}"), most, found);
    }
    for ((baseline, _), band) in BASELINES.iter().zip(ALL_OF_12) {
        for cell in of_30() {
            let what = format!("Figure 12, {}: spand against {baseline}", cell_words(cell));
            let expected = format!("{:.0} to {:.0} %", band.start() * 100.0, band.end() * 100.0);
            let found = change(outcomes, UDP.name, cell, "spand", baseline);
            judged.within(what, expected, band.clone(), found, percent);
        }
    }
}

fn one_bottleneck_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    by_the_text(&mut judged, outcomes);
    for (place, seconds) in &EARLIER {
        for (cell, earlier) in CELLS.iter().zip(seconds) {
            let found = outcomes.mean(&at(place.name, *cell, "spand"), &figure("spand"));
            let what = format!("{}, {}: spand (s), beside an earlier run", place.figures, cell_words(*cell));
            beside(&mut judged, what, *earlier, found);
        }
    }
    for (cell, earlier) in CELLS.iter().zip(EARLIER_NEAREST) {
        let found = outcomes.mean(&at(SINGLE.name, *cell, "spand"), &figure("spand"));
        let found = found.map(|mean| format!("{:+.0} %", (mean.value / earlier - 1.0) * 100.0));
        let what =
            format!("Figure 10, {}: spand against an earlier run that rounds alike ({earlier} s)", cell_words(*cell));
        judged.report(what, "", found);
    }
    for cell in CELLS {
        for arm in ["robust", "probe"] {
            let found = change(outcomes, SINGLE.name, cell, arm, "spand");
            let what = format!("{}, {}: {arm} against spand", SINGLE.figures, cell_words(cell));
            judged.report(what, "", found.map(|change| percent(&change)));
        }
        for arm in ["spand-retransmits", "robust-retransmits"] {
            let found = change(outcomes, SINGLE.name, cell, arm, "spand");
            let what = format!("{}, {}: {arm} against spand", SINGLE.figures, cell_words(cell));
            judged.report(what, "", found.map(|change| percent(&change)));
        }
    }
    changes(&mut judged, outcomes, &SINGLE, &FURTHER[..1]);
    changes(&mut judged, outcomes, &UDP, &[]);
    for (index, (name, figures, _)) in MIXTURES.iter().enumerate() {
        for cell in mixed_cells() {
            let of_30 = MIXED_30.iter().find(|(n, _)| (*n, 30) == cell).and_then(|(_, seconds)| seconds.get(index));
            let of_100 = MIXED_100.iter().find(|(n, _)| (*n, 100) == cell && index == 0).map(|(_, seconds)| seconds);
            let found = outcomes.mean(&at(name, cell, "spand"), &figure("spand"));
            let what = format!("{figures}, {}: spand in the mixture (s)", cell_words(cell));
            match of_30.or(of_100) {
                Some(earlier) => beside(&mut judged, what, *earlier, found),
                None => judged.report(what, "", found.map(|mean| format!("{:.3}", mean.value))),
            }
            for (arm, _) in ADVISED {
                let reno = seconds("reno-ssr");
                let found = outcomes.change((&at(name, cell, arm), &reno), (&at(name, cell, "reno-ssr"), &reno));
                let what = format!("{figures}, {}: reno-ssr beside {arm} against among its own", cell_words(cell));
                judged.report(what, "unharmed", found.map(|change| percent(&change)));
            }
        }
    }
    judged
}
