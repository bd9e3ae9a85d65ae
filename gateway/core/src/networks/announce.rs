//! When an estimate is announced: it appeared, changed, was refreshed, or removed.

use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::start::CROWD_THRESHOLD;
use spand_proto::units::{Micros, Timestamp, Window};
use strum::IntoStaticStr;

use super::slots::Slot;
use super::view::NetworkView;
use super::{Entry, NetworkTable};
use crate::config::WindowConfig;
use crate::estimate::NoEstimate;
use crate::types::WindowSample;
use crate::window::record::NetworkRecord;

/// Shortest time between two evaluations of a network to which only round-trip times come.
const RTT_LOOK: Micros = Micros::from_secs(1);
/// Shortest time between two evaluations for samples of a network whose estimate was announced: the changes by many transfers that
/// end together are announced once.
const SAMPLE_LOOK: Micros = Micros::from_millis(100);
/// And for every contribution in its record: an evaluation goes through them all, so a network costs the same time per second
/// whatever its window holds; the fuller it is, the less a sample changes it. A full window of 30 buckets is evaluated once a second.
const CONTRIBUTION_LOOK: Micros = Micros::from_millis(2);

/// What changed in the table.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkEvent {
    /// An estimate appeared, moved by more than the configured change, or was refreshed.
    Estimate(Box<Estimate>),
    /// The state of a network that changed, at its turn ([`NetworkTable::changed_networks`]), with its estimate.
    Network(Box<NetworkView>),
    /// A network has no estimate any more.
    Withdrawn {
        /// The network.
        network: Network,
        /// Why.
        reason: Withdrawal,
    },
}

/// Why an estimate was withdrawn.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq)]
#[strum(serialize_all = "snake_case")]
pub enum Withdrawal {
    /// Nothing new within the age limit.
    Expired,
    /// Too few samples or connections are left in the window.
    TooFew,
    /// The table of networks was full.
    Evicted,
    /// The administrator's prefixes make no such network any more.
    Administrator,
}

impl Withdrawal {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What was announced of a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Announced {
    /// Last, as a move or a refresh.
    last: Values,
    /// Last as a move, or at first: refreshes in between do not hide that the estimate drifts away from it.
    moved: Values,
    at: Timestamp,
}

/// What an estimate is compared by.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Values {
    share: Window,
    rtt: Option<Micros>,
    /// Where a rule gives openings: the threshold, and when the last loss began.
    threshold: Option<Window>,
    lost: Option<Timestamp>,
    /// What the empty path holds, in segments, as far as it decides a start; 0 where that is not known.
    bdp: u8,
}

impl Values {
    fn of(estimate: &Estimate) -> Self {
        let opening = estimate.opening;
        let lost = opening.and_then(|opening| opening.losses).map(|losses| losses.last);
        let threshold = opening.map(|opening| opening.threshold);
        let bdp = estimate.bdp.map_or(0, |bdp| bdp.segments(estimate.mss).min(CROWD_THRESHOLD).0);
        let bdp = u8::try_from(bdp).unwrap_or(u8::MAX);
        Self { share: estimate.share, rtt: estimate.rtt_mean, threshold, lost, bdp }
    }

    /// Whether the share, the round-trip time, the threshold or what the empty path holds is off by at least the part `change` of these, or another loss began since.
    fn moved_to(&self, now: &Self, change: f64) -> bool {
        let off = |(announced, now): (Option<f64>, Option<f64>)| match (announced, now) {
            (Some(announced), Some(now)) => {
                (now - announced).abs() >= change * announced && now.to_bits() != announced.to_bits()
            }
            (announced, now) => announced.is_some() != now.is_some(),
        };
        self.lost != now.lost || self.measured().into_iter().zip(now.measured()).any(off)
    }

    fn measured(&self) -> [Option<f64>; 4] {
        let rtt = self.rtt.map(|rtt| rtt.0 as f64);
        [Some(self.share.bytes()), rtt, self.threshold.map(Window::bytes), Some(self.bdp.into())]
    }
}

impl NetworkTable {
    /// Evaluates a network and announces the result.
    pub(super) fn evaluate(&mut self, slot: Slot, now: Timestamp) {
        self.tell(slot, |others, own| others.renew(own, now));
        let merged = self.others.as_deref().and_then(|others| others.merged(slot.index()));
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let by_wire = entry.by_wire(merged, now, &self.method);
        if by_wire.is_ok() {
            entry.reported = None;
        }
        let estimate = by_wire.or_else(|why| entry.by_reports(now, &self.method).map_err(|_| why));
        let event = self.consider_estimate(slot, estimate, now);
        self.events.extend(event);
    }

    /// Whether to announce a network that was evaluated just now, by which event; that counts as announced.
    pub(super) fn consider_estimate(
        &mut self,
        slot: Slot,
        estimate: Result<Estimate, NoEstimate>,
        now: Timestamp,
    ) -> Option<NetworkEvent> {
        let merged = self.others.as_deref().and_then(|others| others.merged(slot.index()));
        let entry = self.slots.get_mut(slot)?;
        entry.considered = Some(now);
        let event = match estimate {
            Ok(estimate) => entry.announce(estimate, now, &self.method.config),
            Err(NoEstimate::TooFewSamples | NoEstimate::TooFewConnections)
                if entry.has_samples(merged, now, &self.method.config) =>
            {
                entry.withdraw(Withdrawal::TooFew)
            }
            Err(_) => entry.withdraw(Withdrawal::Expired),
        };
        let (due, is_announced) = (entry.next_due(merged, now, &self.method.config), entry.announced.is_some());
        if let Some(due) = due {
            self.slots.due_by(slot, due);
        }
        if event.is_some() || !is_announced {
            self.tell_and_look(slot, |others, own| others.announce(own, now));
        }
        event
    }

