//! Tables and plots of what the cells gave: the estimates that users get, the errors, then every cell, worst first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use spand_core::flow::evidence::control::CongestionControl;

use super::compare::sum;
use super::engine::control;
use super::factors::Cell;
use super::result::{CellResult, Found, NetworkResult, quantiles};
use crate::campaign::page::{self, list, sorted, table};
use crate::plot::{Axis, Mark, Plot, Series, distribution};

const LOSS_BASED: &[&str] = &["reno", "cubic"];
const BBR: &[&str] = &["bbr"];
const EVERY: &[&str] = &["reno", "cubic", "bbr"];
const AT_LOSS: &[&str] = &["sample_loss", "sample_ecn"];

/// A figure with its target: median and 95th percentile of the absolute relative error.
struct Target {
    name: &'static str,
    kinds: &'static [&'static str],
    /// Congestion controls it is asked of.
    of: &'static [&'static str],
    median: f64,
    p95: f64,
}

const fn target(
    name: &'static str,
    kinds: &'static [&'static str],
    of: &'static [&'static str],
    (median, p95): (f64, f64),
) -> Target {
    Target { name, kinds, of, median, p95 }
}

impl Target {
    /// Whether it counts in the order of cells: the round trips of whole flows are shown alone.
    fn is_ranked(&self) -> bool {
        !self.name.ends_with("of a flow")
    }
}

const TARGETS: [Target; 8] = [
    target("window at a loss in congestion avoidance", AT_LOSS, LOSS_BASED, (0.01, 0.07)),
    target("bbr: share (delivery rate x min RTT) at samples", &["share_bbr"], BBR, (0.05, 0.15)),
    target("smoothed RTT every 100 ms", &["srtt"], EVERY, (0.01, 0.05)),
    target("mean RTT of a flow", &["rtt_mean"], EVERY, (0.01, 0.05)),
    target("smallest RTT of a flow", &["rtt_min"], EVERY, (0.01, 0.05)),
    target("sample: loss-free end", &["sample_end"], LOSS_BASED, (0.01, 0.05)),
    target("sample: lower bound, application", &["sample_end_app_limited"], LOSS_BASED, (0.02, 0.15)),
    target("sample: lower bound, receiver", &["sample_end_receiver_limited"], LOSS_BASED, (0.02, 0.15)),
];

/// Makes the results page, and its plots beside it.
pub fn write(page: &Path, header: &str, planned: usize, results: &[CellResult]) -> Result<()> {
    let sound: Vec<&CellResult> = results.iter().filter(|result| result.fault.is_none()).collect();
    let text = [
        format!(
            "# How right the gateway is, on real kernels\n\n{header}\n\n{} of {planned} cells ran; {} of them count for nothing, since \
             their path or record was off.\n\n",
            results.len(),
            results.len() - sound.len()
        ),
        mixed(&sound),
        estimates(&sound),
        targets(&sound),
        events(&sound),
        limits(&sound),
        flavours(&sound),
        by_difficulty(&sound),
        plots(page, &sound)?,
        faults(results),
        every_cell(&sound),
    ];
    page::write(page, &text.concat())
}

/// A cell's result in a line.
pub fn line(result: &CellResult) -> String {
    let errors = |kinds| {
        let found = quantiles(errors(&[result], EVERY, kinds));
        found.map_or("-".to_owned(), |(median, p95)| format!("{:.1}/{:.1} %", median * 100.0, p95 * 100.0))
    };
    let (times, which) = badness(result);
    let fault = result.fault.as_deref().map_or(String::new(), |fault| format!("  FAULT: {fault}"));
    format!(
        "cell {}  {:.0} s, {} flows, loss {}, {times:.1} times over ({which}){fault}",
        title(result).replace(" | ", "  "),
        result.seconds,
        result.flows,
        errors(AT_LOSS),
    )
}

fn cc(result: &CellResult) -> &str {
    result.cell.as_ref().map_or("?", |cell| cell.level("cc"))
}

