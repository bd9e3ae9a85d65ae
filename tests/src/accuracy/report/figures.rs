//! The targets, how cells stand to them, and the worst of them.

use std::fmt::Write as _;

use anyhow::Result;

use super::{EVERY, LOSS_BASED, Target, cc, pair, pooled, share, title, values};
use crate::accuracy::compare::sum;
use crate::accuracy::result::{CellResult, quantiles};

pub(super) const TARGETS: &[Target] = &[
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
    Target { name: "smoothed RTT every 100 ms", kinds: &["srtt"], of: EVERY, median: 0.01, p95: 0.05, ranks: true },
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

/// Rows of the table of worst cells.
const WORST_CELLS: usize = 40;

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

pub(super) fn worst_cells(text: &mut String, results: &[&CellResult]) -> Result<()> {
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

pub(super) fn targets(text: &mut String, results: &[&CellResult]) -> Result<()> {
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
