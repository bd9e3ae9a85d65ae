//! Tables and plots of what the cells gave, worst cells first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::compare::sum;
use super::factors::{ALL, Cell};
use super::result::{CellResult, Found, quantiles};
use super::svg;

/// Rows of the table of worst cells.
const WORST_CELLS: usize = 40;

/// A figure with its target: median and 95th percentile of the absolute relative error.
struct Target {
    name: &'static str,
    kinds: &'static [&'static str],
    /// Congestion controls it is asked of.
    of: &'static [&'static str],
    median: f64,
    p95: f64,
    /// It counts in the order of cells: the figure is the target's own.
    ranks: bool,
}

const LOSS_BASED: &[&str] = &["reno", "cubic"];
const EVERY: &[&str] = &["reno", "cubic", "bbr"];

const TARGETS: &[Target] = &[
    Target {
        name: "window at a loss in congestion avoidance",
        kinds: &["sample_loss", "sample_ecn"],
        of: LOSS_BASED,
        median: 0.01,
        p95: 0.04,
        ranks: true,
    },
    Target {
        name: "window every 100 ms, bulk and receiver-limited",
        kinds: &["window_bulk"],
        of: LOSS_BASED,
        median: 0.01,
        p95: 0.05,
        ranks: true,
    },
    Target {
        name: "window every 100 ms, application-limited and short",
        kinds: &["window_app"],
        of: LOSS_BASED,
        median: 0.02,
        p95: 0.15,
        ranks: true,
    },
    Target {
        name: "window at the last new byte, window-limited",
        kinds: &["window_last_byte"],
        of: LOSS_BASED,
        median: 0.01,
        p95: 0.05,
        ranks: true,
    },
    Target {
        name: "bbr: window every 100 ms",
        kinds: &["window_bulk", "window_app"],
        of: &["bbr"],
        median: 0.04,
        p95: 0.15,
        ranks: true,
    },
    Target {
        name: "bbr: share (delivery rate x min RTT) at samples",
        kinds: &["share_bbr"],
        of: &["bbr"],
        median: 0.05,
        p95: 0.15,
        ranks: true,
    },
    Target { name: "mean RTT of a flow", kinds: &["rtt_mean"], of: EVERY, median: 0.01, p95: 0.05, ranks: false },
    Target { name: "smallest RTT of a flow", kinds: &["rtt_min"], of: EVERY, median: 0.01, p95: 0.05, ranks: false },
    Target {
        name: "sample: loss-free end",
        kinds: &["sample_end"],
        of: LOSS_BASED,
        median: 0.01,
        p95: 0.05,
        ranks: true,
    },
    Target {
        name: "sample: lower bound, application",
        kinds: &["sample_end_app_limited"],
        of: LOSS_BASED,
        median: 0.02,
        p95: 0.15,
        ranks: true,
    },
    Target {
        name: "sample: lower bound, receiver",
        kinds: &["sample_end_receiver_limited"],
        of: LOSS_BASED,
        median: 0.02,
        p95: 0.15,
        ranks: true,
    },
];

/// Makes the text of the results page, and writes its plots beside it (names begin with `accuracy-`).
pub fn write(page: &Path, header: &str, planned: usize, results: &[CellResult]) -> Result<()> {
    let directory = page.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let sound: Vec<&CellResult> = results.iter().filter(|result| result.fault.is_none()).collect();
    let mut text = format!("# How right the gateway is, on real kernels\n\n{header}\n\n");
    let faulty = results.len() - sound.len();
    writeln!(
        text,
        "{} of {planned} cells ran; {faulty} of them count for nothing, since their path or record was off.\n",
        results.len()
    )?;
    worst_cells(&mut text, &sound)?;
    targets(&mut text, &sound)?;
    events(&mut text, &sound)?;
    limits(&mut text, &sound)?;
    flavours(&mut text, &sound)?;
    networks(&mut text, &sound)?;
    by_state(&mut text, &sound)?;
    by_level(&mut text, &sound)?;
    plots(&mut text, directory, &sound)?;
    without(&mut text, &sound)?;
    faults(&mut text, results)?;
    every_cell(&mut text, &sound)?;
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

fn cc(result: &CellResult) -> &str {
    result.cell.as_ref().map_or("?", |cell| cell.level("cc"))
}

fn title(result: &CellResult) -> String {
    result.cell.as_ref().map_or_else(String::new, |cell| format!("{} | {}", cell.number, cell.title()))
}

fn pooled(results: &[&CellResult], target: &Target) -> Vec<f32> {
    let of = results.iter().filter(|result| target.of.contains(&cc(result)));
    of.flat_map(|result| values(result, target.kinds)).collect()
}

fn values(result: &CellResult, kinds: &[&str]) -> Vec<f32> {
    kinds.iter().filter_map(|kind| result.errors.get(*kind)).flat_map(|errors| errors.values.clone()).collect()
}

/// Median and 95th percentile as text.
fn pair(quantiles: Option<(f64, f64)>) -> String {
    quantiles.map_or("-".to_owned(), |(median, p95)| format!("{:.1} / {:.1}", median * 100.0, p95 * 100.0))
}

fn share(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 / all as f64 * 100.0) }
}