fn title(result: &CellResult) -> String {
    result.cell.as_ref().map_or_else(String::new, |cell| format!("{} | {}", cell.number, cell.title()))
}

/// All results of these congestion controls.
fn of<'a>(results: &'a [&'a CellResult], ccs: &'a [&str]) -> impl Iterator<Item = &'a CellResult> {
    results.iter().copied().filter(move |result| ccs.contains(&cc(result)))
}

/// Their errors of some kinds.
fn errors(results: &[&CellResult], ccs: &[&str], kinds: &[&str]) -> Vec<f32> {
    let all = of(results, ccs).flat_map(|result| kinds.iter().filter_map(|kind| result.errors.get(*kind)));
    all.flat_map(|errors| errors.values.clone()).collect()
}

/// Median and 95th percentile as text.
fn pair(errors: impl IntoIterator<Item = f32>) -> String {
    let found = quantiles(errors);
    found.map_or("-".to_owned(), |(median, p95)| format!("{:.1} / {:.1}", median * 100.0, p95 * 100.0))
}

fn share(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 / all as f64 * 100.0) }
}

/// How many times over its target a cell is in its worst figure; 1 and less: within.
fn badness(result: &CellResult) -> (f64, String) {
    let mut worst = (0.0, String::new());
    for target in TARGETS.iter().filter(|target| target.is_ranked()) {
        let Some((median, p95)) = quantiles(errors(&[result], target.of, target.kinds)) else { continue };
        for (ratio, which) in [(median / target.median, "median"), (p95 / target.p95, "p95")] {
            if ratio > worst.0 {
                worst = (ratio, format!("{which} of: {}", target.name));
            }
        }
    }
    worst
}

fn targets(results: &[&CellResult]) -> String {
    let row = |target: &Target| {
        let all = errors(results, target.of, target.kinds);
        let met =
            quantiles(all.iter().copied()).is_some_and(|(median, p95)| median <= target.median && p95 <= target.p95);
        let holed: Vec<String> = target.kinds.iter().map(|kind| format!("{kind}_tap_loss")).collect();
        let holed: Vec<&str> = holed.iter().map(String::as_str).collect();
        format!(
            "{} | {} | {} | {:.0} / {:.0} | {} | {}",
            target.name,
            pair(all.iter().copied()),
            all.len(),
            target.median * 100.0,
            target.p95 * 100.0,
            match (target.is_ranked(), met) {
                (false, _) => "not the target's figure",
                (true, true) => "yes",
                (true, false) => "**no**",
            },
            pair(errors(results, target.of, &holed)),
        )
    };
    let flows = sum(results.iter().map(|result| &result.retransmissions));
    format!(
        "\n## Errors against the targets\n\nAbsolute relative errors, median / p95 in %; below one segment counts as none. The last column \
         is of the same captures with 1 % of their packets lost at the tap.\n\n{}\nRetransmissions equal to the kernel's count in {} of {} flows (target 99 %).\n",
        table("figure | errors | samples | target | met | tap loses 1 %", TARGETS.iter().map(row)),
        share(flows.joined, flows.truth),
        flows.truth
    )
}

// The first tables of the page: estimates of networks against the truth, and the samples behind them.

/// Part of the truth within which an estimate of Reno and CUBIC has to be, and one of BBR.
const WITHIN: f64 = 0.05;
const WITHIN_BBR: f64 = 0.2;
/// Samples and connections below which no network has an estimate.
const SAMPLES_LEAST: u64 = 3;
const CONNECTIONS_LEAST: u64 = 2;

/// Networks that have something in common: a name, a factor, and levels of it.
const GROUPS: [(&str, &str, &[&str]); 12] = [
    ("all", "", &[]),
    ("16 flows", "flows", &["16"]),
    ("4 flows", "flows", &["4"]),
    ("1 flow", "flows", &["1"]),
    ("behind a receiver", "work", &["receiver"]),
    ("steady", "work", &["steady"]),
    ("paced hosts", "pacing", &["paced"]),
    ("windows kept when idle", "idle", &["kept"]),
    ("Nagle", "writes", &["nagle"]),
    ("seen from midstream", "start", &["midstream"]),
    ("path changes", "change", &["rtt", "mtu"]),
    ("5 ms", "rtt", &["5ms"]),
];

