//! What is kept of a sender whose window is wanted: the evidence of its packets, its transfers and who it sends to.

use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::start::DEFAULT_INITIAL_WINDOW;
use spand_proto::units::{Bytes, Micros, Timestamp};

use crate::counters::Ignored;
use crate::flow::evidence::Evidence;
use crate::flow::evidence::control::{CongestionControl, Vote};
use crate::flow::observation::{LossKind, SenderSample};
use crate::flow::passed::EARLY;
use crate::flow::pending::PendingStats;
use crate::flow::reported_window::ReportedWindow;
use crate::flow::sink::FlowContext;
use crate::types::{ConnectionId, Delivered, LimitCounts, Limiter, Phase, SampleReason, SenderId, WindowSample};

/// Shortest time between two flushes of a sender's round trips alone to its network: as often as an estimate
/// is evaluated for them. The end of a transfer and every sample flush them too.
const FLUSH_INTERVAL: Micros = Micros::from_secs(1);

/// A followed sender.
#[derive(Clone, Debug)]
pub(crate) struct TrackedSender {
    /// What its packets show.
    pub(crate) evidence: Evidence,
    /// Its own address.
    pub(crate) host: IpAddr,
    /// Whom it sends to.
    pub(crate) remote: IpAddr,
    /// The network of `remote`.
    pub(crate) network: Network,
    /// Its own port, where it took the connection there.
    pub(crate) service_port: Option<u16>,
    /// Its vote on its host's congestion control.
    vote: Vote,
    /// The transfer under way.
    pub(crate) transfer: Option<Transfer>,
    /// The window that it last reported itself, where the option is read.
    pub(crate) reported_window: Option<ReportedWindow>,
    /// Round trips by what limited the sender, in the order of [`Limiter`]'s declaration.
    pub(crate) rounds: [u32; 4],
    /// Round-trip statistics not flushed to its network yet.
    pub(crate) pending_stats: PendingStats,
    /// When they were last flushed.
    flushed_at: Timestamp,
    /// The round trip under way ends when this position is acknowledged.
    pub(crate) round_end: u64,
    /// Its phase when its state was last reported; `None` where no rule looks at the senders under way.
    pub(crate) reported_phase: Option<Phase>,
}

/// New data from the first byte to everything acknowledged and silence.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Transfer {
    /// New bytes sent.
    pub(crate) bytes: u64,
    /// Position of its first byte: what was acknowledged before is not its own.
    pub(crate) start: u64,
    /// Its host had advice for its network when it began.
    pub(crate) advised: bool,
    /// Segments that left before anything was acknowledged.
    pub(crate) first_flight_segments: u16,
    /// The most bytes that were in the network.
    pub(crate) pipe_most: u32,
    /// It counts among those that its network gets at once.
    pub(crate) counted: bool,
}

impl Transfer {
    /// Whether more than the initial window left before anything was acknowledged.
    pub(crate) fn exceeds_initial(&self) -> bool {
        u32::from(self.first_flight_segments) > DEFAULT_INITIAL_WINDOW.0
    }

    /// Whether `una` lies in a first flight larger than the initial window, of segments of `mss`.
    pub(crate) fn is_in_first_flight(&self, una: u64, mss: u64) -> bool {
        self.exceeds_initial() && una < self.start.saturating_add(u64::from(self.first_flight_segments) * mss)
    }
}

impl TrackedSender {
    /// Whether the sample of a loss of this kind waits for the arrival of the first flight. BBR's share needs no wait.
    pub(crate) fn loses_first_flight(&self, kind: LossKind, una: u64, mss: u64) -> bool {
        // Without advice, only a window kept over an idle time is as large, and BBR always keeps its window.
        let named = self.evidence.congestion_control() == CongestionControl::LossBased;
        matches!(kind, LossKind::FastRetransmit | LossKind::TailLossProbe)
            && !self.evidence.may_be_bbr()
            && self
                .transfer
                .is_some_and(|transfer| (transfer.advised || named) && transfer.is_in_first_flight(una, mss))
    }

    /// A sender first seen at `at`.
    pub(crate) fn new([host, remote]: [IpAddr; 2], network: Network, at: Timestamp, evidence: Evidence) -> Self {
        Self {
            evidence,
            host,
            remote,
            network,
            service_port: None,
            vote: Vote::default(),
            transfer: None,
            reported_window: None,
            rounds: [0; 4],
            pending_stats: PendingStats::default(),
            flushed_at: at,
            round_end: 0,
            reported_phase: None,
        }
    }

