//! Holds the engine's word against the kernel's, for one cell.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::Result;
use spand_core::config::WindowConfig;
use spand_core::estimate::{NoEstimate, RobustRule, Rule};
use spand_core::networks::NetworkTable;
use spand_core::types::{Limiter, SampleReason, WindowSample};
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;

use super::cell::Recording;
use super::engine::{Moment, Seen, View, flavours, replay};
use super::factors::Cell;
use super::result::{CellResult, FLOWS_BY_ENGINE, Found, NetworkResult};
use super::truth::{FlowTruth, Kind, flows};
use crate::lab::truth::rules::{KernelSample, Reason};
use crate::lab::truth::{FlowId, Row, Source, rules};

/// Time between two looks at a sender.
const PERIOD_NS: u64 = 100_000_000;
/// A sample's partner lies this close: the kernel reports an end at its last acknowledgement and the engine perhaps
/// only after a timeout.
const LOSS_APART_NS: u64 = 300_000_000;
const END_APART_NS: u64 = 3_000_000_000;
/// Part of the packets that the tap loses in the second replay.
const TAP_LOSS: f64 = 0.01;

/// Replays `capture` and compares.
pub fn compare(cell: &Cell, recording: &Recording, capture: &Path) -> Result<CellResult> {
    let since_ns = view_begins_ns(cell, &recording.rows);
    let mut truth = flows(&recording.rows, since_ns);
    for flow in truth.values_mut() {
        flow.nagle = cell.is("writes", "nagle");
    }
    let moments = moments(cell, &truth);
    let seen = replay(capture, &moments, since_ns, None)?;
    let holed = replay(capture, &moments, since_ns, Some((TAP_LOSS, cell.seed)))?;
    let mut result = CellResult {
        cell: Some(cell.clone()),
        health: recording.health,
        fault: recording.health.fault(),
        flows: truth.len() as u64,
        ..CellResult::default()
    };
    for (moment, view) in moments.iter().zip(&seen.views) {
        if let (Some(flow), Some(view)) = (truth.get(&moment.flow), view) {
            at_moment(&mut result, cell, flow, moment, view);
        }
    }
    // The rules need the rows before the view, too: a loss there keeps the end of a transfer from being a sample.
    let mut kernel = rules::samples(&recording.rows);
    kernel.retain(|sample| sample.time_ns >= since_ns);
    let same_instants = samples(&mut result, cell, &truth, &kernel, &seen);
    samples_with_holes(&mut result, cell, &kernel, &holed);
    events(&mut result, &truth, &seen);
    flavours(&mut result, &truth, &moments, &seen);
    for (flow, truth) in &truth {
        of_flow(&mut result, truth, seen.reports.get(flow));
    }
    result.network = network(recording, &kernel, &seen, &same_instants);
    if cell.is("cc", "bbr") {
        let shares: Vec<f64> = truth.values().filter_map(usual_share).collect();
        result.network.carried = mean(&shares);
        result.network.by_address = by_address(truth.iter().flat_map(|(flow, truth)| {
            let (first_ns, last_ns) = truth.span_ns();
            let times = (0..).map(move |n| first_ns + n * PERIOD_NS).take_while(move |time_ns| *time_ns <= last_ns);
            times.filter_map(|time_ns| Some((*flow, truth.share(time_ns)?)))
        }));
    }
    Ok(result)
}

/// When what the engine sees begins, by the clock of captures: for a tap that comes late after a quarter of the run, with connections
/// under way.
pub fn view_begins_ns(cell: &Cell, rows: &[Row]) -> u64 {
    match cell.numbers().seconds {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a minute")]
        Some(seconds) if cell.is("start", "midstream") => first_segment_ns(rows) + (seconds / 4.0 * 1e9) as u64,
        _ => 0,
    }
}

fn first_segment_ns(rows: &[Row]) -> u64 {
    let first = rows.iter().find(|row| matches!(row.source, Source::SegmentIn | Source::SegmentOut));
    first.map_or(0, |row| row.time_ns)
}

/// How long what passes the tap takes to the sender. The window follows acknowledgements, so what the gateway says at a
/// moment is about the sender so much later.
fn distance_ns(cell: &Cell) -> u64 {
    cell.level("tap").trim_end_matches("ms").parse::<u64>().unwrap_or(0) * 1_000_000
}

