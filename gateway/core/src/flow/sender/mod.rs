//! One direction's sender, reconstructed from its segments and the acknowledgements to it.
//!
//! [`send`] takes its segments, [`judge`] classifies its retransmissions, [`acknowledge`] takes acknowledgements, [`finish`]
//! ends its transfers. Sequence positions are those of [`super::sequence`]; what is reported but not needed for the
//! reconstruction goes into the [`DirectionReport`].

mod acknowledge;
mod finish;
mod judge;
mod send;

use spand_proto::units::{Bytes, Micros, Timestamp};

use crate::counters::Ignored;
use crate::flow::coverage::Coverage;
use crate::flow::evidence::Evidence;
use crate::flow::evidence::control::CongestionControl;
use crate::flow::handshake::Syn;
use crate::flow::maybe::{MaybeCount, MaybeMicros, MaybeTime};
use crate::flow::observation::{LossKind, SenderSample};
use crate::flow::recovery::Recovery;
use crate::flow::report::{DirectionDetails, DirectionReport};
use crate::flow::rtt::RttEstimator;
use crate::flow::scoreboard::Scoreboard;
use crate::flow::segment_size::SegmentSize;
use crate::flow::seq_state::SeqState;
use crate::flow::sequence::first_position;
use crate::flow::sink::{FlowContext, Place};
use crate::flow::timestamps::EchoTimer;
use crate::flow::tracked::{TrackedSender, Transfer};
use crate::mem::{FEW_SEGMENTS, Held, number};
use crate::types::{ConnectionId, SampleReason, SenderState};
use crate::wire::segment::Segment;

/// Bytes of a sender with all that it may allocate beside segments and ranges.
const SENDER_BYTES: usize = size_of::<Sender>() + Scoreboard::BESIDE_BYTES + Coverage::BESIDE_BYTES;

/// A sender, from its first segment or the first acknowledgement of it on.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// Its sequence space.
    pub(crate) state: SeqState,
    board: Scoreboard,
    /// Payload seen; `None` if only acknowledgements were.
    coverage: Option<Coverage>,
    /// When it last sent sequence space or was acknowledged, by the engine's clock: silence counts from here.
    last_active: MaybeTime,
    /// When it was last acknowledged, advancing or not, by the packet's own time.
    last_ack: MaybeTime,
    /// Both ends agreed on SACK.
    sack_agreed: bool,
    rtt: RttEstimator,
    echo: EchoTimer,
    size: SegmentSize,
    recovery: Recovery,
    /// Bytes acknowledged or SACKed so far, each once.
    delivered: u64,
    /// Time from the peer's SYN to its own.
    reaction: MaybeMicros,
    /// Its connection, if its window is estimated.
    follow: MaybeCount,
    /// Its start was not seen.
    midstream: bool,
    /// From its first data on, if its window is estimated.
    followed: Option<Box<TrackedSender>>,
    report: Option<Box<DirectionReport>>,
}

impl Sender {
    /// A sender whose first known sequence number is `number`; its window is estimated if `follow` names its connection.
    pub(crate) fn new(
        number: u32,
        follow: Option<ConnectionId>,
        midstream: bool,
        report: Option<Box<DirectionReport>>,
    ) -> Self {
        Self {
            state: SeqState::new(number),
            board: Scoreboard::starting_at(first_position(number)),
            coverage: None,
            last_active: MaybeTime::NONE,
            last_ack: MaybeTime::NONE,
            sack_agreed: false,
            rtt: RttEstimator::default(),
            echo: EchoTimer::default(),
            size: SegmentSize::default(),
            recovery: Recovery::default(),
            delivered: 0,
            reaction: MaybeMicros::NONE,
            follow: follow.map_or(MaybeCount::NONE, |ConnectionId(number)| MaybeCount::some(number)),
            midstream,
            followed: None,
            report,
        }
    }

    /// The connection that it is followed under.
    fn connection(&self) -> ConnectionId {
        ConnectionId(self.follow.get().unwrap_or_default())
    }

    /// Notes where its first packet was captured.
    pub(crate) fn place_first(&mut self, segment: &Segment, place: Place) {
        self.follow_start();
        if let Some(details) = self.details() {
            details.input = place.input;
            details.first_frame = place.frame;
            details.first_at = segment.at;
        }
    }

    /// Its report so far, if one is kept and it sent anything.
    pub(crate) fn report(&self) -> Option<&DirectionReport> {
        self.report.as_deref().filter(|report| report.has_counted())
    }