/// Whether an estimate is right: an error below one segment counts as none, as everywhere.
fn is_within(estimate: f64, truth: f64, part: f64) -> bool {
    (estimate - truth).abs() < 1.0 || (estimate / truth - 1.0).abs() <= part
}

/// The table that the page begins with.
fn estimates(results: &[&CellResult]) -> String {
    let row = |(name, factor, levels): &(&str, &str, &[&str])| {
        let is_in = |result: &&&CellResult| {
            levels.is_empty() || result.cell.as_ref().is_some_and(|cell| levels.contains(&cell.level(factor)))
        };
        let here: Vec<&CellResult> = results.iter().filter(is_in).copied().collect();
        let networks = |ccs| of(&here, ccs).map(|result| &result.network).collect::<Vec<_>>();
        let (loss_based, bbr) = (networks(LOSS_BASED), networks(BBR));
        let asked = loss_based.iter().filter(|network| {
            network.kernel_samples >= SAMPLES_LEAST && network.kernel_connections >= CONNECTIONS_LEAST
        });
        let robust = |network: &NetworkResult| network.by_default.filter(|(_, bound)| !bound).map(|(share, _)| share);
        let bound = |network: &NetworkResult| network.by_default.filter(|(_, bound)| *bound).map(|(share, _)| share);
        let columns = [
            part(asked, |network| Some(network.by_default.is_some())),
            part(&loss_based, |network| Some(is_within(network.estimate?, network.same_instants?, WITHIN))),
            part(&loss_based, |network| Some(is_within(robust(network)?, network.losses?, WITHIN))),
            part(loss_based.iter().chain(&bbr), |network| Some(bound(network)? < network.bound? + 1.0)),
            part(&bbr, |network| network.carried.map(|_| network.by_default.is_some())),
            part(&bbr, |network| Some(is_within(robust(network)?, network.carried?, WITHIN_BBR))),
        ];
        format!("{name} | {}", columns.join(" | "))
    };
    let values = errors(results, BBR, &["share_bbr"]);
    let near = values.iter().filter(|off| f64::from(off.abs()) <= WITHIN_BBR).count();
    let mut samples = vec![format!(
        "BBR's share at samples: median / p95 in %; within 20 % | {}; {} of {}",
        pair(values.iter().copied()),
        share(near as u64, values.len() as u64),
        values.len()
    )];
    for name in LOSS_BASED {
        let losses = sum(of(results, &[name]).filter_map(|result| result.samples.get("loss")));
        samples.push(format!(
            "loss samples too many, {name} | {} of {} ({} of the kernel's {} missing)",
            losses.seen.saturating_sub(losses.joined),
            losses.seen,
            losses.truth - losses.joined,
            losses.truth
        ));
    }
    let columns = "networks | an estimate by `robust`, of those asked for | `spand` right | `robust` right | lower bounds: not above | BBR: \
                   an estimate | right";
    format!(
        "## Estimate of a network against the truth\n\nAt each cell's end. Asked for: where the kernel's windows give three samples of two \
         connections by losses and ends; of BBR, where it measured a rate. Right is within 5 % or a segment: `spand` of the mean of the \
         kernel's windows at the same instants, `robust` (the default) of their mean at losses; BBR within 20 % of delivery rate times \
         smallest round trip. Lower bounds: `robust` where there is nothing to average, and not above the largest of the \
         kernel's.\n\n{}\n{}",
        table(columns, GROUPS.iter().map(row)),
        table("samples | ", samples)
    )
}