/// Every moment to look at, by the tap's clock: each period with data outstanding.
fn moments(cell: &Cell, truth: &BTreeMap<FlowId, FlowTruth>) -> Vec<Moment> {
    let distance_ns = distance_ns(cell);
    let mut moments = Vec::new();
    for (flow, truth) in truth {
        let (first_ns, last_ns) = truth.span_ns();
        let grid = (1..).map(|n| first_ns + n * PERIOD_NS).take_while(|time_ns| *time_ns + distance_ns < last_ns);
        let outstanding = grid.filter(|at| truth.at(*at + distance_ns).is_some());
        moments.extend(outstanding.map(|time_ns| Moment { time_ns, flow: *flow }));
    }
    moments.sort();
    moments
}

fn at_moment(result: &mut CellResult, cell: &Cell, flow: &FlowTruth, moment: &Moment, view: &View) {
    let at_ns = moment.time_ns + distance_ns(cell);
    let Some(row) = flow.at(at_ns) else { return };
    if let (Some(kernel), Some(srtt_us)) = (row.srtt_us, view.srtt_us) {
        result.errors("srtt").add_relative(srtt_us as f64 / f64::from(kernel.max(1)) - 1.0);
    }
    if let Some(held) = flow.held(at_ns) {
        result.count_limit(held.name(), view.limiter.name());
    }
}

/// For each of the kernel's samples, the index of the engine's sample of the same kind that belongs to it. The closest pairs are joined first.
/// In order of time, every later loss would get the wrong partner where the engine lacks the first of several.
fn partners(kernel: &[(u64, Reason)], engine: &[(u64, Reason)]) -> Vec<Option<usize>> {
    let mut pairs = Vec::new();
    for (place, (time_ns, reason)) in kernel.iter().enumerate() {
        let apart_ns = if *reason == Reason::Loss { LOSS_APART_NS } else { END_APART_NS };
        let same = engine.iter().enumerate().filter(|(_, (_, seen))| seen == reason);
        let near = same.map(|(at, (seen_ns, _))| (seen_ns.abs_diff(*time_ns), place, at));
        pairs.extend(near.filter(|(distance_ns, ..)| *distance_ns <= apart_ns));
    }
    pairs.sort_unstable();
    let mut partners = vec![None; kernel.len()];
    for (_, place, at) in pairs {
        let is_taken = partners.contains(&Some(at));
        if let Some(partner @ None) = partners.get_mut(place).filter(|_| !is_taken) {
            *partner = Some(at);
        }
    }
    partners
}

/// Joins the window samples by flow, kind and time. Gives the kernel's value for each of the engine's that count: its
/// partner's, or where it has none the window just before.
fn samples(
    result: &mut CellResult,
    cell: &Cell,
    truth: &BTreeMap<FlowId, FlowTruth>,
    kernel: &[KernelSample],
    seen: &Seen,
) -> Vec<f64> {
    let mut same_instants = Vec::new();
    for (flow, report) in &seen.reports {
        let Some(details) = &report.details else { continue };
        let of_kernel: Vec<&KernelSample> = kernel.iter().filter(|sample| sample.flow == *flow).collect();
        let mut open: Vec<Option<&WindowSample>> = details.samples.iter().map(Some).collect();
        let kernels: Vec<_> = of_kernel.iter().map(|sample| (sample.time_ns, sample.reason)).collect();
        let engines: Vec<_> = details.samples.iter().map(|sample| (sample.at.0, class(sample.reason))).collect();
        let partners = partners(&kernels, &engines);
        for (sample, partner) in of_kernel.into_iter().zip(partners) {
            let found = result.samples.entry(name(sample.reason).to_owned()).or_default();
            found.truth += 1;
            let Some(engine) = partner.and_then(|at| open.get_mut(at)?.take()) else { continue };
            found.joined += 1;
            same_instants.extend((sample.reason != Reason::LowerBound).then_some(sample.segments));
            // BBR's window is no share: its samples are held against the share below.
            if !cell.is("cc", "bbr") {
                let segments = engine.window.bytes() / f64::from(sample.mss.max(1));
                result.errors(&format!("sample_{}", engine.reason.name())).add(segments, sample.segments);
            }
        }
        let truth = truth.get(flow);
        for sample in open.into_iter().flatten().filter(|sample| !sample.reason.is_lower_bound()) {
            let window = truth.and_then(|truth| truth.window_before(sample.at.0)).map(f64::from);
            // The rule takes one segment off at a loss (`docs/explain/definitions.md`, "Samples").
            let off = if sample.reason.is_loss() { 1.0 } else { 0.0 };
            same_instants.extend(window.map(|window| (window - off).max(1.0)));
        }
        for sample in &details.samples {
            result.samples.entry(name(class(sample.reason)).to_owned()).or_default().seen += 1;
            let share = truth.filter(|_| cell.is("cc", "bbr")).and_then(|truth| truth.share(sample.at.0));
            if let Some(share) = share.filter(|_| !sample.reason.is_lower_bound()) {
                let segments = sample.window.segments_f64(sample.mss);
                result.errors("share_bbr").add(segments, share);
            }
        }
    }
    same_instants
}

