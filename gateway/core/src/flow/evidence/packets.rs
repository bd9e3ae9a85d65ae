//! The effect of each packet on the evidence: segments sent, small ones among them, acknowledgements, the ends of recovery.

use smallvec::SmallVec;
use spand_proto::units::{Micros, Timestamp};

use super::Evidence;
use super::bbr::{Delivery, Departure};
use super::held::Stand;
use super::sampling::TransferEnd;
use crate::flow::maybe::MaybeTime;
use crate::flow::observation::{AckSample, CaState, Sent};
use crate::flow::sequence::low_half;

impl Evidence {
    /// A packet with payload went out.
    pub(crate) fn on_sent(&mut self, at: Timestamp, sent: &Sent) {
        if self.mss == 0 {
            return;
        }
        if sent.new_bytes == 0 {
            self.settle_end();
        }
        let idle = sent.retransmitted_bytes == 0 && sent.flight <= u64::from(sent.new_bytes);
        let since_sent = self.last_sent.get().map(|last| at.since(last));
        if idle && let Some(since_sent) = since_sent {
            self.resume(since_sent);
        }
        self.last_sent = MaybeTime::some(at);
        self.waits.on_sent(at, sent.stamp);
        self.clock.wait(self.waits.queued());
        self.nxt = self.nxt.saturating_add(u64::from(sent.new_bytes));
        if sent.new_bytes > 0 && !sent.full_sized {
            self.small.sent(self.nxt, (self.mss - sent.new_bytes % self.mss) % self.mss);
        }
        self.clock.arrive(at);
        // Bytes whose acknowledgement has not reached the sender are outstanding to it.
        let unknown = self.clock.unknown_bytes(self.delivered_bytes);
        let pipe = self.packets(sent.pipe.saturating_add(unknown));
        let receiver_full = self.receiver_is_full(sent, unknown);
        let clocked = sent.new_bytes > 0 && self.note_signs(at, sent, pipe, idle, since_sent, receiver_full);
        self.note_pace(at, sent);
        // Neither Reno nor CUBIC increases the bytes in the network while it recovers.
        if self.ca.is_reducing() && self.pipe_at_loss > 0 && pipe > u32::from(self.pipe_at_loss) + 1 {
            self.weigh_back_off(at, pipe);
        }
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
            let has_more = sent.repeats_wait || (sent.more && sent.full_sized);
            let stand = match (receiver_full, has_more) {
                (true, _) => Stand::Receiver,
                (false, true) => Stand::More,
                (false, false) => Stand::Dry,
            };
            let let_go = clocked && !self.leaning.is_bbr();
            self.held.on_sent(at, stand, let_go, self.round());
            self.transfer.on_sent(sent.pipe.saturating_add(unknown));
            if self.ca.is_open() {
                let limited = self.rounds.dry || self.clock.is_behind_queue();
                self.growth.on_sent(pipe, self.delivered_segments(), limited);
            }
        } else {
            self.held.on_repeated(at, sent.repeats_wait, !self.ca.is_open(), self.ca.is_loss());
        }
    }

    /// An acknowledgement came for the sender.
    pub(crate) fn on_ack(&mut self, ack: &AckSample) {
        let at = ack.at;
        if self.mss == 0 {
            return;
        }
        self.settle_end();
        let una = self.nxt.saturating_sub(ack.flight);
        if let Some(rtt) = ack.rtt {
            self.rounds.note_rtt(rtt);
        }
        self.small.acked(una);
        self.growth.on_ack(self.delivered_segments());
        let newly_bytes = ack.delivered.saturating_sub(self.delivered_bytes);
        self.delivered_bytes = self.delivered_bytes.max(ack.delivered);
        if newly_bytes > 0 {
            self.held.on_ack(at);
            self.clock_ack(at);
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.on_ack(&Delivery {
                at,
                newest: ack.newest,
                rtt: ack.rtt,
                least_rtt: self.rtt.min(),
                delivered_bytes: self.delivered_bytes,
                newly_bytes,
                mss: self.mss,
                recovering: !matches!(self.ca, CaState::Open | CaState::Cwr),
            });
        }
        if let Some(ended) = self.rounds.on_ack(una, self.nxt) {
            if let Some((after_loss, min_rtt)) = self.after_loss.as_mut().zip(self.rtt.min()) {
                after_loss.count_round(at, self.delivered_bytes, min_rtt);
            }
            self.note_answer(ended);
            self.weigh_growth(ended);
            if !self.growth.is_stepped() {
                self.weigh_clocking(at, ended);
            }
            self.weigh_round(at, ended);
            if let Some(bbr) =
                self.bbr.as_mut().filter(|_| !ended.ran_dry && !ended.receiver_full && ended.full_sized > 0)
            {
                bbr.count_round();
            }
            if self.ca.is_open() {
                self.rounds_since_loss = self.rounds_since_loss.saturating_add(1);
            }
        }
    }

    /// Sets the sender's state. The end of a reduction discards its round trips.
    pub(crate) fn enter(&mut self, ca: CaState) {
        if !self.ca.is_open() && ca.is_open() {
            self.settle_end();
            self.leave_recovery();
        }
        self.ca = ca;
    }

    /// Records the sender's state when it sent the last new byte. Called before anything but new bytes changes it.
    pub(super) fn settle_end(&mut self) {
        if std::mem::take(&mut self.transfer.end_waits) {
            let (limiter, phase) = (self.limiter(self.last_sent.get().unwrap_or_default()), self.phase());
            let window_segments = self.recent_segments();
            self.transfer.end = Some(TransferEnd { window_segments, limiter, phase });
        }
    }

    /// New data with nothing outstanding.
    fn resume(&mut self, idle: Micros) {
        let rto = self.rtt.timeout();
        if idle > rto {
            self.growth.restart();
            self.rounds.forget(self.nxt);
            self.held.resume();
            self.clock.resume();
        }
    }

    fn clock_ack(&mut self, at: Timestamp) {
        let led = self.clock.led_by(at);
        self.rounds.current.clocked = self.rounds.current.clocked.saturating_add(led.into());
        self.clock.arrive(at);
        let ends_flight = std::mem::take(&mut self.first_flight) && !self.rounds.dry;
        self.clock.on_ack(at, self.delivered_bytes, ends_flight);
        self.clock.arrive(at);
    }

    pub(super) fn leave_recovery(&mut self) {
        self.rounds.forget(self.nxt);
        self.rounds.note_loss();
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
    /// Bytes that it may allocate.
    pub(super) const BESIDE_BYTES: usize = SMALL_ENTRIES * size_of::<Small>();

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

    /// Everything up to `una` is acknowledged.
    pub(super) fn acked(&mut self, una: u64) {
        let una = low_half(una);
        let done = self.entries.iter().take_while(|small| una.wrapping_sub(small.end) < 1 << 31).count();
        let lacked = self.entries.drain(..done).map(|small| small.lacks_bytes).fold(0, u32::saturating_add);
        self.lacks_bytes = self.lacks_bytes.saturating_sub(lacked);
    }

    /// What those outstanding lack, in bytes.
    pub(super) fn lacks_bytes(&self) -> u64 {
        u64::from(self.lacks_bytes)
    }
}