/// How many of those that can be asked are right.
fn part<'a>(
    networks: impl IntoIterator<Item = &'a &'a NetworkResult>,
    is_right: impl Fn(&NetworkResult) -> Option<bool>,
) -> String {
    let answers: Vec<bool> = networks.into_iter().filter_map(|network| is_right(network)).collect();
    if answers.is_empty() {
        return "-".to_owned();
    }
    format!("{} of {}", answers.iter().filter(|right| **right).count(), answers.len())
}

/// Part of the truth within which a mixed network's share has to be, and the confidence that means it.
const WITHIN_MIXED: f64 = 0.2;
const SURE: f64 = 0.8;

/// Networks with the web's traffic: the default rule against the truth, by kind, and what confidence means.
fn mixed(results: &[&CellResult]) -> String {
    let of_kind = |result: &CellResult| Some(result.cell.as_ref()?.levels.get("kind")?.clone());
    let mut kinds: Vec<String> = results.iter().filter_map(|result| of_kind(result)).collect();
    kinds.sort();
    kinds.dedup();
    if kinds.is_empty() {
        return String::new();
    }
    let mut rows = Vec::new();
    for (name, ccs) in [("Reno, CUBIC", LOSS_BASED), ("BBR", BBR)] {
        for kind in std::iter::once("all").chain(kinds.iter().map(String::as_str)) {
            let here = of(results, ccs).filter(|result| of_kind(result).is_some_and(|of| kind == "all" || of == kind));
            rows.push(format!(
                "{name}: {kind} | {}",
                mixed_row(&here.map(|result| &result.network).collect::<Vec<_>>())
            ));
        }
    }
    let sure: Vec<f64> = results
        .iter()
        .filter(|result| of_kind(result).is_some() && result.network.confidence > Some(SURE))
        .filter_map(|result| error(&result.network).filter(|(_, bound)| !bound).map(|(error, _)| error))
        .collect();
    let right = sure.iter().filter(|error| error.abs() <= WITHIN_MIXED).count();
    format!(
        "## Mixed traffic\n\nThe default rule against the mean over addresses of the kernel's windows at losses, of BBR of delivery rate \
         times smallest round trip. Right: within 20 %. A lower bound is right where it is not above the truth by more.\n\n{}\nOf {} shares \
         with a confidence above {SURE}, {right} are right.\n\n",
        table("networks | share given | right | error: median; worst below, above | lower bounds: right", rows),
        sure.len()
    )
}

/// An estimate over the truth, less one, and whether it is a lower bound.
fn error(network: &NetworkResult) -> Option<(f64, bool)> {
    let (share, is_bound) = network.by_default?;
    Some((share / network.by_address? - 1.0, is_bound))
}

fn mixed_row(networks: &[&NetworkResult]) -> String {
    let errors: Vec<(f64, bool)> = networks.iter().filter_map(|network| error(network)).collect();
    let asked = networks.iter().filter(|network| network.by_address.is_some()).count();
    let of = |bound| -> Vec<f64> { errors.iter().filter(|(_, is)| *is == bound).map(|(error, _)| *error).collect() };
    let (mut shares, bounds) = (of(false), of(true));
    shares.sort_by(f64::total_cmp);
    let right = shares.iter().filter(|error| error.abs() <= WITHIN_MIXED).count();
    let percent = |error: Option<&f64>| error.map_or("-".to_owned(), |error| format!("{:+.0} %", error * 100.0));
    let below = bounds.iter().filter(|error| **error <= WITHIN_MIXED).count();
    format!(
        "{} of {asked} | {right} | {}; {}, {} | {below} of {}",
        shares.len(),
        percent(shares.get(shares.len() / 2)),
        percent(shares.first()),
        percent(shares.last()),
        bounds.len()
    )
}

// What the gateway calls by a name: congestion events, what limits a sender, its congestion control.