    /// The details of its report.
    fn details(&mut self) -> Option<&mut DirectionDetails> {
        self.report.as_mut()?.details.as_deref_mut()
    }

    /// What its packets show, if its window is estimated.
    pub(crate) fn evidence(&self) -> Option<&Evidence> {
        self.followed.as_deref().map(|followed| &followed.evidence)
    }

    /// Its memory.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        let segments = self.board.room() + self.coverage.as_ref().map_or(0, Coverage::room);
        let tracked = |tracked: &TrackedSender| size_of::<TrackedSender>() + tracked.evidence.beside_bytes();
        let unacknowledged = segments > FEW_SEGMENTS && self.delivered <= 1;
        let sender_bytes = number(SENDER_BYTES + self.followed.as_deref().map_or(0, tracked));
        Held { segments: number(segments), sender_bytes, unacknowledged }
    }

    /// Frees the memory of its segments.
    pub(crate) fn give_room(&mut self) {
        self.board.merge_all();
        if let Some(coverage) = &mut self.coverage {
            coverage.forget_gaps();
        }
    }

    /// `pipe` and bytes outstanding, of data alone: a FIN takes a sequence number but does not make its segment larger.
    fn pipe_and_flight(&self) -> (u64, u64) {
        let fin = u64::from(self.state.has_finished() && !self.state.is_closed());
        (self.board.pipe().saturating_sub(fin), self.board.flight().saturating_sub(fin))
    }

    /// Whether it was silent, with nothing outstanding, for a timeout.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        self.board.flight() == 0 && self.last_active.get().is_some_and(|last| now.since(last) > self.rtt.timeout())
    }

    /// Both SYNs were seen: what they agree on holds. `reaction`: how long after the peer's SYN its own passed the tap.
    pub(crate) fn agree(&mut self, peer: &Syn, reaction: Option<Micros>, at: Timestamp) {
        let Some(own) = &mut self.state.syn else { return };
        if self.reaction.is_none() {
            self.reaction = reaction.filter(|_| own.is_answer).into();
        }
        own.ecn_agreed = own.ecn && peer.ecn;
        if let (Some(own), Some(peer)) = (own.offer, peer.offer) {
            self.sack_agreed = own.sack_permitted && peer.sack_permitted;
            self.size.agree(own.mss, peer.mss, own.timestamps && peer.timestamps);
        }
        self.report_segment_size(at);
    }

    /// Its sequence space may start elsewhere than was thought: nothing is outstanding then.
    fn follow_start(&mut self) {
        if self.board.nxt() != self.state.nxt() {
            self.board = Scoreboard::starting_at(self.state.nxt());
        }
    }

    /// Reports the segment size to the evidence, if known.
    fn report_segment_size(&mut self, at: Timestamp) {
        if let (Some(mss), Some(followed)) = (self.size.bytes(), self.followed.as_deref_mut()) {
            followed.evidence.on_open(at, mss, self.state.handshake_rtt.get());
        }
    }

    /// Handles a loss event; `pipe_before` is as just before the first retransmission.
    fn lose(&mut self, kind: LossKind, pipe_before: u64, at: Timestamp, context: &mut FlowContext<'_>) {
        context.counters.loss_events += 1;
        context.counters.timeouts += u64::from(kind == LossKind::Timeout);
        if let Some(report) = &mut self.report {
            report.loss_events += 1;
            report.timeouts += u64::from(kind == LossKind::Timeout);
        }
        let rtt = self.rtt.smoothed().unwrap_or_default();
        let connection = self.connection();
        let Some(followed) = self.followed.as_deref_mut() else { return };
        context.findings.loss(followed.network, context.now, followed.id(connection), rtt);
        let una = self.board.una();
        let waits_for_arrivals = followed.loses_first_flight(kind, una, self.size.bytes_or_usual());
        let sample = followed.evidence.on_loss(at, kind, pipe_before);
        if waits_for_arrivals {
            followed.evidence.await_arrivals(sample.ok());
        }
        // A sample that waited for what this loss showed comes first.
        let before = followed.evidence.take_sample(at);
        followed.compare_notes(context);
        self.report_state(context);
        if let Some(before) = before {
            self.report_sample(Ok(before), context);
        }
        if !waits_for_arrivals {
            self.report_sample(sample, context);
        }
    }

    /// Reports the sample of a lost first flight once its outcome is known: the start set its size, and part of it was delivered.
    fn report_first_flight(&mut self, ended: bool, context: &mut FlowContext<'_>) {
        let Some(followed) = self.followed.as_deref_mut().filter(|followed| followed.evidence.awaits_arrivals()) else {
            return;
        };
        let (una, mss) = (self.board.una(), self.size.bytes_or_usual());
        let over = |transfer: &Transfer| ended || !transfer.is_in_first_flight(una, mss);
        let Some(transfer) = followed.transfer.filter(over) else { return };
        let flight = u64::from(transfer.first_flight_segments) * mss;
        let arrived = flight.saturating_sub(self.board.lost_since_settled()).max(mss);
        let Some(sample) = followed.evidence.take_arrived(Bytes(arrived)) else { return };
        self.report_sample(Ok(sample), context);
    }

    /// Reports a sample, or counts why there is none.
    fn report_sample(&mut self, sample: Result<SenderSample, Ignored>, context: &mut FlowContext<'_>) {
        let connection = self.connection();
        let Some(followed) = self.followed.as_deref_mut() else { return };
        // The estimate is evaluated with the sample and needs these.
        followed.flush_round_stats(context);
        // In mid-stream a sender has a window before its congestion control is known, and BBR's window is no sample.
        let unnamed = self.midstream && followed.evidence.congestion_control() == CongestionControl::Unknown;
        let sample = sample.and_then(|sample| if unnamed { Err(Ignored::Midstream) } else { Ok(sample) });
        let sample = match context.bad_times.map_or(sample, Err) {
            Ok(sample) => sample,
            Err(reason) => {
                context.findings.no_sample(followed.network, context.now, reason);
                if let Some(report) = &mut self.report {
                    report.bad_times = context.bad_times;
                }
                return context.counters.ignore(reason);
            }
        };
        let mss = self.size.bytes().unwrap_or(Bytes(self.size.bytes_or_usual()));
        let mut sample = followed.sample(connection, context.now, sample, mss, self.rtt.min());
        if let Some(own) = followed.reported_window.filter(|_| followed.heard_for(&sample)) {
            let most = followed.transfer.map_or(0, |transfer| transfer.pipe_most).into();
            match own.sample(sample.reason, mss, most) {
                Some(window) => {
                    sample.window = window;
                    context.counters.window_option_samples += 1;
                }
                None => context.counters.ignore(Ignored::WindowOption),
            }
        }
        if sample.reason.is_lower_bound() {
            context.counters.lower_bounds += 1;
            let limit = match sample.reason {
                SampleReason::EndReceiverLimited => Ignored::ReceiverLimited,
                SampleReason::EndSlowStart => Ignored::SlowStartEnd,
                SampleReason::Carried => Ignored::EndAfterLoss,
                _ => Ignored::AppLimited,
            };
            context.findings.no_sample(followed.network, context.now, limit);
            context.counters.ignore(limit);
        } else {
            context.counters.window_samples += 1;
        }
        if let Some(report) = &mut self.report {
            report.first_sample.get_or_insert(sample.reason);
            let limit = usize::try_from(context.limits.report_samples.get()).unwrap_or(usize::MAX);
            if let Some(details) = report.details.as_mut().filter(|details| details.samples.len() < limit) {
                details.samples.push(sample);
            }
        }
        context.findings.sample(&sample, context.rate);
    }

    /// Reports its state to its network, if a rule uses it.
    #[inline]
    fn report_state(&mut self, context: &mut FlowContext<'_>) {
        let wanted = self.followed.as_deref().is_some_and(|followed| followed.reported_phase.is_some());
        if wanted && context.bad_times.is_none() {
            self.report_state_now(context);
        }
    }

    #[cold]
    fn report_state_now(&mut self, context: &mut FlowContext<'_>) {
        let (connection, rtt, timeout) =
            (self.connection(), self.rtt.smoothed().unwrap_or_default(), self.rtt.timeout());
        let Some(followed) = self.followed.as_deref_mut().filter(|followed| followed.transfer.is_some()) else {
            return;
        };
        let (evidence, Some(mss)) = (&followed.evidence, self.size.bytes()) else { return };
        let phase = evidence.phase();
        followed.reported_phase = Some(phase);
        let Some(window) = evidence.window() else { return };
        let state = SenderState {
            phase,
            window,
            ssthresh: evidence.ssthresh(),
            delivered_bytes: self.delivered,
            mss,
            rtt,
            // The last report is up to a round trip old when the sender falls silent.
            silence: Micros(timeout.0.saturating_add(rtt.0)),
        };
        context.findings.under_way(followed.network, context.now, followed.id(connection), &state);
    }
}

// Every connection has these, so their size decides the cache misses. What few connections need is allocated on demand.
const _: () = assert!(size_of::<Sender>() <= 424 && size_of::<TrackedSender>() <= 536);