/// How many times over its target a cell is in its worst figure; 1 and less: within.
pub fn badness(result: &CellResult) -> (f64, String) {
    let mut worst = (0.0, String::new());
    for target in TARGETS.iter().filter(|target| target.ranks && target.of.contains(&cc(result))) {
        let Some((median, p95)) = quantiles(values(result, target.kinds)) else { continue };
        for (ratio, which) in [(median / target.median, "median"), (p95 / target.p95, "p95")] {
            if ratio > worst.0 {
                worst = (ratio, format!("{which} of: {}", target.name));
            }
        }
    }
    worst
}

fn worst_cells(text: &mut String, results: &[&CellResult]) -> Result<()> {
    let mut by_badness: Vec<_> = results.iter().map(|result| (badness(result), result)).collect();
    by_badness.sort_by(|a, b| b.0.0.total_cmp(&a.0.0));
    let over = by_badness.iter().filter(|(badness, _)| badness.0 > 1.0).count();
    writeln!(
        text,
        "## Worst cells\n\n{over} of {} cells miss at least one target for errors. Errors: median / p95 in %.\n",
        results.len()
    )?;
    writeln!(
        text,
        "| cell | what | times over | in | window | at loss | last byte | worst moment (kernel, gateway, state, s) |"
    )?;
    writeln!(text, "| --- | --- | --- | --- | --- | --- | --- | --- |")?;
    for ((times, which), result) in by_badness.iter().take(WORST_CELLS) {
        let moment = result.worst.first().map_or("-".to_owned(), |worst| {
            format!("{:.0}, {:.1}, {}, {:.1}", worst.kernel, worst.engine, worst.state, worst.at_s)
        });
        writeln!(
            text,
            "| {} | {times:.1} | {which} | {} | {} | {} | {moment} |",
            title(result),
            pair(quantiles(values(result, &["window_bulk", "window_app"]))),
            pair(quantiles(values(result, &["sample_loss", "sample_ecn"]))),
            pair(quantiles(values(result, &["window_last_byte"]))),
        )?;
    }
    Ok(())
}

fn targets(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Errors against the targets\n\nAbsolute relative errors, median / p95 in %; below one segment counts as none. The last column is of the same captures with 1 % of their packets lost at the tap.\n"
    )?;
    writeln!(
        text,
        "| figure | errors | samples | cells | target | met | tap loses 1 % |\n| --- | --- | --- | --- | --- | --- | --- |"
    )?;
    for target in TARGETS {
        let all = pooled(results, target);
        let cells = results
            .iter()
            .filter(|result| target.of.contains(&cc(result)) && !values(result, target.kinds).is_empty())
            .count();
        let found = quantiles(all.iter().copied());
        let met = found.is_some_and(|(median, p95)| median <= target.median && p95 <= target.p95);
        let holed: Vec<String> = target.kinds.iter().map(|kind| format!("{kind}_tap_loss")).collect();
        let of = results.iter().filter(|result| target.of.contains(&cc(result)));
        let holed: Vec<f32> =
            of.flat_map(|result| values(result, &holed.iter().map(String::as_str).collect::<Vec<_>>())).collect();
        writeln!(
            text,
            "| {} | {} | {} | {cells} | {:.0} / {:.0} | {} | {} |",
            target.name,
            pair(found),
            all.len(),
            target.median * 100.0,
            target.p95 * 100.0,
            match (target.ranks, met) {
                (false, _) => "not the target's figure",
                (true, true) => "yes",
                (true, false) => "**no**",
            },
            pair(quantiles(holed)),
        )?;
    }
    let open = Target {
        name: "",
        kinds: &["window_bulk_open", "window_app_open"],
        of: LOSS_BASED,
        median: 0.0,
        p95: 0.0,
        ranks: true,
    };
    writeln!(text, "\nOutside recovery, reno and cubic, every 100 ms: {} %.", pair(quantiles(pooled(results, &open))))?;
    let flows = sum(results.iter().map(|result| &result.retransmissions));
    writeln!(
        text,
        "Retransmissions equal to the kernel's count in {} of {} flows (target 99 %).",
        share(flows.joined, flows.truth),
        flows.truth
    )?;
    Ok(())
}