fn events(results: &[&CellResult]) -> String {
    let row = |name: &&str| {
        let of = |kind: &str| -> Found { sum(of(results, &[name]).filter_map(|result| result.events.get(kind))) };
        let recall = |kind: &str| format!("{} of {}", share(of(kind).joined, of(kind).truth), of(kind).truth);
        let right = of("recovery").joined + of("reduction").joined;
        let wrong = of("false recovery or reduction").seen;
        let (right_timeouts, wrong_timeouts) = (of("timeout").joined, of("false timeout").seen);
        format!(
            "{name} | {} | {} | {} | {wrong} (precision {}) | {wrong_timeouts} (precision {})",
            recall("recovery"),
            recall("timeout"),
            recall("reduction"),
            share(right, right + wrong),
            share(right_timeouts, right_timeouts + wrong_timeouts),
        )
    };
    let columns = "cc | recovery: recall | timeout: recall | reduction (marks, repaired tails): recall | false recoveries or reductions | \
                   false timeouts";
    format!("\n## Congestion events\n\n{}", table(columns, EVERY.iter().map(row)))
}

fn limits(results: &[&CellResult]) -> String {
    let mut text = "\n## What limits the sender\n\nEvery 100 ms with data in flight, over the round trip before: the kernel's clocks and \
                    flags (rows) against the gateway's word.\n"
        .to_owned();
    let columns = ["window", "receiver", "application", "unknown"];
    for (heading, ccs) in [("reno and cubic", LOSS_BASED), ("bbr", BBR)] {
        let rows = ["window", "receiver", "application", "pacing"].map(|row| {
            let count = |column: &str| -> u64 {
                of(results, ccs).filter_map(|result| result.limits.get(row)?.get(column)).sum()
            };
            let counts = columns.map(count);
            // A paced sender's limit is its congestion control: the gateway has no word of its own for it.
            let right = if row == "pacing" { count("window") } else { count(row) };
            let cells = counts.map(|count| count.to_string()).join(" | ");
            format!("{row} | {cells} | {}", share(right, counts.iter().sum()))
        });
        page::add(
            &mut text,
            &format!("\n{}", table(&format!("{heading}: kernel | {} | recall", columns.join(" | ")), rows)),
        );
    }
    text
}

fn flavours(results: &[&CellResult]) -> String {
    let names =
        [CongestionControl::LossBased, CongestionControl::Bbr, CongestionControl::Unknown].map(CongestionControl::name);
    let row = |kernel: &&str| {
        let of = |which: fn(&CellResult) -> &BTreeMap<String, u64>| {
            names.map(|name| -> u64 { of(results, &[kernel]).filter_map(|result| which(result).get(name)).sum() })
        };
        let right = |counts: [u64; 3]| {
            let right =
                names.iter().zip(counts).filter(|(name, _)| **name == control(kernel)).map(|(_, count)| count).sum();
            share(right, counts.iter().sum())
        };
        let (counts, telling) = (of(|result| &result.flavours), of(|result| &result.telling_flavours));
        format!(
            "{kernel} | {} | {} | {} | {} of {}",
            counts.map(|count| count.to_string()).join(" | "),
            right(counts),
            right(of(|result| &result.own_flavours)),
            right(telling),
            telling.iter().sum::<u64>()
        )
    };
    format!(
        "\n## Congestion control found out\n\nFlows with three events or five seconds, at their last moment. Right: from the flow's own \
         packets or else from other flows of its host; from its own packets alone; the first, of the flows whose congestion control can be \
         distinguished: a loss or mark met a window of five segments or more, and in the open state after it there was more to \
         send.\n\n{}",
        table(&format!("kernel | {} | right | own | of the distinguishable", names.join(" | ")), EVERY.iter().map(row))
    )
}

