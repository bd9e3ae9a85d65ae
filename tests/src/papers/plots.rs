//! The papers' figures as plots, beside what the papers say of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use spand_proto::timer::{BsdTimer, scheduled};

use super::result::Results;
use super::row::{Outcomes, Row};
use crate::plot::{Axis, Mark, Plot, Series};

/// All results, by row.
struct Read(BTreeMap<&'static str, Outcomes>);

/// A figure of a paper: the file's name, and the plot that the results make of it.
struct Figure {
    file: &'static str,
    plot: fn(&Read) -> Plot,
}

const FIGURES: [Figure; 17] = [
    Figure { file: "papers-spand-10.svg", plot: |read| spand_senders(read, &SINGLE) },
    Figure { file: "papers-spand-11.svg", plot: |read| spand_sizes(read, &SINGLE) },
    Figure { file: "papers-spand-12.svg", plot: |read| spand_senders(read, &UDP) },
    Figure { file: "papers-spand-13.svg", plot: |read| spand_sizes(read, &UDP) },
    Figure { file: "papers-spand-14.svg", plot: |read| spand_senders(read, &HOPS) },
    Figure { file: "papers-spand-15.svg", plot: |read| spand_sizes(read, &HOPS) },
    Figure { file: "papers-spand-16.svg", plot: |read| spand_senders(read, &CROWDED) },
    Figure { file: "papers-spand-17.svg", plot: |read| spand_sizes(read, &CROWDED) },
    Figure { file: "papers-spand-18.svg", plot: |read| spand_mixture(read, 18, "mixed", "50 ms") },
    Figure { file: "papers-spand-19.svg", plot: |read| spand_mixture(read, 19, "mixed-coarse", "200 ms") },
    Figure { file: "papers-yu-3.svg", plot: yu_long },
    Figure { file: "papers-yu-17.svg", plot: yu_short },
    Figure { file: "papers-aron-6.svg", plot: aron_timeouts },
    Figure { file: "papers-aron-9.svg", plot: aron_satellite },
    Figure { file: "papers-aron-10.svg", plot: aron_wide_area },
    Figure { file: "papers-goncalves-15.svg", plot: goncalves_mice },
    Figure { file: "papers-goncalves-table-2.svg", plot: goncalves_medians },
];

/// Writes every plot into `folder`.
pub fn write(folder: &Path, results: &Results, rows: &[Row]) -> Result<()> {
    for (name, svg) in all(results, rows)? {
        let file = folder.join(name);
        std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Every plot of which something was measured, by its file's name.
pub fn all(results: &Results, rows: &[Row]) -> Result<Vec<(&'static str, String)>> {
    let read = Read(rows.iter().map(|row| (row.id, results.of_row(row).0)).collect());
    let plots = FIGURES.iter().map(|figure| (figure.file, (figure.plot)(&read)));
    let measured = |series: &Series| !series.name.starts_with(PAPER) && !series.points.is_empty();
    plots
        .filter(|(_, plot)| plot.series.iter().any(measured))
        .map(|(file, plot)| Ok((file, plot.svg().context(file)?)))
        .collect()
}

/// How names of series begin that show what a paper says.
const PAPER: &str = "paper: ";

impl Read {
    /// The mean of a figure over seeds.
    fn mean(&self, row: &str, setting: &str, figure: &str) -> Option<f64> {
        Some(self.0.get(row)?.mean(setting, figure)?.value)
    }

    /// The same over that of another setting, of the seeds that both have.
    fn ratio(&self, row: &str, [setting, baseline]: [&str; 2], figure: &str) -> Option<f64> {
        Some(1.0 + self.0.get(row)?.change((setting, figure), (baseline, figure))?.value)
    }

    /// A setting's figures whose name is a number between these words, in order of the number.
    fn sweep(&self, row: &str, setting: &str, before: &str, after: &str) -> Vec<(f64, f64)> {
        let runs = self.0.get(row).and_then(|outcomes| outcomes.0.get(setting)).into_iter().flatten();
        let names = runs.flat_map(|(_, figures)| figures.keys());
        let number = |name: &String| name.strip_prefix(before)?.strip_suffix(after)?.parse::<f64>().ok();
        let mut points: Vec<(f64, f64)> =
            names.filter_map(|name| Some((number(name)?, self.mean(row, setting, name)?))).collect();
        points.sort_by(|one, next| one.0.total_cmp(&next.0));
        points.dedup();
        points
    }
}

fn series(name: impl Into<String>, mark: Mark, colour: usize, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.into(), mark, colour, points }
}

/// A path of TCP/SPAND, and by which part the paper's advised transfers are shorter than those of `reno-ssr`.
struct Place {
    row: &'static str,
    name: &'static str,
    /// Over senders and over sizes.
    figures: [u32; 2],
    what: &'static str,
    less: [f64; 2],
    rules: &'static [&'static str],
}

const SINGLE: Place = Place {
    row: "T14",
    name: "single",
    figures: [10, 11],
    what: "one bottleneck",
    less: [0.5, 0.5],
    rules: &["spand", "robust", "probe"],
};
const UDP: Place = Place {
    row: "T14",
    name: "udp",
    figures: [12, 13],
    what: "one bottleneck, UDP beside",
    less: [0.35, 0.65],
    rules: &["spand", "robust"],
};
const HOPS: Place = Place {
    row: "T15",
    name: "hops",
    figures: [14, 15],
    what: "five bottlenecks, 12 kbit/s a UDP source",
    less: [0.30, 0.65],
    rules: &["spand", "robust"],
};
const CROWDED: Place = Place {
    row: "T15b",
    name: "crowded",
    figures: [16, 17],
    what: "five bottlenecks, 48 kbit/s a UDP source",
    less: [0.0, 0.0],
    rules: &["spand", "robust"],
};

/// Senders at 30 KB, and kilobytes of six senders.
const SENDERS: [u32; 4] = [1, 6, 15, 30];
const SIZES: [u32; 3] = [10, 30, 100];

fn spand_senders(read: &Read, place: &Place) -> Plot {
    let cells = SENDERS.map(|n| (f64::from(n), format!("{}-n{n}-30kb", place.name)));
    let x = Axis::new("senders, 30 KB each", "");
    spand(read, place, place.figures[0], x, &cells)
}

fn spand_sizes(read: &Read, place: &Place) -> Plot {
    let cells = SIZES.map(|size| (f64::from(size), format!("{}-n6-{size}kb", place.name)));
    let x = Axis::new("size of a transfer, six senders", "KB");
    spand(read, place, place.figures[1], x, &cells)
}

fn spand(read: &Read, place: &Place, figure: u32, x: Axis, cells: &[(f64, String)]) -> Plot {
    let arm = |arm: &str, figure: &str| -> Vec<(f64, f64)> {
        let at = |(x, cell): &(f64, String)| Some((*x, read.mean(place.row, &format!("{cell}-{arm}"), figure)?));
        cells.iter().filter_map(at).collect()
    };
    let baseline = arm("reno-ssr", "reno-ssr_seconds");
    let mut all = vec![
        series("reno-ssr", Mark::Line, 0, baseline.clone()),
        series("newreno-nssr", Mark::Line, 5, arm("newreno-nssr", "newreno-nssr_seconds")),
    ];
    for (colour, rule) in (1..).zip(place.rules) {
        all.push(series(format!("advised, rule {rule}"), Mark::Line, colour, arm(rule, "spand_seconds")));
    }
    let [least, most] = place.less;
    let bounds = if least < most { vec![least, most] } else { vec![least] };
    for less in bounds.into_iter().filter(|less| *less > 0.0) {
        let points = baseline.iter().map(|(x, y)| (*x, y * (1.0 - less))).collect();
        all.push(series(format!("{PAPER}{:.0} % less than reno-ssr", less * 100.0), Mark::Dashed, 4, points));
    }
    Plot {
        title: format!("TCP/SPAND, Figure {figure}: {}", place.what),
        x,
        y: Axis::new("time of a transfer", "s"),
        series: all,
    }
}

fn spand_mixture(read: &Read, figure: u32, name: &str, clock: &str) -> Plot {
    let points = |arm: &str, figure: &str| -> Vec<(f64, f64)> {
        let at = |n: u32| Some((f64::from(n), read.mean("T14", &format!("{name}-n{n}-30kb-{arm}"), figure)?));
        [2, 6, 10, 20, 30].into_iter().filter_map(at).collect()
    };
    Plot {
        title: format!("TCP/SPAND, Figure {figure}: half of the senders without advice, their clock {clock}"),
        x: Axis::new("senders, 30 KB each", ""),
        y: Axis::new("time of a transfer", "s"),
        series: vec![
            series("reno-ssr among its own", Mark::Line, 0, points("reno-ssr", "reno-ssr_seconds")),
            series("reno-ssr beside advised ones", Mark::Dashed, 0, points("spand", "reno-ssr_seconds")),
            series("advised, rule spand", Mark::Line, 1, points("spand", "spand_seconds")),
            series("advised, rule robust", Mark::Line, 2, points("robust", "spand_seconds")),
        ],
    }
}

fn yu_long(read: &Read) -> Plot {
    let mut plot = yu(read, "T5", "Figure 3: lives of 100 s", &["liss", "iss", "miss", "js"]);
    plot.series.push(series("MISS, each loss by itself", Mark::Dashed, 3, yu_times(read, "T5", "miss-each")));
    for (colour, name, times) in [(1, "LISS", 1.48), (2, "ISS", 1.61), (3, "MISS and JS", 2.22)] {
        plot.series.push(series(format!("{PAPER}{name}"), Mark::Dots, colour, vec![(5.0, times)]));
    }
    plot
}

fn yu_short(read: &Read) -> Plot {
    yu(read, "T6", "Figure 17: lives of 5 s", &["liss", "iss", "miss", "js"])
}

fn yu(read: &Read, row: &str, what: &str, schemes: &[&str]) -> Plot {
    let line = |(colour, scheme): (usize, &&str)| {
        series(scheme.to_uppercase(), Mark::Line, colour, yu_times(read, row, scheme))
    };
    Plot {
        title: format!("Yu & Newman, {what}"),
        x: Axis::new("within the first seconds of a connection", "s"),
        y: Axis::new("packets acknowledged, times Reno's", ""),
        series: (1..).zip(schemes).map(line).collect(),
    }
}

fn yu_times(read: &Read, row: &str, scheme: &str) -> Vec<(f64, f64)> {
    let seconds = read.sweep(row, "reno", "first_", "_s_packets").into_iter().map(|(second, _)| second);
    let at = |second: f64| Some((second, read.ratio(row, [scheme, "reno"], &format!("first_{second}_s_packets"))?));
    seconds.filter_map(at).collect()
}

/// Round trips of Figure 6 by a clock of half a second and by one of a millisecond.
const MEASURED: [(u32, u32); 12] =
    [(0, 60), (0, 150), (1, 60), (0, 60), (0, 61), (0, 60), (0, 61), (0, 60), (0, 60), (0, 61), (0, 60), (1, 61)];

fn aron_timeouts(_: &Read) -> Plot {
    let (mut coarse, mut fine) = (BsdTimer::default(), BsdTimer::default());
    let (mut round_trips, mut original, mut by_events, mut new) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (n, (coarse_rtt, fine_rtt)) in (1_u32..).zip(MEASURED) {
        let n = f64::from(n);
        let timeout = fine.measured(fine_rtt);
        round_trips.push((n, f64::from(fine_rtt)));
        original.push((n, coarse.measured(coarse_rtt) as f64 * 500.0));
        by_events.push((n, scheduled(timeout, 1_000, 2) as f64 * 500.0));
        new.push((n, timeout as f64));
    }
    Plot {
        title: "Aron & Druschel, Figure 6: the timeout after each round trip; the paper's values exactly".to_owned(),
        x: Axis::new("round trip measured", ""),
        y: Axis::new("time", "ms"),
        series: vec![
            series("round trip", Mark::Dots, 5, round_trips),
            series("original, clock of 500 ms", Mark::Line, 0, original),
            series("measured by 1 ms, scheduled by 500 ms", Mark::Line, 1, by_events),
            series("measured and scheduled by 1 ms", Mark::Line, 2, new),
        ],
    }
}

fn throughput(read: &Read, row: &str, setting: &str) -> Vec<(f64, f64)> {
    read.sweep(row, setting, "throughput_percent_at_", "_s")
}

fn aron_satellite(read: &Read) -> Plot {
    startup(
        "Figure 9: a satellite link",
        vec![
            series("original", Mark::Line, 0, throughput(read, "T8", "original")),
            series("measured threshold", Mark::Line, 1, throughput(read, "T8", "threshold")),
            series("threshold given", Mark::Dashed, 1, throughput(read, "T8", "given")),
            series("paced slow start, 10 ms", Mark::Line, 2, throughput(read, "T10", "satellite-10ms")),
        ],
    )
}

fn aron_wide_area(read: &Read) -> Plot {
    // The original's first seconds are those of the paper's Figure 3.
    let paper = vec![(1.0, 6.62), (5.0, 19.81)];
    startup(
        "Figure 10: eight senders on a wide-area path",
        vec![
            series("original", Mark::Line, 0, throughput(read, "T9", "original")),
            series(format!("{PAPER}original"), Mark::Dots, 0, paper),
            series("measured threshold", Mark::Line, 1, throughput(read, "T9", "threshold")),
            series("threshold given", Mark::Dashed, 1, throughput(read, "T9", "given")),
            series("paced slow start, 10 ms", Mark::Line, 2, throughput(read, "T10", "wan-10ms")),
            series("paced slow start, 2 ms", Mark::Line, 3, throughput(read, "T10", "wan-2ms")),
        ],
    )
}

fn startup(what: &str, series: Vec<Series>) -> Plot {
    Plot {
        title: format!("Aron & Druschel, {what}"),
        x: Axis::new("since the beginning", "s"),
        y: Axis::new("effective throughput, of the link", "%").within(0.0, 100.0),
        series,
    }
}

/// Transfers in all.
const LOADS: [u32; 5] = [250, 500, 750, 1_000, 1_250];
/// Name in settings, rule in figures, words.
const KINDS: [(&str, &str, &str); 3] = [
    ("newreno", "standard", "NewReno"),
    ("burst4", "burst", "Burst TCP, f = 4"),
    ("burst8", "burst", "Burst TCP, f = 8"),
];

fn goncalves(read: &Read, path: &str, figure: &str) -> [Vec<(f64, f64)>; KINDS.len()] {
    KINDS.map(|(kind, rule, _)| {
        let at = |load: u32| {
            let setting = format!("{path}-{load}-{kind}");
            Some((f64::from(load), read.mean("T3", &setting, &format!("{rule}_mice_{figure}"))?))
        };
        LOADS.into_iter().filter_map(at).collect()
    })
}

fn goncalves_mice(read: &Read) -> Plot {
    let lines = goncalves(read, "queue7", "mean_seconds");
    let baseline = lines.first().cloned().unwrap_or_default();
    let less = |load: f64, part: f64| {
        baseline.iter().find(|(x, _)| (x - load).abs() < 0.5).map(|(x, y)| (*x, y * (1.0 - part)))
    };
    let paper: Vec<(f64, f64)> = [less(250.0, 0.38), less(1_250.0, 0.19)].into_iter().flatten().collect();
    let mut all = kinds(lines);
    all.push(series(format!("{PAPER}38 to 19 % less than NewReno"), Mark::Dots, 4, paper));
    mice("Gonçalves, Figure 15: transfers of up to 32 packets", "mean time", all)
}

fn goncalves_medians(read: &Read) -> Plot {
    const MEDIANS: [[f64; LOADS.len()]; KINDS.len()] = [
        [0.383_518, 0.383_518, 0.389_193, 0.389_193, 0.390_822],
        [0.225_879, 0.227_932, 0.227_932, 0.234_195, 0.244_895],
        [0.302_799, 0.302_887, 0.303_576, 0.308_562, 0.309_657],
    ];
    let mut all = kinds(goncalves(read, "reverse", "median_seconds"));
    for (colour, (medians, (.., words))) in MEDIANS.iter().zip(KINDS).enumerate() {
        let points = LOADS.iter().zip(medians).map(|(load, median)| (f64::from(*load), *median)).collect();
        all.push(series(format!("{PAPER}{words}"), Mark::Dots, colour, points));
    }
    mice("Gonçalves, Table II: transfers of up to 32 packets, traffic both ways", "median time", all)
}

fn kinds(lines: [Vec<(f64, f64)>; KINDS.len()]) -> Vec<Series> {
    let named = lines.into_iter().zip(KINDS).enumerate();
    named.map(|(colour, (points, (.., words)))| series(words, Mark::Line, colour, points)).collect()
}

fn mice(title: &str, what: &str, series: Vec<Series>) -> Plot {
    Plot { title: title.to_owned(), x: Axis::new("transfers in 1,000 s", ""), y: Axis::new(what, "s"), series }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::rows;

    #[test]
    fn without_a_result_only_what_is_computed_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let none = Results::open(folder.path(), &folder.path().join("none")).unwrap();
        let names: Vec<&str> = all(&none, &rows::all()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["papers-aron-6.svg"]);
    }

    #[test]
    fn a_sweep_is_in_order_of_its_numbers() {
        let figures =
            [("at_10_s", 1.0), ("at_0.5_s", 2.0), ("other", 3.0)].map(|(name, value)| (name.to_owned(), value));
        let seeds = BTreeMap::from([(1, figures.into_iter().collect())]);
        let read = Read(BTreeMap::from([("T0", Outcomes(BTreeMap::from([("a".to_owned(), seeds)])))]));
        assert_eq!(read.sweep("T0", "a", "at_", "_s"), [(0.5, 2.0), (10.0, 1.0)]);
    }
}