fn events(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Congestion events\n\n| cc | recovery: recall | timeout: recall | reduction (marks, repaired tails): recall | false recoveries or reductions | false timeouts |\n| --- | --- | --- | --- | --- | --- |"
    )?;
    for name in EVERY {
        let of = |kind: &str| {
            let found: Vec<Found> =
                results.iter().filter(|r| cc(r) == *name).filter_map(|r| r.events.get(kind).copied()).collect();
            sum(&found)
        };
        let recall = |kind: &str| {
            let found = of(kind);
            format!("{} of {}", share(found.joined, found.truth), found.truth)
        };
        let right = of("recovery").joined + of("reduction").joined;
        let wrong = of("false recovery or reduction").seen;
        let (right_timeouts, wrong_timeouts) = (of("timeout").joined, of("false timeout").seen);
        writeln!(
            text,
            "| {name} | {} | {} | {} | {wrong} (precision {}) | {wrong_timeouts} (precision {}) |",
            recall("recovery"),
            recall("timeout"),
            recall("reduction"),
            share(right, right + wrong),
            share(right_timeouts, right_timeouts + wrong_timeouts),
        )?;
    }
    writeln!(text, "\n| window samples | the kernel's | joined | the gateway's |\n| --- | --- | --- | --- |")?;
    for kind in ["loss", "end", "lower bound"] {
        let found = sum(results.iter().filter_map(|result| result.samples.get(kind)));
        writeln!(text, "| {kind} | {} | {} | {} |", found.truth, found.joined, found.seen)?;
    }
    Ok(())
}