    /// Which one it is to its network.
    pub(crate) fn id(&self, connection: ConnectionId) -> SenderId {
        SenderId { connection, remote: self.remote }
    }

    /// Reports its vote to its host, and reads the votes of the host's other connections. Where times do not hold, it has none.
    pub(crate) fn compare_notes(&mut self, context: &mut FlowContext<'_>) {
        if context.bad_times.is_some() {
            return;
        }
        let vote = self.evidence.leaning().vote();
        if vote != self.vote {
            for _ in 0..context.hosts.vote(self.host, self.vote, vote) {
                context.counters.ignore(Ignored::NoRoomHost);
            }
            self.vote = vote;
        }
        self.evidence.presume(context.now, context.hosts.agreed(self.host));
    }

    /// Whether its vote is not reported yet.
    pub(crate) fn has_news(&self) -> bool {
        self.evidence.leaning().vote() != self.vote
    }

    /// A round trip ended.
    pub(crate) fn count_round(&mut self, at: Timestamp) {
        let limiter = self.evidence.limiter(at);
        self.pending_stats.count(limiter);
        if let Some(count) = self.rounds.get_mut(limiter as usize) {
            *count = count.saturating_add(1);
        }
    }

    /// Flushes its round trips to its network, if the last flush is a while ago.
    pub(crate) fn flush_round_stats_if_due(&mut self, context: &mut FlowContext<'_>) {
        if context.now.since(self.flushed_at) >= FLUSH_INTERVAL {
            self.flush_round_stats(context);
        }
    }

    /// Flushes the collected round trips to its network.
    pub(crate) fn flush_round_stats(&mut self, context: &mut FlowContext<'_>) {
        let pending_stats = self.pending_stats.take();
        let (rtts, limits) = (pending_stats.rtts(), pending_stats.limits());
        let since = std::mem::replace(&mut self.flushed_at, context.now);
        if rtts.count > 0 || limits != LimitCounts::default() {
            let delivered = Delivered { since, bytes: pending_stats.delivered() };
            context.patience = context.patience.min(EARLY);
            context.findings.rounds(self.network, context.now, self.remote, (rtts, limits), delivered);
        }
    }

    /// A transfer begins: nothing was delivered in the silence before.
    pub(crate) fn begin_transfer(&mut self, at: Timestamp) {
        self.flushed_at = at;
    }

    /// What limited most round trips; not known where none is known.
    pub(crate) fn mostly_limited_by(&self) -> Limiter {
        [Limiter::Window, Limiter::Receiver, Limiter::Application]
            .into_iter()
            .map(|limiter| (self.rounds.get(limiter as usize).copied().unwrap_or(0), limiter))
            .filter(|(rounds, _)| *rounds > 0)
            .max_by_key(|(rounds, _)| *rounds)
            .map_or(Limiter::Unknown, |(_, limiter)| limiter)
    }

    /// Whether a sample takes the window that the sender reported: no lower bound does, and BBR's window is about twice its share.
    pub(crate) fn heard_for(&self, sample: &WindowSample) -> bool {
        !sample.reason.is_lower_bound() && !self.evidence.leaning().is_bbr()
    }

    /// Notes a round-trip time for the network: the sender's own smoothed one if it reports a consistent one. The
    /// smallest stays the wire's, since a smoothed one has none.
    pub(crate) fn add_rtt(&mut self, measured: Micros, smoothed: Option<Micros>) {
        let reported = self.reported_window.zip(smoothed).and_then(|(window, smoothed)| window.rtt(smoothed));
        self.pending_stats.add(measured, reported.unwrap_or(measured));
    }

    /// Puts name and address to a sample.
    pub(crate) fn sample(
        &self,
        connection: ConnectionId,
        at: Timestamp,
        sample: SenderSample,
        mss: Bytes,
        rtt_min: Option<Micros>,
    ) -> WindowSample {
        let transfer = self.transfer.unwrap_or_default();
        let fills_queue = sample.reason == SampleReason::Loss && !self.evidence.leaning().is_bbr();
        WindowSample {
            at,
            network: self.network,
            remote: self.remote,
            connection,
            window: sample.window,
            mss,
            reason: sample.reason,
            reduced_before: sample.reduced_before,
            transfer: Bytes(transfer.bytes),
            // One of the control group, or of an application that sent little, starts as without advice.
            advised: transfer.advised && transfer.exceeds_initial(),
            rtt_min,
            rtt: self.pending_stats.newest().filter(|_| fills_queue),
        }
    }
}
