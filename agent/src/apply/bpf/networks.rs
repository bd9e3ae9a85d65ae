//! What the kernel's tables hold of networks, and what must change in them.

use std::collections::BTreeMap;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use spand_proto::network::Network;
use spand_proto::start::RefusalReason;
use spand_proto::units::{Segments, Timestamp};
use strum::VariantArray;
use tracing::warn;

use super::layout;
use super::layout::Place;
use crate::apply::{Decided, Inputs};
use crate::policy::Reason;

/// A lifetime that grew by less is not written again, nor one that grew by less than a quarter of what is left: advice is
/// renewed every few seconds, for all networks at once.
const WORTH_NS: u64 = 5_000_000_000;

/// The tables `networks` and `budgets`.
pub(super) struct Networks {
    table: MapHandle,
    budgets: MapHandle,
    written: BTreeMap<Network, Written>,
    free: Vec<u32>,
    /// Of the newest place that was given.
    era: u32,
    start: Moment,
}

/// An entry of the kernel's table.
#[derive(Clone, Copy, Debug)]
struct Written {
    what: What,
    expires_ns: u64,
    place: Option<Place>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    /// With the window of a connection of which nothing is known.
    Start(Segments, Inputs),
    Alone(u8),
}

/// What a change of the tables came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    pub(super) added: u64,
    pub(super) changed: u64,
    pub(super) removed: u64,
    pub(super) no_room: u64,
    pub(super) failed: u64,
}

/// One moment by the agent's clock and by the programs'. Both run on while the host is suspended and nobody sets either, so that what
/// lies between them stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) agent: Timestamp,
    pub(super) programs_ns: u64,
}

impl Moment {
    fn in_programs(self, at: Timestamp) -> u64 {
        let (later, earlier) = (at.0.saturating_sub(self.agent.0), self.agent.0.saturating_sub(at.0));
        self.programs_ns.saturating_add(later).saturating_sub(earlier)
    }

    /// The same of a moment that may lie before this host was booted: below zero it wraps, as the programs take it.
    const fn in_programs_wrapping(self, at: Timestamp) -> u64 {
        self.programs_ns.wrapping_add(at.0.wrapping_sub(self.agent.0))
    }
}

/// Whether a lifetime that is written need not be written again.
fn is_fresh(written_ns: u64, expires_ns: u64, now_ns: u64) -> bool {
    let (grown, left) = (expires_ns.checked_sub(written_ns), expires_ns.saturating_sub(now_ns));
    grown.is_some_and(|grown| grown == 0 || grown < WORTH_NS.min(left / 4))
}