    /// Evaluates a network to which `sample` was added: at once while it has no estimate and the sample is no lower bound, and else now and
    /// again.
    pub(super) fn consider_sample(&mut self, slot: Slot, sample: &WindowSample) {
        let Some(entry) = self.slots.get(slot) else { return };
        let unhurried = entry.announced.is_none() && sample.reason.is_lower_bound();
        let look = if unhurried { RTT_LOOK } else { entry.sample_look(self.merged(slot)) };
        match entry.considered.map(|at| at.after(look)) {
            Some(later) if later > sample.at && (entry.announced.is_some() || unhurried) => {
                self.slots.due_by(slot, later);
            }
            _ => self.evaluate(slot, sample.at),
        }
    }

    /// Evaluates a network of which something else than a sample was added: at first, to know when it is due, and then
    /// now and again for its round-trip time.
    pub(super) fn schedule_evaluation(&mut self, slot: Slot, now: Timestamp) {
        let Some(entry) = self.slots.get(slot) else { return };
        match entry.considered.map(|at| at.after(RTT_LOOK)) {
            Some(_) if entry.announced.is_none() => {}
            Some(later) if later > now => self.slots.due_by(slot, later),
            _ => self.evaluate(slot, now),
        }
    }

    /// Looks at a network that is due.
    pub(super) fn age(&mut self, slot: Slot, now: Timestamp) {
        let Some(entry) = self.slots.get_mut(slot) else { return };
        entry.record.drop_aged(now, &self.method.config);
        entry.reported.take_if(|reported| {
            reported.drop_aged(now, &self.method.config);
            reported.buckets.is_empty()
        });
        if entry.traffic.drop_aged(now, &self.method.config) {
            self.note_change(slot);
        }
        self.tell_and_look(slot, |others, own| others.age(own, now));
        let (Some(entry), merged) = (self.slots.get(slot), self.merged(slot)) else { return };
        let due = entry.next_due(merged, now, &self.method.config);
        let look = entry.considered.map(|at| at.after(entry.sample_look(merged))).filter(|look| *look > now);
        if merged.is_none() && entry.is_empty() {
            self.remove(slot, Withdrawal::Expired);
        } else if let (Some(due), Some(look)) = (due, look) {
            // It waited for an evaluation of its samples, and was evaluated meanwhile.
            self.slots.due_by(slot, due.min(look));
        } else {
            self.evaluate(slot, now);
        }
        self.account(slot);
    }

    /// Removes a network, with an event if it was announced.
    pub(super) fn remove(&mut self, slot: Slot, reason: Withdrawal) {
        let Some(mut entry) = self.slots.remove(slot) else { return };
        if let Some(others) = &mut self.others {
            others.remove(slot.index(), entry.network);
        }
        self.memory.change(entry.held, 0);
        self.events.extend(entry.withdraw(reason));
        self.changes.note(entry.network);
    }
}

impl Entry {
    fn announce(&mut self, estimate: Estimate, now: Timestamp, config: &WindowConfig) -> Option<NetworkEvent> {
        let last = Values::of(&estimate);
        let moved = match self.announced {
            Some(announced)
                if [announced.last, announced.moved]
                    .iter()
                    .all(|announced| !announced.moved_to(&last, config.change)) =>
            {
                if !self.has_new_samples || now.since(announced.at) < config.refresh {
                    return None;
                }
                announced.moved
            }
            _ => last,
        };
        self.announced = Some(Announced { last, moved, at: now });
        self.has_new_samples = false;
        Some(NetworkEvent::Estimate(Box::new(estimate)))
    }

    fn withdraw(&mut self, reason: Withdrawal) -> Option<NetworkEvent> {
        self.announced.take().map(|_| NetworkEvent::Withdrawn { network: self.network, reason })
    }

    fn has_samples(&self, merged: Option<&NetworkRecord>, now: Timestamp, config: &WindowConfig) -> bool {
        let mut parts = self.records(merged).flat_map(|record| record.slice(now, config).contributions);
        parts.any(|part| part.samples > 0)
    }

    /// Shortest time between two evaluations for samples.
    pub(super) fn sample_look(&self, merged: Option<&NetworkRecord>) -> Micros {
        let contributions: usize = self.records(merged).map(|record| record.contributions.len()).sum();
        SAMPLE_LOOK.max(Micros(CONTRIBUTION_LOOK.0.saturating_mul(contributions as u64)))
    }

    /// When the network has to be evaluated next after `now`, without further samples. Never at once again: at the end of time, where a
    /// capture's broken clock can get, every later moment is now.
    fn next_due(&self, merged: Option<&NetworkRecord>, now: Timestamp, config: &WindowConfig) -> Option<Timestamp> {
        let refresh =
            self.announced.filter(|_| self.has_new_samples).map(|announced| announced.at.after(config.refresh));
        let of_records = self.records(merged).flat_map(|record| {
            // Just after the age limit, at which an estimate still holds.
            let expires = record.newest_sample.map(|newest| newest.after(config.max_age).after(Micros(1)));
            [record.next_aged(config), expires.filter(|_| self.announced.is_some())]
        });
        // What is over for one record hides no moment of another one.
        of_records.chain([self.traffic.next_aged(config), refresh]).flatten().filter(|due| *due > now).min()
    }
}
