//! Acknowledgements to a sender: SACK blocks, windows, echoed timestamps, and the round-trip times that they measure.

use arrayvec::ArrayVec;
use spand_proto::units::{Micros, Timestamp};

use super::Sender;
use crate::counters::Ignored;
use crate::flow::maybe::{MaybeMicros, MaybeTime};
use crate::flow::observation::{AckKind, AckSample, CaState, LossKind, Newest};
use crate::flow::recovery::Turn;
use crate::flow::rtt::round_trip;
use crate::flow::scoreboard::{CumulativeAck, Scoreboard};
use crate::flow::seq_state::Acknowledged;
use crate::flow::sink::FlowContext;
use crate::wire::segment::{Flags, Segment};

impl Sender {
    /// Processes an acknowledgement from the peer; `scale` is the shift of its window, where known.
    pub(crate) fn acknowledge(&mut self, segment: &Segment, scale: Option<u8>, context: &mut FlowContext<'_>) {
        let at = segment.at;
        if let (Some(number), true) = (segment.ack, self.state.has_sent()) {
            let ack = self.state.position(number);
            if let Some(details) = self.details() {
                details.highest_ack = details.highest_ack.max(Some(ack));
            }
        }
        let Some(Acknowledged { ack, missed, first, window_moved }) = self.state.acknowledge(segment, scale, context)
        else {
            return;
        };
        if first && !self.state.has_sent() {
            self.board = Scoreboard::starting_at(ack);
        }
        let outstanding = self.board.flight() > 0;
        if !outstanding && ack == self.board.una() && !first && segment.options.sack.is_empty() {
            // The usual packet to the receiving side of a transfer: nothing is outstanding, nothing is acknowledged.
            return;
        }
        let una_before = self.board.una();
        let min_rtt = self.rtt.min();
        let newest_before = self.board.newest_arrived();
        let cumulative = self.board.acknowledge(ack, at, min_rtt);
        // Bytes that the capture missed were sent, but it is unknown whether the window allowed them: they do not open it.
        let seen_advance = cumulative.advanced.saturating_sub(missed);
        self.last_ack = MaybeTime::some(at);
        self.last_active = MaybeTime::some(context.now);
        let mut sacked = None;
        let (sacked_bytes, dsack) = self.take_sack(segment, ack, &mut sacked, context);
        let mut lost_again = false;
        if self.sack_agreed && (sacked_bytes > 0 || seen_advance > 0) {
            lost_again = self.mark_lost_by_time(at);
        } else if sacked_bytes > 0 {
            self.board.mark_lost();
        }
        let by_echo = self.take_rtt(segment, cumulative.rtt, cumulative.advanced > 0, context);
        let rtt = newest_rtt(segment, &cumulative, sacked, by_echo).filter(|rtt| !self.rtt.is_step(*rtt));
        if self.rtt.smoothed().is_none()
            && let Some(rtt) = rtt
        {
            // The SYN was retransmitted: only SACK blocks measure a round-trip time.
            self.rtt.add(rtt);
        }
        if cumulative.ambiguous {
            context.counters.ignore(Ignored::Karn);
        }
        if cumulative.mistimed {
            context.counters.ignore(Ignored::Mistimed);
        }
        let duplicate = outstanding
            && cumulative.advanced == 0
            && ack == una_before
            && segment.seq_len() == 0
            && !segment.flags.has(Flags::RST)
            && !window_moved;
        let kind = match cumulative.advanced {
            1.. => AckKind::Advance,
            0 if duplicate || sacked_bytes > 0 => AckKind::Duplicate,
            0 => AckKind::Other,
        };
        self.delivered += self.newly_delivered(duplicate, &cumulative, seen_advance, sacked_bytes);
        let pipe_before = self.pipe_without_losses();
        let (lost, repeated) = if self.sack_agreed { self.board.lost_and_repeated() } else { (0, 0) };
        let (_, flight) = self.pipe_and_flight();
        let newest = Some(self.board.newest_arrived()).filter(|newest| *newest != newest_before);
        let ack = AckSample {
            at,
            answer_at: at.after(self.reaction()),
            kind,
            una: self.board.una(),
            nxt: self.board.nxt(),
            advanced: seen_advance,
            dsack,
            ece: segment.flags.has(Flags::ECE) && !segment.flags.has(Flags::SYN),
            lost_again,
            lost,
            repeated,
            flight,
            rtt,
            newest: newest.map(|(sent_at, _, again)| Newest { sent_at, again }),
            delivered: self.delivered,
        };
        let turn = self.recovery.acknowledged(&ack);
        if turn != Turn::default() {
            self.apply_turn(turn, pipe_before, at, context);
        }
        self.report_acked(&ack, context);
        if ack.una > una_before {
            self.report_first_flight(false, context);
        }
    }

