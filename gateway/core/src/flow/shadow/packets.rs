//! The effect of each packet on the replica: segments sent, small ones among them, acknowledgements, the ends of recovery.

use smallvec::SmallVec;
use spand_proto::units::{Bytes, Micros, Timestamp};

use super::bbr::{Delivery, Departure};
use super::cwnd::ReductionStep;
use super::flavour::Flavour;
use super::held::Stand;
use super::observation::{Acked, Sent};
use super::replica::Progress;
use super::sampling::TransferEnd;
use super::{Shadow, State};
use crate::flow::maybe::{MaybeMicros, MaybeTime};
use crate::flow::sequence::low_half;
use crate::mem::allocated_for;
use crate::types::{Limiter, Phase};

/// Idle times over which a sender keeps its window before this is assumed: a gap of the capture can look like the first.
const KEEPS_WINDOW: u8 = 2;

impl Shadow {
    /// What holds the sender of new bytes, where the receiver does not.
    fn stand(&self, sent: &Sent, filled: bool) -> Stand {
        if sent.repeats_wait {
            Stand::More
        } else if filled && (self.state == State::Open || sent.more) {
            Stand::Full
        } else if sent.more && sent.full_sized {
            Stand::More
        } else {
            Stand::Dry
        }
    }

    /// A packet with payload went out.
    pub fn on_sent(&mut self, at: Timestamp, sent: &Sent) {
        if self.mss == 0 {
            return;
        }
        if sent.new_bytes == 0 {
            self.settle_end();
        }
        let idle = sent.retransmitted_bytes == 0 && sent.flight <= u64::from(sent.new_bytes);
        let since_sent = self.last_sent.get().map(|last| at.since(last));
        if idle && let Some(since_sent) = since_sent {
            self.resume(at, since_sent);
        }
        self.last_sent = MaybeTime::some(at);
        self.waits.on_sent(at, sent.stamp);
        self.clock.wait(self.waits.queued());
        self.nxt = self.nxt.saturating_add(u64::from(sent.new_bytes));
        let una = self.nxt.saturating_sub(sent.flight);
        self.una = self.una.max(una);
        if sent.new_bytes > 0 && !sent.full_sized {
            self.small.sent(self.nxt, (self.mss - sent.new_bytes % self.mss) % self.mss);
        }
        self.arrive(at);
        // Bytes whose acknowledgement has not reached the sender are outstanding to it.
        let (least_unknown, unknown) = self.clock.unknown_bytes(self.delivered_bytes);
        let pipe = self.packets(sent.pipe.saturating_add(unknown));
        // Only what is certainly in the network shows a larger window.
        let least_pipe =
            if least_unknown == unknown { pipe } else { self.packets(sent.pipe.saturating_add(least_unknown)) };
        let probe = sent.new_bytes > 0 && self.is_probe_beyond(sent, least_pipe, since_sent);
        let receiver_full = self.receiver_is_full(sent, unknown);
        let least_seen = least_pipe.saturating_sub(probe.into());
        let clocked = sent.new_bytes > 0 && self.note_signs(at, sent, least_seen, idle, since_sent, receiver_full);
        self.note_pace(at, sent);
        // A first flight above the expected window: how large the window was is unknown, and so is whether the sender filled it. A
        // start on our advice that carries a whole transfer looks like this.
        let window_unknown = self.first_flight && f64::from(pipe) > self.best_whole();
        if self.restarted > 0 && self.first_flight && !sent.advised {
            self.weigh_restart(least_seen);
        }
        match self.state {
            State::Open if sent.new_bytes > 0 && !probe => self.weigh_pipe(least_pipe),
            State::Recovery(_) => {
                let first = self.reduction.is_fresh();
                self.reduction.sent(self.packets(u64::from(sent.new_bytes) + u64::from(sent.retransmitted_bytes)));
                if first {
                    self.reno.cwnd.set(pipe);
                    self.cubic.cwnd.set(pipe);
                } else if unknown == 0 && !probe {
                    self.weigh_sent_in_recovery(pipe);
                }
                // Neither increases the bytes in the network.
                if self.pipe_at_loss > 0 && least_pipe > u32::from(self.pipe_at_loss) + 1 {
                    self.weigh_back_off(at, least_pipe);
                }
            }
            _ => {}
        }
        let outstanding =
            if sent.flight == sent.pipe { pipe } else { self.packets(sent.flight.saturating_add(unknown)) };
        let ahead = if unknown > 0 { self.packets(unknown) } else { 0 };
        let una = una.saturating_sub(unknown);
        self.reno.usage.record(&self.reno.cwnd, [outstanding, pipe, ahead], una, self.nxt);
        self.cubic.usage.record(&self.cubic.cwnd, [outstanding, pipe, ahead], una, self.nxt);
        let paced = !receiver_full && !self.clock.is_behind_queue();
        if let Some(bbr) = &mut self.bbr {
            bbr.on_sent(
                at,
                &Departure {
                    bytes: u64::from(sent.new_bytes) + u64::from(sent.retransmitted_bytes),
                    flight_bytes: sent.flight.saturating_add(unknown),
                    pipe_bytes: sent.pipe.saturating_add(unknown),
                    pipe_segments: pipe,
                    new: sent.new_bytes > 0,
                    idle,
                    dry: sent.ran_dry(self.mss),
                    pushed: !sent.more,
                    paced,
                },
            );
        }
        if sent.new_bytes > 0 {
            // Its window has not grown by those yet.
            let ahead = if unknown > 0 && self.phase() == Phase::SlowStart { ahead } else { 0 };
            let filled = self.known && f64::from(pipe.saturating_add(ahead)) >= self.best_whole();
            let filled = filled && !window_unknown;
            self.rounds.current.filled = (self.rounds.current.filled || filled) && !window_unknown;
            let stand = if receiver_full { Stand::Receiver } else { self.stand(sent, filled) };
            let let_go = clocked && self.leaning.best() != Flavour::Bbr;
            self.held.on_sent(at, stand, let_go, self.round());
            if unknown > 0 && stand == Stand::Full {
                // Acknowledgements that passed the tap make room in a moment.
                self.held.on_ack(at);
            }
            self.transfer.on_sent(sent.pipe.saturating_add(unknown), ahead);
        } else {
            let lost = matches!(self.state, State::Loss { .. });
            let filled = f64::from(pipe) >= self.best_whole();
            self.held.on_repeated(at, sent.repeats_wait, filled, lost);
        }
    }

