//! Careful Resume of one connection (RFC 9959): what quinn shows of it, as the contract's machine needs it. Does not decide what becomes of
//! quinn's algorithm.

use spand_proto::resume::{Ack, CarefulResume, Jump, Phase, Transition};
use spand_proto::units::Micros;

/// A connection that resumes carefully. Positions are the nanoseconds at which packets left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resuming {
    pub(super) machine: CarefulResume,
    jump: Jump,
    /// The position at which the start was given: what left before belongs to the handshake.
    began: u64,
    /// What is not acknowledged yet of the initial window.
    initial_left: u64,
    /// What was acknowledged since acknowledgements were last dealt with, and the newest of it.
    acked: u64,
    newest: u64,
    sent: u64,
    /// Bytes in flight. Between two batches they include packets that carry acknowledgements alone.
    flight: u64,
}

/// What quinn shows after a batch of acknowledgements.
pub(super) struct Batch {
    pub(super) at: u64,
    pub(super) flight: u64,
    pub(super) rtt: Micros,
    pub(super) min_rtt: Micros,
    pub(super) window: u64,
    pub(super) app_limited: bool,
}

impl Resuming {
    /// Of a connection that sends its initial window from this position on.
    pub(super) fn new(initial_window: u64, jump: Jump, began: u64, mtu: u16) -> Self {
        let machine = CarefulResume::new(initial_window, began).with_packet(taken_by(mtu));
        Self { machine, jump, began, initial_left: initial_window, acked: 0, newest: 0, sent: 0, flight: 0 }
    }

    pub(super) const fn set_mtu(&mut self, mtu: u16) {
        self.machine = self.machine.with_packet(taken_by(mtu));
    }

    pub(super) fn on_sent(&mut self, at: u64, bytes: u64) -> Option<Transition> {
        self.sent = at;
        self.flight = self.flight.saturating_add(bytes);
        self.machine.on_sent(Micros(at / 1_000), at.saturating_add(1), self.flight)
    }

    /// A packet that left at this position is acknowledged.
    pub(super) fn on_ack(&mut self, sent: u64, bytes: u64) {
        self.acked += bytes;
        if sent >= self.began {
            self.initial_left = self.initial_left.saturating_sub(bytes);
        }
        self.newest = self.newest.max(sent.saturating_add(1));
    }

    /// `may_jump`: whether this connection is the one that jumps.
    pub(super) fn on_end_acks(&mut self, batch: &Batch, may_jump: impl FnOnce() -> bool) -> Option<Transition> {
        self.flight = batch.flight;
        let ack = Ack {
            now: Micros(batch.at / 1_000),
            acked: std::mem::take(&mut self.acked),
            newest: self.newest,
            sent: self.sent.saturating_add(1),
            flight: batch.flight,
            rtt: batch.rtt,
            min_rtt: batch.min_rtt,
            recovering: false,
        };
        // quinn does not show how much waits, but whether anything does.
        let waiting = if batch.app_limited { 0 } else { batch.window };
        if self.initial_left == 0 && self.machine.may_jump(&ack, waiting, batch.window) {
            return self.machine.jump(may_jump().then_some(self.jump), &ack, batch.window);
        }
        self.machine.on_ack(&ack)
    }

    /// Packets were lost, or one was marked.
    pub(super) fn on_congestion(&mut self, lost_bytes: u64, is_persistent: bool) -> Option<Transition> {
        self.flight = self.flight.saturating_sub(lost_bytes);
        let retreat = self.machine.on_congestion(self.sent.saturating_add(1));
        let timeout = is_persistent.then(|| self.machine.on_timeout()).flatten();
        timeout.or(retreat)
    }

    /// Whether Careful Resume sets the window, and quinn's algorithm does not.
    pub(super) const fn holds_window(&self) -> bool {
        self.machine.phase().holds_window()
    }

    pub(super) fn has_retreated(&self) -> bool {
        self.machine.ended_in() == Phase::SafeRetreat
    }
}

/// What must be left of a window for a packet to leave: quinn sends none that would fill the window to the byte.
const fn taken_by(mtu: u16) -> u64 {
    mtu as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u16 = 1_200;
    const PACKET: u64 = MTU as u64;
    const RTT: Micros = Micros::from_millis(100);
    const MS: u64 = 1_000_000;

    /// A connection that has jumped to 40 packets with 10 in flight, 200 ms after it began.
    fn jumped() -> Resuming {
        let jump = Jump { window: 40 * PACKET, saved_rtt: RTT };
        let mut resuming = Resuming::new(10 * PACKET, jump, 0, MTU);
        (0..20).for_each(|packet| assert_eq!(resuming.on_sent((100 + packet) * MS, PACKET), None));
        (0..10).for_each(|packet| resuming.on_ack((100 + packet) * MS, PACKET));
        let transition = resuming.on_end_acks(&batch(200, 10), || true).unwrap();
        assert_eq!((transition.phase, transition.window), (Phase::Unvalidated, Some(40 * PACKET)));
        resuming
    }

    fn batch(ms: u64, packets: u64) -> Batch {
        let (flight, window) = (packets * PACKET, 20 * PACKET);
        Batch { at: ms * MS, flight, rtt: RTT, min_rtt: RTT, window, app_limited: false }
    }

    #[test]
    fn the_packet_that_fills_the_window_ends_the_unvalidated_data() {
        let mut resuming = jumped();
        // quinn sends 39 packets at most. After each of those before, another one fits.
        (11..39).for_each(|packet| assert_eq!(resuming.on_sent((200 + packet) * MS, PACKET), None, "{packet}"));
        let transition = resuming.on_sent(240 * MS, PACKET).unwrap();
        assert_eq!((transition.phase, transition.window), (Phase::Validating, Some(39 * PACKET)));
        // A larger packet would not have fit before.
        let mut resuming = jumped();
        resuming.set_mtu(1_452);
        assert_eq!(resuming.on_sent(240 * MS, 28 * PACKET + 947), None);
        assert_eq!(resuming.on_sent(241 * MS, 1).unwrap().phase, Phase::Validating);
    }

    #[test]
    fn what_is_acknowledged_or_lost_leaves_the_flight() {
        let mut resuming = jumped();
        assert_eq!(resuming.on_sent(210 * MS, 28 * PACKET), None);
        // Five of what was in flight before the jump: five more fit.
        (10..15).for_each(|packet| resuming.on_ack((100 + packet) * MS, PACKET));
        let before_full = resuming.on_end_acks(&batch(215, 33), || false);
        assert_eq!(before_full, None);
        assert_eq!(resuming.on_sent(216 * MS, 5 * PACKET), None);
        assert_eq!(resuming.on_sent(217 * MS, PACKET).unwrap().window, Some(39 * PACKET));
        let mut resuming = jumped();
        resuming.on_congestion(4 * PACKET, false).unwrap();
        assert_eq!((resuming.flight, resuming.has_retreated()), (6 * PACKET, true));
    }

    #[test]
    fn a_sender_that_leaves_the_window_unused_ends_the_unvalidated_data_after_a_round_trip() {
        let mut resuming = jumped();
        assert_eq!(resuming.on_sent(300 * MS, PACKET), None);
        let transition = resuming.on_sent(301 * MS, 2 * PACKET).unwrap();
        assert_eq!((transition.phase, transition.window), (Phase::Validating, Some(13 * PACKET)));
    }
}