/// Errors of the window in cells with one difficulty or none: where to look first.
fn by_difficulty(results: &[&CellResult]) -> String {
    let mut groups: BTreeMap<String, Vec<&CellResult>> = BTreeMap::new();
    for result in results {
        let mut difficulties = result.cell.as_ref().map(Cell::difficulties).unwrap_or_default();
        let one = difficulties.pop().unwrap_or_else(|| "none".to_owned());
        if difficulties.is_empty() {
            groups.entry(one).or_default().push(result);
        }
    }
    let row = |(name, group): (&String, &Vec<&CellResult>)| {
        let cell = |(of_cc, kinds): (&str, &[&str])| {
            format!("{} ({})", pair(errors(group, &[of_cc], kinds)), of(group, &[of_cc]).count())
        };
        let columns = [("reno", AT_LOSS), ("cubic", AT_LOSS), ("bbr", &["share_bbr"])];
        format!("{name} | {}", columns.map(cell).join(" | "))
    };
    format!(
        "\n## By difficulty\n\nCells with one difficulty or none: window at losses, of BBR the share; median / p95 in % (cells).\n\n{}",
        table("difficulty | reno | cubic | bbr", groups.iter().map(row))
    )
}

fn plots(page: &Path, results: &[&CellResult]) -> Result<String> {
    let mut text = "\n## Plots\n".to_owned();
    for (file, what, ccs) in
        [("accuracy-loss-based.svg", "Reno and CUBIC", LOSS_BASED), ("accuracy-bbr.svg", "BBR", BBR)]
    {
        let series = TARGETS.iter().filter(|target| target.of == ccs).take(6).map(|target| {
            let name = target.name.split(',').next().unwrap_or_default();
            let all = errors(results, ccs, target.kinds).into_iter().map(|value| f64::from(value.abs()) * 100.0);
            (name.chars().take(24).collect(), all.collect())
        });
        let svg = distribution(&format!("Errors against the kernel, {what}"), "error", &series.collect::<Vec<_>>())?;
        page::write(&page.with_file_name(file), &svg)?;
        writeln!(text, "\n![errors, {what}]({file})")?;
    }
    text += &page::plot(page, "accuracy-confidence.svg", "confidence against error", &confidence(results))?;
    Ok(text)
}

/// The default rule's error by its confidence, on networks with the web's traffic.
fn confidence(results: &[&CellResult]) -> Plot {
    /// Percent that the plot shows.
    const SHOWN: f64 = 100.0;
    let points = |ccs| {
        let of = of(results, ccs).filter_map(|result| {
            let (error, is_bound) = error(&result.network)?;
            Some((result.network.confidence?, (error * 100.0).min(SHOWN))).filter(|_| !is_bound)
        });
        of.collect::<Vec<_>>()
    };
    let series = |name: &str, mark, colour, points| Series { name: name.to_owned(), mark, colour, points };
    let limit = |name, percent| series(name, Mark::Line, 5, vec![(0.0, percent), (1.0, percent)]);
    Plot {
        title: "Error of shares by their confidence".to_owned(),
        x: Axis::new("confidence", "").within(0.0, 1.0),
        y: Axis::new("share against the kernel's account", "%").within(-SHOWN, SHOWN),
        series: vec![
            limit("20 % too large", 20.0),
            limit("20 % too small", -20.0),
            series("Reno and CUBIC", Mark::Dots, 0, points(LOSS_BASED)),
            series("BBR", Mark::Dots, 1, points(BBR)),
        ],
    }
}

fn faults(results: &[CellResult]) -> String {
    let rows = results.iter().filter_map(|result| {
        let fault = result.fault.as_deref()?;
        Some(format!("{} | {fault} | {} | {:.1}", title(result), result.tries, result.health.load))
    });
    let table = table("cell | what | fault | tries | load", rows);
    if table.is_empty() { table } else { format!("\n## Cells that count for nothing\n\n{table}") }
}

