//! What the gateway calls by a name: congestion events, what limits a sender, its congestion control.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::{EVERY, LOSS_BASED, cc, share};
use crate::accuracy::compare::sum;
use crate::accuracy::result::{CellResult, Found};
use crate::accuracy::telling::Silent;

pub(super) fn events(text: &mut String, results: &[&CellResult]) -> Result<()> {
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
    // BBR has no threshold, so the rules know no loss in avoidance of its.
    let loss_based: Vec<_> = results.iter().filter(|result| LOSS_BASED.contains(&cc(result))).collect();
    writeln!(
        text,
        "\n| window samples, reno and cubic | the kernel's | joined | the gateway's |\n| --- | --- | --- | --- |"
    )?;
    for kind in ["loss", "end", "end of a slow start", "lower bound"] {
        let found = sum(loss_based.iter().filter_map(|result| result.samples.get(kind)));
        writeln!(text, "| {kind} | {} | {} | {} |", found.truth, found.joined, found.seen)?;
    }
    Ok(())
}

pub(super) fn limits(text: &mut String, results: &[&CellResult]) -> Result<()> {
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

pub(super) fn flavours(text: &mut String, results: &[&CellResult]) -> Result<()> {
    let names = ["reno", "cubic", "bbr", "unknown"];
    writeln!(
        text,
        "## Congestion control found out\n\nFlows with three events or five seconds, at their last moment. Right: from the flow's own packets or else from other flows of its host; from its own packets alone; the first, of the flows whose congestion control can be distinguished: a loss or mark met a window of five segments or more, and in the open state after it there was more to send.\n\n| kernel | {} | right | own | of the distinguishable |\n| --- | --- | --- | --- | --- | --- | --- | --- |",
        names.join(" | ")
    )?;
    for kernel in EVERY {
        let of = |which: fn(&CellResult) -> &BTreeMap<String, u64>| {
            names.map(|name| -> u64 {
                results.iter().filter(|r| cc(r) == *kernel).filter_map(|r| which(r).get(name)).sum()
            })
        };
        let right = |counts: [u64; 4]| {
            let right = names.iter().zip(counts).filter(|(name, _)| *name == kernel).map(|(_, count)| count).sum();
            share(right, counts.iter().sum())
        };
        let counts = of(|r| &r.flavours);
        let telling = of(|r| &r.telling_flavours);
        let cells = counts.map(|count| count.to_string()).join(" | ");
        writeln!(
            text,
            "| {kernel} | {cells} | {} | {} | {} of {} |",
            right(counts),
            right(of(|r| &r.own_flavours)),
            right(telling),
            telling.iter().sum::<u64>()
        )?;
    }
    Ok(())
}

/// Flows whose congestion control nobody outside could tell from their own packets, by what they lacked; the rest beside them.
pub(super) fn silent_flavours(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\nThe same flows by what each lacks to show its control by backing off, by the kernel's account: what names one in any row but the last is pacing, growth, or its host's other flows. Unnamed of all / named wrong.\n\n| what a flow lacks | {} |\n| --- | --- | --- | --- |",
        EVERY.join(" | ")
    )?;
    let row = |words: &dyn Fn(&CellResult) -> Option<&BTreeMap<String, u64>>| {
        let cell = |kernel: &&str| {
            let mut all: BTreeMap<&str, u64> = BTreeMap::new();
            for result in results.iter().filter(|result| cc(result) == *kernel) {
                for (name, count) in words(result).into_iter().flatten() {
                    *all.entry(name.as_str()).or_default() += count;
                }
            }
            let count = |name: &str| all.get(name).copied().unwrap_or(0);
            let (unnamed, right, total) = (count("unknown"), count(kernel), all.values().sum::<u64>());
            format!("{unnamed} of {total} / {}", total - unnamed - right)
        };
        EVERY.iter().map(cell).collect::<Vec<_>>().join(" | ")
    };
    for why in Silent::ALL {
        writeln!(text, "| {} | {} |", why.name(), row(&|result| result.silent_flavours.get(why.name())))?;
    }
    writeln!(text, "| nothing | {} |", row(&|result| Some(&result.telling_flavours)))?;
    Ok(())
}