    /// An acknowledgement came for the sender.
    pub fn on_ack(&mut self, at: Timestamp, acked: &Acked) {
        if self.mss == 0 {
            return;
        }
        self.settle_end();
        let una = self.nxt.saturating_sub(acked.flight);
        self.una = self.una.max(una);
        if let Some(rtt) = acked.rtt {
            self.take_rtt(at, rtt, acked.smoothed_rtt.unwrap_or(rtt), una);
            self.rounds.note_rtt(rtt);
        }
        let small_bytes = self.small.acked(una);
        if let State::Loss { advanced, .. } = &mut self.state {
            *advanced |= acked.acked_bytes > 0;
        }
        let newly_bytes = acked.delivered_bytes.saturating_sub(self.delivered_bytes);
        self.delivered_bytes = self.delivered_bytes.max(acked.delivered_bytes);
        if let State::Recovery(point) | State::Loss { until: point, .. } = self.state
            && una > point
        {
            // Mostly detected before. A reduction after an ECN echo lasts until data sent after it is acknowledged.
            self.weigh_cwr(at);
            self.leave_recovery();
        }
        if newly_bytes > 0 {
            self.held.on_ack(at);
            self.clock_ack(at);
        }
        let progress = Progress {
            at,
            delivered_segments: newly_bytes.saturating_add(u64::from(small_bytes)) as f32 / self.mss as f32,
            una,
            nxt: self.nxt,
            rtt: acked.rtt,
            spread: self.pacing.is_by_window(),
        };
        self.cubic.observe(&progress);
        if let State::Recovery(_) = self.state {
            let newly = newly_bytes.saturating_add(u64::from(small_bytes));
            if newly > 0 {
                self.weigh_stop_in_recovery();
                let newly = Bytes(newly).segments_ceil(Bytes(u64::from(self.mss))).0;
                let clean = acked.acked_bytes > 0 && acked.lost_bytes == 0 && !acked.lost_again;
                self.reduction.delivered(newly);
                self.weigh_reduction(at, acked.pipe);
                let step = ReductionStep { pipe: self.packets(acked.pipe), newly, clean };
                self.reno.reduce_on(&step, self.reduction);
                self.cubic.reduce_on(&step, self.reduction);
            }
        } else if acked.acked_bytes > 0 {
            self.grow(&progress);
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.on_ack(&Delivery {
                at,
                newest: acked.newest,
                rtt: acked.rtt,
                least_rtt: self.min_rtt.get(),
                delivered_bytes: self.delivered_bytes,
                newly_bytes,
                mss: self.mss,
                recovering: acked.repairs || (self.state != State::Open && !self.by_ecn),
            });
        }
        if let Some(ended) = self.rounds.on_ack(una, self.nxt) {
            if let Some((after_loss, min_rtt)) = self.after_loss.as_mut().zip(self.min_rtt.get()) {
                after_loss.count_round(at, self.delivered_bytes, min_rtt);
            }
            self.note_answer(ended);
            self.weigh_growth(ended);
            if !self.follows_growth() {
                self.weigh_clocking(at, ended);
            }
            self.weigh_filling(at, ended);
            if let Some(bbr) =
                self.bbr.as_mut().filter(|_| !ended.ran_dry && !ended.receiver_full && ended.full_sized > 0)
            {
                bbr.count_round();
            }
            if self.state == State::Open {
                self.rounds_since_loss = self.rounds_since_loss.saturating_add(1);
            }
        }
    }