fn every_cell(results: &[&CellResult]) -> String {
    let row = |result: &&CellResult| {
        let found = sum(result.events.values());
        let (times, which) = badness(result);
        let late = result.health.late_1ms as f64 / result.health.delivered.max(1) as f64 * 100.0;
        let text = format!(
            "{} | {times:.1}: {which} | {:.0} | {} | {} | {} of {} | {} | {:.0}, {late:.2}, {:.1}",
            title(result),
            result.seconds,
            result.flows,
            pair(errors(&[result], EVERY, AT_LOSS)),
            found.joined,
            found.truth,
            list(result.flavours.iter().map(|(name, count)| format!("{name} {count}"))),
            result.health.late_mean_us,
            result.health.load,
        );
        (times, text)
    };
    let columns = "cell | what | times over the target, in | s | flows | at loss | events | control | path, load";
    let rows = results.iter().map(row).collect();
    format!(
        "\n## Every cell\n\nThe worst first. Median / p95 in %; events: joined of the kernel's; control: the gateway's words for it; path: \
         mean lateness in us, packets over 1 ms late in %, the machine's load.\n\n{}",
        sorted(columns, rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(cc: &str, work: &str, network: NetworkResult) -> CellResult {
        let levels = [("cc", cc), ("work", work)].map(|(factor, level)| (factor.to_owned(), level.to_owned()));
        let cell = Cell { number: 0, seed: 1, levels: levels.into() };
        CellResult { cell: Some(cell), network, ..CellResult::default() }
    }

    #[test]
    fn networks_are_counted_by_what_they_have_in_common() {
        let network = NetworkResult {
            estimate: Some(20.9),
            same_instants: Some(20.0),
            kernel_samples: 3,
            kernel_connections: 2,
            losses: Some(20.0),
            by_default: Some((30.0, false)),
            ..NetworkResult::default()
        };
        let silent = NetworkResult { kernel_samples: 9, kernel_connections: 2, ..NetworkResult::default() };
        let bound = NetworkResult { bound: Some(20.0), by_default: Some((20.0, true)), ..NetworkResult::default() };
        let bbr = NetworkResult { carried: Some(10.0), by_default: Some((12.0, false)), ..NetworkResult::default() };
        let results = [
            result("reno", "bulk", network),
            result("cubic", "bulk", silent),
            result("cubic", "receiver", bound),
            result("bbr", "bulk", bbr),
        ];
        let text = estimates(&results.iter().collect::<Vec<_>>());
        assert!(text.contains("| all | 1 of 2 | 1 of 1 | 0 of 1 | 1 of 1 | 1 of 1 | 1 of 1 |"), "{text}");
        assert!(text.contains("| behind a receiver | - | - | - | 1 of 1 | - | - |"), "{text}");
    }

    #[test]
    fn mixed_networks_are_held_against_the_mean_over_addresses() {
        let network = |share: f64, bound, confidence| NetworkResult {
            by_default: Some((share, bound)),
            by_address: Some(100.0),
            confidence: Some(confidence),
            ..NetworkResult::default()
        };
        let of = |cc, network| {
            let mut result = result(cc, "web", network);
            result.cell.as_mut().unwrap().levels.insert("kind".to_owned(), "wifi".to_owned());
            result
        };
        let silent = NetworkResult { by_address: Some(100.0), ..NetworkResult::default() };
        let results = [
            of("cubic", network(85.0, false, 0.9)),
            of("reno", network(60.0, false, 0.9)),
            of("cubic", network(125.0, true, 0.9)),
            of("bbr", network(110.0, false, 0.5)),
            of("bbr", silent),
        ];
        let text = mixed(&results.iter().collect::<Vec<_>>());
        assert!(text.contains("| Reno, CUBIC: wifi | 2 of 3 | 1 | -15 %; -40 %, -15 % | 0 of 1 |"), "{text}");
        assert!(text.contains("| BBR: all | 1 of 2 | 1 | +10 %; +10 %, +10 % | 0 of 0 |"), "{text}");
        assert!(text.contains("Of 2 shares with a confidence above 0.8, 1 are right."), "{text}");
    }

    #[test]
    fn less_than_a_segment_or_a_twentieth_is_right() {
        assert!(is_within(3.9, 3.0, WITHIN) && is_within(104.0, 100.0, WITHIN));
        assert!(!is_within(106.0, 100.0, WITHIN));
    }
}