/// Errors of the samples that are left where the tap loses packets.
fn samples_with_holes(result: &mut CellResult, cell: &Cell, kernel: &[KernelSample], holed: &Seen) {
    if cell.is("cc", "bbr") {
        return;
    }
    for (flow, report) in &holed.reports {
        let Some(details) = &report.details else { continue };
        let of_kernel: Vec<&KernelSample> = kernel.iter().filter(|sample| sample.flow == *flow).collect();
        let kernels: Vec<_> = of_kernel.iter().map(|sample| (sample.time_ns, sample.reason)).collect();
        let engines: Vec<_> = details.samples.iter().map(|sample| (sample.at.0, class(sample.reason))).collect();
        for (sample, partner) in of_kernel.into_iter().zip(partners(&kernels, &engines)) {
            let Some(engine) = partner.and_then(|at| details.samples.get(at)) else { continue };
            let segments = engine.window.bytes() / f64::from(sample.mss.max(1));
            result.errors(&format!("sample_{}_tap_loss", engine.reason.name())).add(segments, sample.segments);
        }
    }
}

fn class(reason: SampleReason) -> Reason {
    if reason == SampleReason::EndSlowStart {
        Reason::SlowStartEnd
    } else if reason.is_lower_bound() {
        Reason::LowerBound
    } else if reason.is_loss() {
        Reason::Loss
    } else {
        Reason::End
    }
}

fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Loss => "loss",
        Reason::End => "end",
        Reason::SlowStartEnd => "end of a slow start",
        Reason::LowerBound => "lower bound",
    }
}

fn of_flow(result: &mut CellResult, truth: &FlowTruth, report: Option<&spand_core::flow::report::DirectionReport>) {
    let Some((report, details)) = report.and_then(|report| report.details.as_ref().map(|details| (report, details)))
    else {
        return;
    };
    if let Some(retransmissions) = truth.retransmissions() {
        result.retransmissions.truth += 1;
        let packets = report.retransmitted_packets + details.hole_fill_packets + details.synfin_retransmitted_packets;
        // A packet of several segments at a tap behind offloads: the kernel counts segments.
        let segments = truth.mss().map_or(0, |mss| details.retransmitted.0.div_ceil(u64::from(mss.max(1))));
        let counted = packets.max(segments);
        result.retransmissions.joined += u64::from(counted == u64::from(retransmissions));
    }
    if let (Some(engine), Some(kernel)) = (details.rtt_seqack.mean_us(), truth.mean_srtt_us()) {
        result.errors("rtt_mean").add_relative(engine / kernel - 1.0);
    }
    if let (Some(engine), Some(kernel)) = (details.rtt_seqack.min, truth.min_rtt_us()) {
        result.errors("rtt_min").add_relative(engine.0 as f64 / f64::from(kernel.max(1)) - 1.0);
    }
    if details.limited_by != Limiter::Unknown {
        result.count_limit(FLOWS_BY_ENGINE, details.limited_by.name());
    }
}

fn network(recording: &Recording, kernel: &[KernelSample], seen: &Seen, same_instants: &[f64]) -> NetworkResult {
    let view = seen.networks.iter().find(|view| view.network.prefix() == recording.network);
    let estimate = view.and_then(|view| view.estimate.as_ref());
    let of = |reason| -> Vec<f64> {
        kernel.iter().filter(|sample| sample.reason == reason).map(|sample| sample.segments).collect()
    };
    let network = Network::new(recording.network);
    let details = seen.reports.values().filter_map(|report| report.details.as_ref());
    let mut samples: Vec<WindowSample> =
        details.flat_map(|details| &details.samples).filter(|sample| sample.network == network).copied().collect();
    samples.sort_by_key(|sample| (sample.at, sample.connection));
    let losses = of(Reason::Loss);
    let lost = kernel.iter().filter(|sample| sample.reason == Reason::Loss);
    let default = self::estimate(network, &samples, &RobustRule::DEFAULT);
    let counted = kernel.iter().filter(|sample| matches!(sample.reason, Reason::Loss | Reason::End));
    let connections: BTreeSet<FlowId> = counted.map(|sample| sample.flow).collect();
    NetworkResult {
        estimate: estimate.map(|estimate| estimate.share.segments_f64(estimate.mss)),
        why_not: view.and_then(|view| view.why_not).map(|why| NoEstimate::name(why).to_owned()),
        samples: view.map_or(0, |view| view.samples),
        same_instants: mean(same_instants),
        kernel_samples: (losses.len() + of(Reason::End).len()) as u64,
        kernel_connections: connections.len() as u64,
        losses: mean(&losses),
        bound: of(Reason::LowerBound).into_iter().chain(of(Reason::SlowStartEnd)).max_by(f64::total_cmp),
        carried: None,
        by_default: default.as_ref().map(|it| (it.share.segments_f64(it.mss), it.is_lower_bound)),
        confidence: default.map(|estimate| estimate.confidence.value()),
        by_address: by_address(lost.map(|sample| (sample.flow, sample.segments))),
    }
}