fn limits(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## What limits the sender\n\nEvery 100 ms with data in flight, over the round trip before: the kernel's clocks and flags (rows) against the gateway's word.\n"
    )?;
    let columns = ["window", "receiver", "application", "unknown"];
    for (heading, ccs) in [("reno and cubic", LOSS_BASED), ("bbr", &["bbr"] as &[&str])] {
        writeln!(
            text,
            "| {heading}: kernel | {} | recall |\n| --- | --- | --- | --- | --- | --- |",
            columns.join(" | ")
        )?;
        for row in ["window", "receiver", "application", "pacing"] {
            let count = |column: &str| -> u64 {
                let of = results.iter().filter(|result| ccs.contains(&cc(result)));
                of.filter_map(|result| result.limits.get(row)?.get(column)).sum()
            };
            let counts = columns.map(count);
            // A paced sender's limit is its congestion control: the gateway has no word of its own for it.
            let right = if row == "pacing" { count("window") } else { count(row) };
            let cells = counts.map(|count| count.to_string()).join(" | ");
            writeln!(text, "| {row} | {cells} | {} |", share(right, counts.iter().sum()))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn flavours(text: &mut String, results: &[&CellResult]) -> Result<()> {
    let names = ["reno", "cubic", "bbr", "unknown"];
    writeln!(
        text,
        "## Congestion control found out\n\nFlows with three events or five seconds, at their last moment.\n\n| kernel | {} | right |\n| --- | --- | --- | --- | --- | --- |",
        names.join(" | ")
    )?;
    for kernel in EVERY {
        let count = |name: &str| -> u64 {
            results.iter().filter(|r| cc(r) == *kernel).filter_map(|r| r.flavours.get(name)).sum()
        };
        let counts = names.map(count);
        let cells = counts.map(|count| count.to_string()).join(" | ");
        writeln!(text, "| {kernel} | {cells} | {} |", share(count(kernel), counts.iter().sum()))?;
    }
    Ok(())
}

fn networks(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Networks\n\nThe rule `spand` at each cell's end, in segments, against the mean of the kernel's windows at the same instants and against what a perfect observer would have sampled. BBR left out: its window is no share.\n"
    )?;
    writeln!(
        text,
        "| cell | what | estimate | same instants | off | perfect | off | samples |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    )?;
    let off = |estimate: f64, truth: Option<f64>| truth.map(|truth| estimate / truth - 1.0);
    let percent = |off: Option<f64>| off.map_or("-".to_owned(), |off| format!("{:+.1} %", off * 100.0));
    let with = results.iter().filter(|r| cc(r) != "bbr");
    let mut rows: Vec<_> = with.filter_map(|r| r.network.estimate.map(|estimate| (estimate, *r))).collect();
    rows.sort_by(|a, b| {
        let size = |(estimate, r): &(f64, &CellResult)| off(*estimate, r.network.same_instants).unwrap_or(0.0).abs();
        size(b).total_cmp(&size(a))
    });
    let within = |limit: f64| {
        rows.iter().filter(|(e, r)| off(*e, r.network.same_instants).is_some_and(|off| off.abs() <= limit)).count()
    };
    let count = rows.len();
    for (estimate, result) in rows.iter().take(20) {
        let network = &result.network;
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        writeln!(
            text,
            "| {} | {estimate:.1} | {} | {} | {} | {} | {} |",
            title(result),
            number(network.same_instants),
            percent(off(*estimate, network.same_instants)),
            number(network.perfect),
            percent(off(*estimate, network.perfect)),
            network.samples
        )?;
    }
    writeln!(text, "\nThe worst 20 of {count}; within 5 % of the same instants: {} of {count}.", within(0.05))?;
    Ok(())
}

/// Errors of the window by what the kernel was doing.
fn by_state(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## By the sender's state\n\nWindow every 100 ms and at the last new byte, median / p95 in % (samples).\n"
    )?;
    writeln!(text, "| kernel | reno | cubic | bbr |\n| --- | --- | --- | --- |")?;
    let states = ["in_open", "in_disorder", "in_cwr", "in_recovery", "in_loss"];
    let holds = ["held_by_window", "held_by_receiver", "held_by_application", "held_by_pacing"];
    for kind in states.into_iter().chain(holds) {
        let cell = |name: &str| {
            let of = results.iter().filter(|result| cc(result) == name);
            let all: Vec<f32> = of.flat_map(|result| values(result, &[kind])).collect();
            let count = all.len();
            format!("{} ({count})", pair(quantiles(all)))
        };
        writeln!(text, "| {} | {} | {} | {} |", kind.replace('_', " "), cell("reno"), cell("cubic"), cell("bbr"))?;
    }
    Ok(())
}

/// Errors of the window by level of each factor: where to look first.
fn by_level(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## By level\n\nWindow every 100 ms and at losses, median / p95 in %, over all cells at a level. Reno and cubic; BBR's window beside them.\n"
    )?;
    writeln!(
        text,
        "| factor | level | cells | window | at loss | bbr: window |\n| --- | --- | --- | --- | --- | --- |"
    )?;
    for factor in &ALL {
        for (level, _) in factor.levels {
            let here: Vec<&CellResult> = results
                .iter()
                .copied()
                .filter(|r| r.cell.as_ref().is_some_and(|cell| cell.is(factor.name, level)))
                .collect();
            let of = |kinds: &'static [&'static str], of| {
                pair(quantiles(pooled(&here, &Target { name: "", kinds, of, median: 0.0, p95: 0.0, ranks: true })))
            };
            writeln!(
                text,
                "| {} | {level} | {} | {} | {} | {} |",
                factor.name,
                here.len(),
                of(&["window_bulk", "window_app"], LOSS_BASED),
                of(&["sample_loss", "sample_ecn"], LOSS_BASED),
                of(&["window_bulk", "window_app"], &["bbr"]),
            )?;
        }
    }
    Ok(())
}

