//! Holds the congestion events that the engine saw against the kernel's.

use std::collections::BTreeMap;

use super::engine::Seen;
use super::result::{CellResult, Compared};
use super::truth::{FlowTruth, Kind};
use crate::lab::truth::FlowId;

/// Events this close, or within this number of round trips if that is longer, are one.
const EVENT_APART_NS: u64 = 50_000_000;
const EVENT_APART_ROUNDS: f64 = 0.6;

/// Joins the congestion events by flow and time. The engine counts marks as loss events: it finds a reduction with any event
/// that is no timeout.
pub(super) fn events(result: &mut CellResult, truth: &BTreeMap<FlowId, FlowTruth>, seen: &Seen, begin_ns: u64) {
    let number = result.cell.as_ref().map_or(0, |cell| cell.number);
    for (flow, truth) in truth {
        let row = |kind: String, at_ns: u64| Compared {
            cell: number,
            kind,
            remote: flow.remote.to_string(),
            at_s: at_ns.saturating_sub(begin_ns) as f64 / 1e9,
            ..Compared::default()
        };
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
            } else {
                result.rows.push(row(format!("missed {}", kind.name()), at_ns));
            }
        }
        for (at_ns, kind) in open {
            let name = if kind == Kind::Timeout { "false timeout" } else { "false recovery or reduction" };
            result.events.entry(name.to_owned()).or_default().seen += 1;
            result.rows.push(row(name.to_owned(), at_ns));
        }
    }
}