/// A BBR flow's share: the median of its second half. BBR first has to find it, and the flows that end last get that of the others.
fn usual_share(flow: &FlowTruth) -> Option<f64> {
    const LOOKS: u64 = 100;
    let (first_ns, last_ns) = flow.span_ns();
    let half_ns = (last_ns - first_ns) / 2;
    let looks = (0..=LOOKS).map(|n| last_ns - half_ns * n / LOOKS);
    let mut shares: Vec<f64> = looks.filter_map(|time_ns| flow.share(time_ns)).collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Mean over remote addresses of the mean of each one's values.
pub fn by_address(values: impl IntoIterator<Item = (FlowId, f64)>) -> Option<f64> {
    let mut of: BTreeMap<IpAddr, Vec<f64>> = BTreeMap::new();
    for (flow, value) in values {
        of.entry(flow.remote.ip()).or_default().push(value);
    }
    mean(&of.values().filter_map(|values| mean(values)).collect::<Vec<_>>())
}

/// What a rule makes of these samples, which are in order of time.
pub fn estimate(network: Network, samples: &[WindowSample], rule: &'static dyn Rule) -> Option<Estimate> {
    let mut table = NetworkTable::with_rule(WindowConfig::default(), NonZeroUsize::MIN, rule, 0);
    for sample in samples {
        table.add(sample);
        while table.poll_event().is_some() {}
    }
    table.estimate(network, samples.last()?.at)
}

/// How often something was found, of all cells together.
pub fn sum<'a>(all: impl IntoIterator<Item = &'a Found>) -> Found {
    all.into_iter().fold(Found::default(), |sum, found| Found {
        truth: sum.truth + found.truth,
        seen: sum.seen + found.seen,
        joined: sum.joined + found.joined,
    })
}

// Holds the congestion events that the engine saw against the kernel's.

/// Events this close, or within this number of round trips if that is longer, are one.
const EVENT_APART_NS: u64 = 50_000_000;
const EVENT_APART_ROUNDS: f64 = 0.6;

/// Joins the congestion events by flow and time. The engine counts marks as loss events: it finds a reduction with any event
/// that is no timeout.
pub(super) fn events(result: &mut CellResult, truth: &BTreeMap<FlowId, FlowTruth>, seen: &Seen) {
    for (flow, truth) in truth {
        let mut open: Vec<(u64, Kind)> =
            seen.events.iter().filter(|(_, of, _)| of == flow).map(|(at_ns, _, kind)| (*at_ns, *kind)).collect();
        for (at_ns, kind) in truth.events() {
            let rounds_ns = truth.mean_srtt_us().unwrap_or(0.0) * 1e3 * EVENT_APART_ROUNDS;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a round trip")]
            let apart_ns = EVENT_APART_NS.max(rounds_ns as u64);
            let like = |seen: Kind| (seen == Kind::Timeout) == (kind == Kind::Timeout);
            let partner = open
                .iter()
                .enumerate()
                .filter(|(_, (_, seen))| like(*seen))
                .map(|(index, (seen_ns, _))| (seen_ns.abs_diff(at_ns), index))
                .min()
                .filter(|(distance_ns, _)| *distance_ns <= apart_ns);
            let found = result.events.entry(kind.name().to_owned()).or_default();
            found.truth += 1;
            if let Some((_, index)) = partner {
                found.joined += 1;
                open.swap_remove(index);
            }
        }
        for (_, kind) in open {
            let name = if kind == Kind::Timeout { "false timeout" } else { "false recovery or reduction" };
            result.events.entry(name.to_owned()).or_default().seen += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_is_missing_moves_no_other_partner() {
        let kernel = [0, 100, 200].map(|ms| (ms * 1_000_000, Reason::Loss));
        let engine = [(101_000_000, Reason::Loss), (1_000_000, Reason::End), (201_000_000, Reason::Loss)];
        assert_eq!(partners(&kernel, &engine), [None, Some(0), Some(2)]);
        assert_eq!(partners(&[(0, Reason::Loss)], &[(301_000_000, Reason::Loss)]), [None]);
    }
}
