//! The first tables of the page: estimates of networks against the truth, and the samples behind them.

use std::fmt::Write as _;

use anyhow::Result;

use super::{LOSS_BASED, Target, cc, pair, pooled, share};
use crate::accuracy::compare::sum;
use crate::accuracy::result::{CellResult, NetworkResult, quantiles};

/// Part of the truth within which an estimate of Reno and CUBIC has to be, and one of BBR.
const WITHIN: f64 = 0.05;
const WITHIN_BBR: f64 = 0.2;
/// Samples and connections below which no network has an estimate.
const SAMPLES_LEAST: u64 = 3;
const CONNECTIONS_LEAST: u64 = 2;

/// Networks that have something in common.
struct Group {
    name: &'static str,
    /// A factor, and the levels of it.
    of: Option<(&'static str, &'static [&'static str])>,
}

const fn group(name: &'static str, factor: &'static str, levels: &'static [&'static str]) -> Group {
    Group { name, of: Some((factor, levels)) }
}

const GROUPS: &[Group] = &[
    Group { name: "all", of: None },
    group("16 flows", "flows", &["16"]),
    group("4 flows", "flows", &["4"]),
    group("1 flow", "flows", &["1"]),
    group("behind a receiver", "work", &["receiver"]),
    group("steady", "work", &["steady"]),
    group("paced hosts", "pacing", &["paced"]),
    group("windows kept when idle", "idle", &["kept"]),
    group("Nagle", "writes", &["nagle"]),
    group("seen from midstream", "start", &["midstream"]),
    group("path changes", "change", &["rtt", "mtu"]),
    group("5 ms", "rtt", &["5ms"]),
];

impl Group {
    fn holds(&self, result: &CellResult) -> bool {
        let Some((factor, levels)) = self.of else { return true };
        result.cell.as_ref().is_some_and(|cell| levels.contains(&cell.level(factor)))
    }
}

/// Whether an estimate is right: an error below one segment counts as none, as everywhere.
fn is_within(estimate: f64, truth: Option<f64>, part: f64) -> bool {
    truth.is_some_and(|truth| (estimate - truth).abs() < 1.0 || (estimate / truth - 1.0).abs() <= part)
}

/// The table that the page begins with.
pub(super) fn estimates(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "## Estimate of a network against the truth\n\nAt each cell's end. Asked for: where the kernel's windows give three samples of two connections by losses and ends; of BBR, where it measured a rate. Right is within 5 % or a segment: `spand` of the mean of the kernel's windows at the same instants, `robust` (the default) of their mean at losses; BBR within 20 % of delivery rate times smallest round trip. Lower bounds: `robust` where there is nothing to average, and not above the largest of the kernel's.\n"
    )?;
    writeln!(
        text,
        "| networks | an estimate by `robust`, of those asked for | `spand` right | `robust` right | lower bounds: not above | BBR: an estimate | right |\n| --- | --- | --- | --- | --- | --- | --- |"
    )?;
    for group in GROUPS {
        let here: Vec<&CellResult> = results.iter().copied().filter(|result| group.holds(result)).collect();
        let of = |ccs: &[&str]| -> Vec<&NetworkResult> {
            here.iter().filter(|result| ccs.contains(&cc(result))).map(|result| &result.network).collect()
        };
        let (loss_based, bbr) = (of(LOSS_BASED), of(&["bbr"]));
        let asked = loss_based.iter().filter(|network| {
            network.kernel_samples >= SAMPLES_LEAST && network.kernel_connections >= CONNECTIONS_LEAST
        });
        let robust = |network: &NetworkResult| network.by_default.filter(|(_, bound)| !bound).map(|(share, _)| share);
        let bound = |network: &NetworkResult| network.by_default.filter(|(_, bound)| *bound).map(|(share, _)| share);
        let columns = [
            part(asked, |network| Some(network.by_default.is_some())),
            part(&loss_based, |network| Some(is_within(network.estimate?, Some(network.same_instants?), WITHIN))),
            part(&loss_based, |network| Some(is_within(robust(network)?, Some(network.losses?), WITHIN))),
            part(loss_based.iter().chain(&bbr), |network| Some(bound(network)? < network.bound? + 1.0)),
            part(&bbr, |network| network.carried.map(|_| network.by_default.is_some())),
            part(&bbr, |network| Some(is_within(robust(network)?, Some(network.carried?), WITHIN_BBR))),
        ];
        writeln!(text, "| {} | {} |", group.name, columns.join(" | "))?;
    }
    writeln!(text, "\n| samples | |\n| --- | --- |")?;
    let shares = Target { name: "", kinds: &["share_bbr"], of: &["bbr"], median: 0.0, p95: 0.0, ranks: true };
    let values = pooled(results, &shares);
    let near = values.iter().filter(|off| f64::from(off.abs()) <= WITHIN_BBR).count();
    writeln!(
        text,
        "| BBR's share at samples: median / p95 in %; within 20 % | {}; {} of {} |",
        pair(quantiles(values.iter().copied())),
        share(near as u64, values.len() as u64),
        values.len()
    )?;
    for name in LOSS_BASED {
        let of = results.iter().filter(|result| cc(result) == *name);
        let losses = sum(of.filter_map(|result| result.samples.get("loss")));
        let many = losses.seen.saturating_sub(losses.joined);
        writeln!(
            text,
            "| loss samples too many, {name} | {many} of {} ({} of the kernel's {} missing) |",
            losses.seen,
            losses.truth - losses.joined,
            losses.truth
        )?;
    }
    let midstream =
        Target { name: "", kinds: &["window_midstream"], of: LOSS_BASED, median: 0.0, p95: 0.0, ranks: true };
    let known = pooled(results, &midstream);
    let limits = results.iter().filter(|result| LOSS_BASED.contains(&cc(result)));
    let unknown: u64 =
        limits.filter_map(|result| result.limits.get("(window not known)")?.get("window_midstream")).sum();
    writeln!(
        text,
        "| windows of Reno and CUBIC senders seen from midstream: median / p95 in %; known, not known | {}; {}, {unknown} |\n",
        pair(quantiles(known.iter().copied())),
        known.len()
    )?;
    Ok(())
}

