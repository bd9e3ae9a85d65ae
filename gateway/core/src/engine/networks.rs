//! The engine's side of the window: where samples go, and the queries about networks.

use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use super::{Engine, LATEST};
use crate::counters::Ignored;
use crate::flow::sink::FlowSink;
use crate::networks::NetworkTable;
use crate::networks::reported::{ReportRefused, ReportedConnection};
use crate::types::{
    ConnectionId, Delivered, Flows, LimitCounts, RttSum, SampleRate, SenderId, SenderState, WindowSample,
};
use crate::window::record::NetworkRecord;

impl FlowSink for NetworkTable {
    fn sample(&mut self, sample: &WindowSample, rate: SampleRate) {
        self.add_sampled(sample, rate);
    }

    fn rounds(
        &mut self,
        network: Network,
        at: Timestamp,
        remote: IpAddr,
        (rtts, limits): (RttSum, LimitCounts),
        delivered: Delivered,
    ) {
        self.add_rounds(network, at, remote, rtts, limits);
        self.add_delivered(network, at, delivered);
    }

    fn begins(&mut self, network: Network, at: Timestamp, rate: SampleRate) -> bool {
        self.begin_transfer(network, at, rate)
    }

    fn wants_live(&self) -> bool {
        Self::wants_live(self)
    }

    fn under_way(&mut self, network: Network, at: Timestamp, sender: SenderId, state: &SenderState) {
        self.add_state(network, at, sender, state);
    }

    fn ends(&mut self, network: Network, at: Timestamp, sender: SenderId, counted: Option<SampleRate>) {
        self.end_transfer(network, at, sender, counted);
    }

    fn transfer(&mut self, network: Network, at: Timestamp) {
        self.count_transfer(network, at);
    }

    fn no_sample(&mut self, network: Network, at: Timestamp, why: Ignored) {
        self.count_outcome(network, at, why);
    }

    fn traffic(&mut self, network: Network, at: Timestamp, flows: &Flows) -> Option<bool> {
        self.add_traffic(network, at, flows)
    }

    fn loss(&mut self, network: Network, at: Timestamp, sender: SenderId, rtt: Micros) {
        self.add_loss(network, at, sender, rtt);
    }
}

impl Engine {
    /// For the store: [`NetworkTable::changed_records`], with an event of each, which holds its view at `now`.
    pub fn changed_networks(&mut self, limit: usize, now: Timestamp) -> Vec<(Network, Option<NetworkRecord>)> {
        let room = self.config.limits.events.get().saturating_sub(self.events.len());
        let changed = self.networks.changed_networks(limit.min(room), now);
        self.take_network_events();
        changed
    }

    /// From the store: gives a network its record back, as far as it has not aged at `now`. For the start, before the
    /// first frame: a network that has samples already keeps those.
    pub fn restore(&mut self, network: Network, record: NetworkRecord, now: Timestamp) {
        if let Some(ConnectionId(above)) = self.networks.restore(network, record, now) {
            self.next_connection = self.next_connection.max(above);
        }
        self.take_network_events();
    }

    /// The table of its networks.
    pub fn networks(&self) -> &NetworkTable {
        &self.networks
    }

    /// The same, to share it with other gateways and to take what they saw; the networks have to be those that the engine
    /// [makes](Self::makes).
    pub fn networks_mut(&mut self) -> &mut NetworkTable {
        &mut self.networks
    }

    /// Takes the report of a connection that ended to a network of this engine; `now` by the clock that stamps frames. Take the events
    /// afterwards.
    ///
    /// # Errors
    ///
    /// Why it gives no sample; counted.
    pub fn take_reported(&mut self, reported: &ReportedConnection, now: Timestamp) -> Result<(), ReportRefused> {
        let network = self.prefixes.network_of(reported.report.remote.ip());
        let outcome = if self.part.owns(|| network) {
            self.networks.take_reported(network, reported, now.min(LATEST).max(self.now))
        } else {
            Err(ReportRefused::NotANetwork)
        };
        self.networks.reports.count(outcome);
        self.take_network_events();
        outcome
    }

    /// Looks at networks that are due, with at most so much work and at most as many as there is room for their events: the
    /// others stay due.
    pub(super) fn expire_networks(&mut self, work: usize) {
        let room = self.config.limits.events.get().saturating_sub(self.events.len());
        self.networks.expire(self.now, work.min(room));
        self.take_network_events();
    }

    /// Passes on the events of the tables of networks and services.
    #[inline]
    pub(super) fn take_network_events(&mut self) {
        if self.networks.take_dirty() || self.services.has_events() {
            self.pass_events();
        }
    }

    fn pass_events(&mut self) {
        while let Some(event) = self.networks.poll_event() {
            self.queue_event(event.into());
        }
        while let Some(event) = self.services.poll_event() {
            self.queue_event(event.into());
        }
        for _ in self.counters.networks_evicted..self.networks.evicted() {
            self.counters.ignore(Ignored::NoRoomNetwork);
        }
        self.counters.networks_evicted = self.networks.evicted();
        self.counters.contributions_shared = self.networks.shared();
        self.counters.rtts_shared = self.networks.rtts_shared();
        self.counters.live_shared = self.networks.live_shared();
    }
}
