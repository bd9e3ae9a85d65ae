//! One network as it stands at one moment: for the publisher, the tables and the API.
//!
//! A value: it does not age by itself, so moments are kept rather than ages.

use spand_proto::estimate::{Estimate, Mark};
use spand_proto::network::Network;
use spand_proto::no_estimate::{Explanation, Outcomes, Reason};
use spand_proto::units::{Micros, Timestamp};

use super::NetworkTable;
use super::reported::ReportedView;
use super::slots::Slot;
use super::traffic::NetworkTraffic;
use crate::estimate::{self, AddressShare, Compared, Counts, NoEstimate};
use crate::types::{Flows, LimitCounts, SampleRate};

/// What the window of a network holds, with the estimate made of it or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkView {
    /// The network.
    pub network: Network,
    /// The estimate in force, where there is one.
    pub estimate: Option<Estimate>,
    /// Why there is none, where there is none.
    pub why_not: Option<NoEstimate>,
    /// Smallest round-trip time in the window.
    pub rtt_min: Option<Micros>,
    /// Mean round-trip time in the window, in which no remote address has more than half of the weight.
    pub rtt_mean: Option<Micros>,
    /// Window samples in the window.
    pub samples: u32,
    /// Lower bounds in the window.
    pub lower_bounds: u32,
    /// Connections that gave those samples and lower bounds.
    pub connections: u32,
    /// Loss events in the window, whether or not they gave a sample.
    pub losses: u64,
    /// What limited the senders.
    pub limits: LimitCounts,
    /// Connections that sent to it at once: the most of the last 10 to 20 s.
    pub parallel: u32,
    /// The fewest connections that sent to it at once when a window was sampled, of about the last minute of samples: this many have
    /// the share together.
    pub parallel_at_samples: u32,
    /// The smaller of both, of this gateway's tap alone: equal to that where nothing is shared.
    pub parallel_here: u32,
    /// The smallest part of its starts that was followed at any time in the window: less than all under overload, if it has many. The counts
    /// above are then of a sample, and the connections in parallel are estimated.
    pub followed: SampleRate,
    /// How transfers ended that this gateway saw.
    pub outcomes: Outcomes,
    /// What passed to and from it at this gateway; counts of the sample of connections that is followed, as well.
    pub traffic: NetworkTraffic,
    /// Samples, and connections that give them, which an estimate needs.
    pub needed: (u32, u32),
    /// What the rules say that are compared with the one in force.
    pub compared: Vec<Compared>,
    /// Where they differ, the shares of addresses: at most 16.
    pub addresses: Vec<AddressShare>,
    /// When the newest sample, lower bound or round-trip time came.
    pub newest: Option<Timestamp>,
    /// What hosts reported of QUIC connections, in none of the counts above; kept while the wire gives no estimate.
    pub reported: Option<ReportedView>,
}

impl NetworkView {
    /// Why there is no estimate, with the figures; `None` where there is one.
    pub fn no_estimate(&self) -> Option<Explanation> {
        let reason = match self.why_not? {
            NoEstimate::TooFewSamples => self.outcomes.most_frequent().unwrap_or(Reason::TooFewSamples),
            NoEstimate::TooFewConnections => Reason::TooFewConnections,
            NoEstimate::Expired => Reason::Expired,
        };
        Some(Explanation {
            reason,
            outcomes: self.outcomes,
            samples: (self.samples, self.needed.0),
            needed_connections: self.needed.1,
            followed: self.followed.share(),
        })
    }

    /// Time since the newest sample of any kind.
    pub fn age(&self, now: Timestamp) -> Option<Micros> {
        self.newest.map(|newest| now.since(newest))
    }
}

impl NetworkTable {
    /// The estimate of a network at `now`.
    pub fn estimate(&self, network: Network, now: Timestamp) -> Option<Estimate> {
        let slot = self.slots.find(network)?;
        let (entry, merged) = (self.slots.get(slot)?, self.merged_at(slot, now));
        let by_wire = entry.by_wire(merged.as_deref(), now, &self.method);
        by_wire.or_else(|_| entry.by_reports(now, &self.method)).ok()
    }

    /// The view of a network at `now`; `None` if the window has nothing of it.
    pub fn view(&self, network: Network, now: Timestamp) -> Option<NetworkView> {
        self.view_of(self.slots.find(network)?, now)
    }

    /// The view of every network at `now`, in order of prefix.
    pub fn views(&self, now: Timestamp) -> Vec<NetworkView> {
        let mut views: Vec<_> = self.slots.entries().filter_map(|(slot, _)| self.view_of(slot, now)).collect();
        views.sort_by_key(|view| view.network);
        views
    }

    /// The view of an entry at `now`; `None` if the window has nothing of it.
    pub(super) fn view_of(&self, slot: Slot, now: Timestamp) -> Option<NetworkView> {
        let (method, config) = (&self.method, &self.method.config);
        let (entry, merged) = (self.slots.get(slot)?, self.merged_at(slot, now));
        let record = entry.evaluated(merged.as_deref());
        let slice = record.slice(now, config);
        let counts = Counts::of(slice);
        let known = (record, &entry.delivery, entry.opening(now));
        let by_wire = estimate::of_counted(entry.network, known, (slice, &counts), now, config, method.rule);
        let differ = by_wire.as_ref().ok().filter(|estimate| estimate.mark == Some(Mark::AddressesDiffer));
        let addresses = differ.map(|of| estimate::address_shares(slice, of.share)).unwrap_or_default();
        let by_wire = by_wire.map(|estimate| entry.bounded(estimate, merged.as_deref(), now, method));
        let by_reports = if by_wire.is_err() { entry.by_reports(now, method).ok() } else { None };
        let reported = entry.reported.as_deref();
        let reported = reported.and_then(|record| ReportedView::of(record, by_reports.is_some(), now, config));
        let traffic = entry.traffic.view(now, config);
        if slice.buckets.is_empty() && traffic.window == Flows::default() && reported.is_none() {
            return None;
        }
        let estimate = by_reports.map_or(by_wire, Ok);
        let (rtt_min, rtt_mean) = match &estimate {
            Ok(estimate) => (estimate.rtt_min, estimate.rtt_mean),
            Err(_) => (slice.rtt().min, slice.rtt_mean()),
        };
        let own = entry.own(slot);
        let (seen, parallel_here) =
            self.others.as_ref().and_then(|others| others.seen(own, now)).unwrap_or_else(|| {
                let alone = own.seen(now, config);
                (alone, alone.parallel.min(alone.parallel_at_samples))
            });
        let opening = |kind| entry.openings.as_ref()?.compared(kind, now);
        Some(NetworkView {
            network: entry.network,
            why_not: estimate.as_ref().err().copied(),
            estimate: estimate.ok(),
            rtt_min,
            rtt_mean,
            samples: counts.samples,
            lower_bounds: counts.lower_bounds,
            connections: counts.connections_in_all,
            losses: slice.losses(),
            limits: slice.limits(),
            parallel: seen.parallel,
            parallel_at_samples: seen.parallel_at_samples,
            parallel_here,
            followed: seen.followed,
            outcomes: entry.record.slice(now, config).outcomes(),
            traffic,
            needed: (config.min_samples, config.min_connections),
            compared: self.compared.iter().map(|kind| Compared::of(*kind, slice, opening(*kind))).collect(),
            addresses,
            newest: record.newest.max(reported.map(|reported| reported.newest)),
            reported,
        })
    }
}