    /// Bytes that an acknowledgement newly reports as delivered (`tp->delivered`).
    fn newly_delivered(&mut self, duplicate: bool, cumulative: &CumulativeAck, seen_advance: u64, sacked: u64) -> u64 {
        if self.state.syn.is_none() || self.sack_agreed {
            return seen_advance - cumulative.sacked_before.min(seen_advance) + sacked;
        }
        let (mss, arrived_before) = (self.size.bytes_or_usual(), self.board.arrived());
        if duplicate {
            self.board.duplicate_arrived(mss);
            self.board.arrived().saturating_sub(arrived_before)
        } else if cumulative.advanced > 0 {
            self.board.forget_duplicates(cumulative.advanced, mss, self.recovery.state().is_repairing());
            // Less what duplicates counted before, but at least the hole (`tcp_remove_reno_sacks`).
            seen_advance.saturating_sub(arrived_before).max(mss.min(seen_advance))
        } else {
            0
        }
    }

    /// Takes SACK blocks: bytes newly SACKed, and whether the first block is a DSACK (RFC 2883 section 4).
    fn take_sack(
        &mut self,
        segment: &Segment,
        ack: u64,
        arrived: &mut Option<Timestamp>,
        context: &mut FlowContext<'_>,
    ) -> (u64, bool) {
        let blocks = &segment.options.sack;
        let Some(first) = blocks.first() else { return (0, false) };
        let limit = context.segment_limit(true);
        let position = |number| self.state.position(number);
        let below = position(first.right) <= ack;
        let inside = blocks.get(1).is_some_and(|second| {
            position(second.left) <= position(first.left) && position(first.right) <= position(second.right)
        });
        let dsack = below || inside;
        let (mut newly, min_rtt) = (0, self.rtt.min());
        // In ascending order, as in Linux: the newest block comes first, and an older one that is new because an acknowledgement
        // was lost is no sign of reordering.
        let mut upwards: ArrayVec<_, 4> =
            blocks.iter().map(|block| (position(block.left), position(block.right))).collect();
        upwards.sort_unstable();
        for block in upwards {
            newly += self.board.sack(block, segment.at, min_rtt, limit, arrived);
        }
        self.count_unsplit(context);
        (newly, dsack)
    }

    /// Counts borders for which the scoreboard had no room.
    pub(super) fn count_unsplit(&mut self, context: &mut FlowContext<'_>) {
        for _ in 0..self.board.take_unsplit() {
            context.counters.ignore(Ignored::Inexact);
        }
    }

    #[inline(never)]
    fn apply_turn(&mut self, turn: Turn, pipe_before: u64, at: Timestamp, context: &mut FlowContext<'_>) {
        if turn.probe_loss {
            self.lose(LossKind::TailLossProbe, pipe_before, at, context);
        }
        let Some(followed) = self.followed.as_deref_mut() else { return };
        if turn.ended || turn.began == Some(LossKind::Ecn) {
            followed.evidence.enter(CaState::Open);
        }
        if turn.ended {
            self.report_state(context);
        }
        if let Some(kind) = turn.began {
            self.lose(kind, pipe_before, at, context);
        }
    }