fn plots(text: &mut String, directory: &Path, results: &[&CellResult]) -> Result<()> {
    let series = |of: &'static [&'static str]| -> Vec<(String, Vec<f64>)> {
        TARGETS
            .iter()
            .filter(|target| target.of == of)
            .take(6)
            .map(|target| {
                let name = target.name.split(',').next().unwrap_or_default();
                let all = pooled(results, target).into_iter().map(|value| f64::from(value.abs()) * 100.0).collect();
                (name.chars().take(24).collect(), all)
            })
            .collect()
    };
    let write = |name: &str, svg: String| {
        let file = directory.join(name);
        std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))
    };
    write(
        "accuracy-loss-based.svg",
        svg::distribution("Errors of reno and cubic: share of samples at or below", &series(LOSS_BASED)),
    )?;
    write("accuracy-bbr.svg", svg::distribution("Errors of bbr: share of samples at or below", &series(&["bbr"])))?;
    let points: Vec<(f64, f64, usize)> = results
        .iter()
        .filter_map(|r| {
            let series = LOSS_BASED.iter().position(|name| *name == cc(r))?;
            Some((r.network.same_instants?, r.network.estimate?, series))
        })
        .collect();
    let axes = ("mean of the kernel's windows at the same instants (segments)", "the estimate (segments)");
    write("accuracy-networks.svg", svg::scatter("Each network's estimate", axes, &points, LOSS_BASED))?;
    writeln!(
        text,
        "\n## Plots\n\n![errors of reno and cubic](accuracy-loss-based.svg)\n\n![errors of bbr](accuracy-bbr.svg)\n\n![networks](accuracy-networks.svg)"
    )?;
    Ok(())
}

fn without(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Cells without a sample\n\n| figure | cells without | of | because of their level |\n| --- | --- | --- | --- |"
    )?;
    for target in TARGETS {
        let asked: Vec<&CellResult> = results.iter().copied().filter(|r| target.of.contains(&cc(r))).collect();
        let without: Vec<&CellResult> = asked.iter().copied().filter(|r| values(r, target.kinds).is_empty()).collect();
        let mut works: BTreeMap<&str, usize> = BTreeMap::new();
        for result in &without {
            *works.entry(result.cell.as_ref().map_or("?", |cell: &Cell| cell.level("work"))).or_default() += 1;
        }
        let reasons: Vec<String> = works.iter().map(|(work, count)| format!("{work} {count}")).collect();
        writeln!(text, "| {} | {} | {} | {} |", target.name, without.len(), asked.len(), reasons.join(", "))?;
    }
    Ok(())
}

fn faults(text: &mut String, results: &[CellResult]) -> Result<()> {
    let faulty: Vec<&CellResult> = results.iter().filter(|result| result.fault.is_some()).collect();
    if faulty.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n## Cells that count for nothing\n\n| cell | what | fault | load |\n| --- | --- | --- | --- |")?;
    for result in faulty {
        let fault = result.fault.as_deref().unwrap_or_default();
        writeln!(text, "| {} | {fault} | {:.1} |", title(result), result.health.load)?;
    }
    Ok(())
}

fn every_cell(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Every cell\n\nMedian / p95 in %; events: joined of the kernel's; control: the gateway's words for it; path: mean lateness in us, packets over 1 ms late in %, the machine's load.\n"
    )?;
    writeln!(
        text,
        "| cell | what | s | flows | window | at loss | events | control | path, load |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )?;
    let mut sorted = results.to_vec();
    sorted.sort_by_key(|result| result.cell.as_ref().map_or(0, |cell| cell.number));
    for result in sorted {
        let found = sum(result.events.values());
        let words: BTreeSet<String> = result.flavours.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(
            text,
            "| {} | {:.0} | {} | {} | {} | {} of {} | {} | {:.0}, {:.2}, {:.1} |",
            title(result),
            result.seconds,
            result.flows,
            pair(quantiles(values(result, &["window_bulk", "window_app"]))),
            pair(quantiles(values(result, &["sample_loss", "sample_ecn"]))),
            found.joined,
            found.truth,
            words.into_iter().collect::<Vec<_>>().join(", "),
            result.health.late_mean_us,
            result.health.late_1ms as f64 / result.health.delivered.max(1) as f64 * 100.0,
            result.health.load,
        )?;
    }
    Ok(())
}