/// Removes an entry; one that is not there is no error.
pub(super) fn delete(table: &MapHandle, key: &[u8]) -> libbpf_rs::Result<()> {
    match table.delete(key) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

impl Networks {
    /// Of empty tables; `start` relates the programs' clock to the agent's.
    pub(super) fn new(table: MapHandle, budgets: MapHandle, start: Moment) -> Self {
        let free = (0..budgets.max_entries()).rev().collect();
        Self { table, budgets, written: BTreeMap::new(), free, era: 0, start }
    }

    /// Brings the tables in line.
    pub(super) fn write(&mut self, decided: &Decided<'_>, now: Timestamp) -> Changes {
        let mut changes = Changes::default();
        let touched: Vec<Network> = match decided.touched {
            Some(touched) => touched.iter().copied().collect(),
            None => self.written.keys().chain(decided.desired.keys()).chain(decided.skipped.keys()).copied().collect(),
        };
        for network in touched {
            if let Some(wanted) = decided.desired.get(&network) {
                let start = What::Start(wanted.window, wanted.inputs);
                self.put(network, start, wanted.expires, now, &mut changes);
            } else if let Some((reason, expires)) = decided.skipped.get(&network) {
                let alone = What::Alone(of(*reason));
                self.put(network, alone, *expires, now, &mut changes);
            } else {
                self.remove(network, &mut changes);
            }
        }
        changes
    }

    /// Removes all.
    pub(super) fn clear(&mut self) {
        let all: Vec<Network> = self.written.keys().copied().collect();
        for network in all {
            self.remove(network, &mut Changes::default());
        }
        // Entries that could not be removed are freed with the tables when this process ends.
        self.written.clear();
    }

    /// What is known of a network whose connections are started.
    pub(super) fn started(&self, network: Network) -> Option<(Segments, Inputs)> {
        match self.written.get(&network)?.what {
            What::Start(window, inputs) => Some((window, inputs)),
            What::Alone(_) => None,
        }
    }

    /// Segments above the default that are under way in a network, by the programs' account.
    pub(super) fn under_way(&self, network: Network) -> Option<u32> {
        let Place { slot, .. } = self.written.get(&network)?.place?;
        let budget = self.budgets.lookup(&slot.to_ne_bytes(), MapFlags::ANY).ok()??;
        let number = |at: usize| budget.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |n| u32::from_ne_bytes(*n));
        Some(number(4).saturating_add(number(8)))
    }

    fn put(&mut self, network: Network, what: What, expires: Timestamp, now: Timestamp, changes: &mut Changes) {
        let (expires_ns, now_ns) = (self.start.in_programs(expires), self.start.in_programs(now));
        let before = self.written.get(&network).copied();
        if before.is_some_and(|before| before.what == what && is_fresh(before.expires_ns, expires_ns, now_ns)) {
            return;
        }
        let mut place = before.and_then(|before| before.place);
        let value = match what {
            What::Start(_, inputs) => {
                let Some(own) = place.or_else(|| self.give_place(network, changes)) else { return };
                place = Some(own);
                layout::network(
                    &inputs,
                    expires_ns,
                    self.start.in_programs_wrapping(inputs.losses.map_or(now, |l| l.last)),
                    own,
                )
            }
            What::Alone(refusal) => layout::left_alone(refusal, expires_ns),
        };
        match self.table.update(&layout::prefix(network), &value, MapFlags::ANY) {
            Ok(()) => {
                self.written.insert(network, Written { what, expires_ns, place });
                match before {
                    None => changes.added += 1,
                    Some(before) if before.what != what => changes.changed += 1,
                    Some(_) => {}
                }
            }
            Err(error) => {
                warn!(%network, %error, "the kernel's table did not take a network");
                changes.failed += 1;
                // A place that the network had before stays its own.
                if before.is_none_or(|before| before.place.is_none()) {
                    self.free.extend(place.map(|place| place.slot));
                }
            }
        }
    }

    /// A slot with an empty budget: reservations and releases of the network that had the slot before do not count in it.
    fn give_place(&mut self, network: Network, changes: &mut Changes) -> Option<Place> {
        let Some(slot) = self.free.pop() else {
            changes.no_room += 1;
            return None;
        };
        // 0 is the era of no network; by the time that the number comes round, no connection is that old.
        self.era = self.era.wrapping_add(1).max(1);
        if let Err(error) = self.budgets.update(&slot.to_ne_bytes(), &layout::budget(self.era), MapFlags::LOCK) {
            warn!(%network, %error, "the kernel's table did not take a network's budget");
            changes.failed += 1;
            self.free.push(slot);
            return None;
        }
        Some(Place { slot, era: self.era })
    }

    fn remove(&mut self, network: Network, changes: &mut Changes) {
        if !self.written.contains_key(&network) {
            return;
        }
        if let Err(error) = delete(&self.table, &layout::prefix(network)) {
            // It is in force until its lifetime ends, and keeps its place; the next look tries again.
            warn!(%network, %error, "cannot remove a network from the kernel's table");
            changes.failed += 1;
            return;
        }
        let place = self.written.remove(&network).and_then(|written| written.place);
        self.free.extend(place.map(|place| place.slot));
        changes.removed += 1;
    }

    /// Networks whose connections are started, with the window of a connection of which nothing is known.
    pub(super) fn all_started(&self) -> impl Iterator<Item = (Network, Segments)> {
        self.written.iter().filter_map(|(network, written)| match written.what {
            What::Start(window, _) => Some((*network, window)),
            What::Alone(_) => None,
        })
    }
}

// Numbers of refusal reasons: for the programs, of networks that are left alone; from them, in the events of connections.
//
// The start function's own reasons have the numbers of the contract (`spand.v1.RefusalReason`).

const HELD_OUT: u8 = 100;
const OBSERVE: u8 = 101;
const OTHER: u8 = 102;
/// `REFUSED_PAUSED` of `bpf/tables.h`.
const PAUSED: u8 = 103;

/// The number of a reason.
pub(super) fn of(reason: Reason) -> u8 {
    match reason {
        Reason::Refused(reason) => number(reason),
        Reason::HeldOut => HELD_OUT,
        Reason::Observe => OBSERVE,
        Reason::Paused => PAUSED,
        Reason::Excluded | Reason::NotIncluded | Reason::Expired | Reason::SameAsDefault => OTHER,
    }
}

/// The start function's reason with this number, where it is one of those.
pub(super) fn reason(wire: u8) -> Option<RefusalReason> {
    RefusalReason::VARIANTS.iter().copied().find(|reason| number(*reason) == wire)
}

/// Whether the network as a whole is held out: its connections are controls.
pub(super) fn is_held_out(number: u8) -> bool {
    number == HELD_OUT
}

fn number(reason: RefusalReason) -> u8 {
    match reason {
        RefusalReason::NoEstimate => 1,
        RefusalReason::TooFewSamples => 2,
        RefusalReason::TooFewConnections => 3,
        RefusalReason::Stale => 4,
        RefusalReason::NoRtt => 5,
        RefusalReason::RttMismatch => 6,
        RefusalReason::MssZero => 7,
        RefusalReason::EmptyTransfer => 8,
        RefusalReason::NoOpening => 9,
    }
}