    /// Passes the acknowledgement to the evidence. That of the SYN does not open the window.
    fn report_acked(&mut self, ack: &AckSample, context: &mut FlowContext<'_>) {
        let Some(followed) = self.followed.as_deref_mut().filter(|_| self.coverage.is_some()) else { return };
        let at = ack.at;
        followed.pending_stats.deliver(ack.advanced);
        followed.evidence.note_rtt(self.rtt);
        followed.evidence.enter(self.recovery.state());
        followed.evidence.on_ack(ack);
        if ack.advanced > 0 && ack.una >= followed.round_end {
            if followed.round_end > 0 {
                followed.count_round(at);
            }
            followed.flush_round_stats_if_due(context);
            if followed.has_news() {
                followed.compare_notes(context);
            }
            followed.round_end = if self.board.flight() > 0 { self.board.nxt() } else { 0 };
            if let Some(sample) = followed.evidence.take_sample(at) {
                self.report_sample(Ok(sample), context);
            }
            self.report_state(context);
        } else if followed.reported_phase.is_some_and(|reported| reported != followed.evidence.phase()) {
            self.report_state(context);
        }
    }

    /// Records the round-trip times by sequence number and by timestamp; returns the latter if the acknowledgement advanced.
    /// Records without a capture time give neither.
    fn take_rtt(
        &mut self,
        segment: &Segment,
        by_sequence: Option<Micros>,
        advanced: bool,
        context: &mut FlowContext<'_>,
    ) -> Option<Micros> {
        if context.bad_times == Some(Ignored::Untimed) {
            return None;
        }
        let at = segment.at;
        let by_timestamp = segment.options.timestamps.and_then(|timestamps| self.echo.echoed(timestamps.echo, at));
        if by_sequence.or(by_timestamp).is_some_and(|rtt| self.rtt.is_step(rtt)) {
            context.counters.ignore(Ignored::Mistimed);
            return None;
        }
        if let Some(details) = self.details() {
            if let Some(rtt) = by_sequence {
                details.rtt_seqack.add(rtt);
            }
            if let Some(rtt) = by_timestamp {
                details.rtt_timestamps.add(rtt);
            }
        }
        // Without an advance the echo is of an older segment, or the packet carries data of the peer.
        let by_timestamp = by_timestamp.filter(|_| advanced);
        let Some(rtt) = by_sequence.or(by_timestamp) else { return by_timestamp };
        self.rtt.add(rtt);
        context.counters.rtt_samples += 1;
        if let Some(followed) = self.followed.as_deref_mut() {
            followed.add_rtt(rtt, self.rtt.smoothed());
        }
        if self.state.handshake_rtt.is_none() && segment.flags.has(Flags::SYN) || self.coverage.is_none() {
            self.state.handshake_rtt = by_sequence.map_or(self.state.handshake_rtt, MaybeMicros::some);
            self.report_segment_size(at);
        }
        by_timestamp
    }
}

/// The round-trip time of the newest segment that an acknowledgement reports as delivered, which congestion control uses
/// (`tcp_ack_update_rtt`); else by the echoed timestamp.
fn newest_rtt(
    segment: &Segment,
    cumulative: &CumulativeAck,
    sacked: Option<Timestamp>,
    by_echo: Option<Micros>,
) -> Option<Micros> {
    let Some(newest) = sacked.or(cumulative.arrived) else {
        let echo = segment.options.timestamps.map(|timestamps| timestamps.echo);
        let repeated = cumulative.repeated.filter(|stamp| echo == Some(stamp.ts_value));
        return repeated.and_then(|stamp| round_trip(stamp.at, segment.at)).or(by_echo);
    };
    round_trip(newest, segment.at)
}
