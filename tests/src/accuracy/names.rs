//! Holds the congestion controls that the engine names against the kernel's.

use std::collections::BTreeMap;

use spand_core::flow::shadow::flavour::Flavour;

use super::engine::{Moment, Seen, View};
use super::result::{CellResult, Compared};
use super::telling::Silent;
use super::truth::FlowTruth;
use crate::lab::truth::FlowId;

/// A congestion control can be found out from this many loss events or this long.
const TELLING_EVENTS: usize = 3;
const TELLING_NS: u64 = 5_000_000_000;

/// The engine's word at each flow's last moment, where the flow was long enough to tell.
pub(super) fn flavours(
    result: &mut CellResult,
    truth: &BTreeMap<FlowId, FlowTruth>,
    moments: &[Moment],
    seen: &Seen,
    begin_ns: u64,
) {
    let mut last: BTreeMap<FlowId, View> = BTreeMap::new();
    for (moment, view) in moments.iter().zip(&seen.views) {
        if let Some(view) = view {
            last.insert(moment.flow, *view);
        }
    }
    for (flow, view) in last {
        let Some(truth) = truth.get(&flow) else { continue };
        let (first_ns, last_ns) = truth.span_ns();
        if truth.events().len() >= TELLING_EVENTS || last_ns - first_ns >= TELLING_NS {
            let count = |names: &mut BTreeMap<String, u64>, flavour: Flavour| {
                *names.entry(flavour.name().to_owned()).or_default() += 1;
            };
            count(&mut result.flavours, view.flavour);
            count(&mut result.own_flavours, view.own_flavour);
            let silent = truth.silent();
            result.rows.push(Compared {
                cell: result.cell.as_ref().map_or(0, |cell| cell.number),
                kind: "control: leaning to reno, to bbr".to_owned(),
                remote: flow.remote.to_string(),
                at_s: last_ns.saturating_sub(begin_ns) as f64 / 1e9,
                kernel: view.scales.0,
                engine: view.scales.1,
                state: silent.map_or("telling", Silent::name).to_owned(),
                flavour: view.flavour.name().to_owned(),
                own_flavour: view.own_flavour.name().to_owned(),
                ..Compared::default()
            });
            match silent {
                None => count(&mut result.telling_flavours, view.flavour),
                Some(why) => {
                    count(result.silent_flavours.entry(why.name().to_owned()).or_default(), view.flavour);
                }
            }
        }
    }
}