    /// Everything outstanding at the loss is acknowledged.
    pub fn on_recovery_end(&mut self, at: Timestamp, _pipe: u64) {
        if self.state != State::Open {
            self.settle_end();
            self.weigh_cwr(at);
            self.leave_recovery();
        }
    }

    /// The last reduction was spurious (DSACK, timestamps): the sender undoes it.
    pub fn on_undo(&mut self, _at: Timestamp) {
        self.settle_end();
        self.reno.cwnd.undo();
        self.cubic.cwnd.undo();
        if let Some(bbr) = &mut self.bbr {
            bbr.undo();
        }
        self.state = State::Open;
        self.pipe_at_loss = 0;
        self.rounds.forget(self.nxt);
        self.clock.break_run();
    }

    /// Whether the replica's window is that of a window-limited sender. In slow start every acknowledgement opens it, and for a distant tap
    /// it is unknown which of them had reached the sender: only an equal pipe confirms it.
    fn confirms_window(&self, phase: Phase) -> bool {
        phase != Phase::SlowStart || self.rounds.recent().filled || self.clock.is_beside()
    }

    /// Records the sender's state when it sent the last new byte. Called before anything but new bytes changes it.
    pub(super) fn settle_end(&mut self) {
        if std::mem::take(&mut self.transfer.end_waits) {
            let (limiter, phase) = (self.limiter(self.last_sent.get().unwrap_or_default()), self.phase());
            let window_segments = (self.best_segments() - f64::from(self.transfer.ahead)).max(1.0);
            let limiter = match limiter {
                Limiter::Window if !self.confirms_window(phase) => Limiter::Unknown,
                limiter => limiter,
            };
            self.transfer.end = Some(TransferEnd { window_segments, limiter, phase });
        }
    }

    fn take_rtt(&mut self, at: Timestamp, rtt: Micros, smoothed: Micros, una: u64) {
        self.rto.add(smoothed, una, self.nxt);
        if self.min_rtt.get().is_none_or(|least| rtt < least) {
            (self.min_rtt, self.min_rtt_at) = (MaybeMicros::some(rtt), at);
        }
    }

    /// New data with nothing outstanding.
    fn resume(&mut self, at: Timestamp, idle: Micros) {
        let rto = self.rto.get();
        let restarts = idle > rto && self.kept_window < KEEPS_WINDOW;
        self.reno.resume(at, idle, rto, restarts);
        self.cubic.resume(at, idle, rto, restarts);
        let restarted = self.reno.cwnd.whole().max(self.cubic.cwnd.whole());
        self.restarted = if restarts { u8::try_from(restarted).unwrap_or(0) } else { 0 };
        if idle > rto {
            self.rounds.forget(self.nxt);
            self.held.resume();
            self.clock.resume();
        }
    }

