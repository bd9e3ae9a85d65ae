//! What reconstruction finds out about networks, and what it works with.

use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use crate::config::Limits;
use crate::counters::{Counters, Ignored};
use crate::flow::hosts::Hosts;
use crate::flow::prefixes::Prefixes;
use crate::flow::push_ledger::PushLedger;
use crate::service::ServiceTable;
use crate::types::{Delivered, Flows, LimitCounts, RttSum, SampleRate, SenderId, SenderState, WindowSample};

/// Takes findings: the window per network in the engine.
pub(crate) trait FlowSink {
    /// A window sample or lower bound; of the connections like its own, this part is followed.
    fn sample(&mut self, sample: &WindowSample, rate: SampleRate);
    /// Valid round-trip times to an address of the network, and round trips of its sender by what limited them.
    fn rounds(
        &mut self,
        network: Network,
        at: Timestamp,
        remote: IpAddr,
        rounds: (RttSum, LimitCounts),
        delivered: Delivered,
    );
    /// A transfer to the network begins; of the connections like its own, this part is followed. Returns whether it is counted.
    fn begins(&mut self, network: Network, at: Timestamp, rate: SampleRate) -> bool;
    /// Whether a rule looks at the senders under way.
    fn wants_live(&self) -> bool;
    /// The state of a sender in the middle of a transfer: about once a round trip, where [`Self::wants_live`].
    fn under_way(&mut self, network: Network, at: Timestamp, sender: SenderId, state: &SenderState);
    /// A transfer of `sender` ends; `counted` holds the part with which it was counted at its beginning.
    fn ends(&mut self, network: Network, at: Timestamp, sender: SenderId, counted: Option<SampleRate>);
    /// A transfer to the network is over, with a sample or without.
    fn transfer(&mut self, network: Network, at: Timestamp);
    /// A loss or the end of a transfer gave no sample.
    fn no_sample(&mut self, network: Network, at: Timestamp, why: Ignored);
    /// What passed to and from the network by `at`; whether it has an estimate. `None` where it is not in the table and nothing was taken.
    fn traffic(&mut self, network: Network, at: Timestamp, flows: &Flows) -> Option<bool>;
    /// A loss event of a sender whose round trip is `rtt`, whether or not it gave a sample.
    fn loss(&mut self, network: Network, at: Timestamp, sender: SenderId, rtt: Micros);
}

/// Where a packet stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Source it came from.
    pub(crate) input: u32,
    /// Its number among all frames.
    pub(crate) frame: u64,
    /// Its record holds its time.
    pub(crate) timed: bool,
}

/// What a connection works with while it takes a segment.
pub(crate) struct FlowContext<'a> {
    /// Limits of its tables.
    pub(crate) limits: &'a Limits,
    /// Whether senders are heard on their own windows.
    pub(crate) read_window_option: bool,
    /// Which network an address belongs to.
    pub(crate) prefixes: &'a Prefixes,
    /// Who was advised.
    pub(crate) ledger: &'a mut PushLedger,
    /// What the connections of a host agree on.
    pub(crate) hosts: &'a mut Hosts,
    /// How large the transfers of services are.
    pub(crate) services: &'a mut ServiceTable,
    /// Counters of the engine.
    pub(crate) counters: &'a mut Counters,
    /// The engine's time, which never runs backwards: findings carry it.
    pub(crate) now: Timestamp,
    /// Why nothing that rests on the times of the connection at hand is a finding, where that is so.
    pub(crate) bad_times: Option<Ignored>,
    /// Which part of the connections like the one at hand is followed.
    pub(crate) rate: SampleRate,
    /// After how long the connection at hand hands over what passed ([`crate::flow::passed`]).
    pub(crate) patience: u16,
    /// Where findings go.
    pub(crate) findings: &'a mut dyn FlowSink,
}

impl FlowContext<'_> {
    /// Disjoint gaps kept per sender.
    pub(crate) fn gap_limit(&self) -> usize {
        usize::try_from(self.limits.sequence_ranges.get()).unwrap_or(usize::MAX)
    }

    /// Outstanding segments kept per sender; few while the peer was never heard, since nothing would take them off.
    pub(crate) fn segment_limit(&self, peer_heard: bool) -> usize {
        const UNHEARD: usize = 256;
        let limit = usize::try_from(self.limits.outstanding_segments.get()).unwrap_or(usize::MAX);
        if peer_heard { limit } else { limit.min(UNHEARD) }
    }
}