/// Networks with the web's traffic: the default rule against the truth, by kind, and what confidence means.
pub(super) fn mixed(text: &mut String, results: &[&CellResult]) -> Result<()> {
    let of_kind = |result: &CellResult| Some(result.cell.as_ref()?.levels.get("kind")?.clone());
    let mut kinds: Vec<String> = results.iter().filter_map(|result| of_kind(result)).collect();
    kinds.sort();
    kinds.dedup();
    if kinds.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "## Mixed traffic\n\nThe default rule against the mean over addresses of the kernel's windows at losses, of BBR of delivery rate times smallest round trip. Right: within 20 %. A lower bound is right where it is not above the truth by more.\n\n| networks | share given | right | error: median; worst below, above | lower bounds: right |\n| --- | --- | --- | --- | --- |"
    )?;
    for (name, ccs) in [("Reno, CUBIC", LOSS_BASED), ("BBR", &["bbr"][..])] {
        for kind in std::iter::once("all").chain(kinds.iter().map(String::as_str)) {
            let here = results.iter().filter(|result| {
                ccs.contains(&cc(result)) && of_kind(result).is_some_and(|of| kind == "all" || of == kind)
            });
            let here: Vec<&NetworkResult> = here.map(|result| &result.network).collect();
            writeln!(text, "| {name}: {kind} | {} |", row(&here))?;
        }
    }
    let sure: Vec<f64> = results
        .iter()
        .filter(|result| of_kind(result).is_some() && result.network.confidence > Some(SURE))
        .filter_map(|result| error(&result.network).filter(|(_, bound)| !bound).map(|(error, _)| error))
        .collect();
    let right = sure.iter().filter(|error| error.abs() <= WITHIN_MIXED).count();
    writeln!(text, "\nOf {} shares with a confidence above {SURE}, {right} are right.\n", sure.len())?;
    Ok(())
}

/// Part of the truth within which a mixed network's share has to be, and the confidence that means it.
const WITHIN_MIXED: f64 = 0.2;
const SURE: f64 = 0.8;

/// An estimate over the truth, less one, and whether it is a lower bound.
pub(super) fn error(network: &NetworkResult) -> Option<(f64, bool)> {
    let (share, is_bound) = network.by_default?;
    Some((share / network.by_address? - 1.0, is_bound))
}

fn row(networks: &[&NetworkResult]) -> String {
    let errors: Vec<(f64, bool)> = networks.iter().filter_map(|network| error(network)).collect();
    let asked = networks.iter().filter(|network| network.by_address.is_some()).count();
    let of = |bound| -> Vec<f64> { errors.iter().filter(|(_, is)| *is == bound).map(|(error, _)| *error).collect() };
    let (mut shares, bounds) = (of(false), of(true));
    shares.sort_by(f64::total_cmp);
    let right = shares.iter().filter(|error| error.abs() <= WITHIN_MIXED).count();
    let percent = |error: Option<&f64>| error.map_or("-".to_owned(), |error| format!("{:+.0} %", error * 100.0));
    let below = bounds.iter().filter(|error| **error <= WITHIN_MIXED).count();
    format!(
        "{} of {} | {right} | {}; {}, {} | {below} of {}",
        shares.len(),
        asked,
        percent(shares.get(shares.len() / 2)),
        percent(shares.first()),
        percent(shares.last()),
        bounds.len()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::factors::Cell;

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
        let mut text = String::new();
        estimates(&mut text, &results.iter().collect::<Vec<_>>()).unwrap();
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
        let mut text = String::new();
        mixed(&mut text, &results.iter().collect::<Vec<_>>()).unwrap();
        assert!(text.contains("| Reno, CUBIC: wifi | 2 of 3 | 1 | -15 %; -40 %, -15 % | 0 of 1 |"), "{text}");
        assert!(text.contains("| BBR: all | 1 of 2 | 1 | +10 %; +10 %, +10 % | 0 of 0 |"), "{text}");
        assert!(text.contains("Of 2 shares with a confidence above 0.8, 1 are right."), "{text}");
    }

    #[test]
    fn less_than_a_segment_or_a_twentieth_is_right() {
        assert!(is_within(3.9, Some(3.0), WITHIN) && is_within(104.0, Some(100.0), WITHIN));
        assert!(!is_within(106.0, Some(100.0), WITHIN) && !is_within(3.0, None, WITHIN));
    }
}