    fn clock_ack(&mut self, at: Timestamp) {
        self.arrive(at);
        let filled = f64::from(self.rounds.current.pipe_max_segments) >= self.best_whole();
        let ends_flight = std::mem::take(&mut self.first_flight) && filled;
        self.clock.on_ack(at, self.delivered_bytes, ends_flight);
        self.arrive(at);
    }

    pub(super) fn arrive(&mut self, at: Timestamp) {
        let steady = self.clock.arrive(at, self.delivered_bytes);
        if let Some(steady) = steady.filter(|_| self.state == State::Open) {
            self.weigh_steady_pipe(&steady);
        }
    }

    fn grow(&mut self, progress: &Progress) {
        let reno = self.reno.grow(progress);
        let cubic = self.cubic.grow(progress);
        let earned = match self.leaning.best() {
            Flavour::Reno => reno,
            Flavour::Cubic => cubic,
            Flavour::Bbr | Flavour::Unknown => 0.0,
        };
        self.transfer.on_growth(earned);
    }

    /// The end of a reduction clears its round trip; if an ECN echo began it, its clocking is weighed first.
    fn weigh_cwr(&mut self, at: Timestamp) {
        if self.in_cwr() {
            self.weigh_clocking(at, self.rounds.current);
        }
    }

    pub(super) fn leave_recovery(&mut self) {
        if let State::Recovery(_) = self.state {
            self.reno.leave_recovery();
            self.cubic.leave_recovery();
        }
        self.state = State::Open;
        self.rounds.forget(self.nxt);
        self.rounds.note_loss();
        self.clock.break_run();
    }
}

/// Small segments kept; at the limit the newest two are merged, and acknowledged together.
const SMALL_ENTRIES: usize = 6;

/// A small segment: its end, and the bytes that it lacks to the full size.
#[derive(Clone, Copy, Debug)]
struct Small {
    /// Low half of its end's position in the stream.
    end: u32,
    lacks_bytes: u32,
}

/// Outstanding segments below the full size, in order of sequence: senders count packets, the scoreboard counts bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct SmallSegments {
    /// Most transfers have one, their last.
    entries: SmallVec<[Small; 2]>,
    lacks_bytes: u32,
}

impl SmallSegments {
    /// A segment up to `end` was sent, `lacks_bytes` short of a whole number of full ones.
    pub(super) fn sent(&mut self, end: u64, lacks_bytes: u32) {
        let end = low_half(end);
        self.lacks_bytes = self.lacks_bytes.saturating_add(lacks_bytes);
        if self.entries.len() < SMALL_ENTRIES {
            if self.entries.len() == self.entries.inline_size() {
                self.entries.reserve_exact(SMALL_ENTRIES - self.entries.len());
            }
            self.entries.push(Small { end, lacks_bytes });
        } else if let Some(last) = self.entries.last_mut() {
            last.end = end;
            last.lacks_bytes = last.lacks_bytes.saturating_add(lacks_bytes);
        }
    }

    /// Everything up to `una` is acknowledged; returns what the small segments among it lacked, in bytes.
    pub(super) fn acked(&mut self, una: u64) -> u32 {
        let una = low_half(una);
        let done = self.entries.iter().take_while(|small| una.wrapping_sub(small.end) < 1 << 31).count();
        let lacked = self.entries.drain(..done).map(|small| small.lacks_bytes).fold(0, u32::saturating_add);
        self.lacks_bytes = self.lacks_bytes.saturating_sub(lacked);
        lacked
    }

    /// Memory allocated beside it.
    pub(super) fn held_bytes(&self) -> usize {
        if self.entries.spilled() { allocated_for::<Small>(self.entries.capacity()) } else { 0 }
    }

    /// What those outstanding lack, in bytes.
    pub(super) fn lacks_bytes(&self) -> u64 {
        u64::from(self.lacks_bytes)
    }
}
