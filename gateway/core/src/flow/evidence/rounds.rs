//! A sender's events by round trip: one ends when the highest byte sent at its start is acknowledged. What limited it is kept by
//! time, in [`super::held`].

use spand_proto::units::Micros;

/// What happened in one round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// One more segment would not have fitted the peer's window.
    pub(super) receiver_full: bool,
    /// A segment below the full size, or new data with nothing outstanding: the application had no more data.
    pub(super) ran_dry: bool,
    /// A segment waited in a queue before the tap.
    pub(super) waited: bool,
    /// Full-sized segments of new data.
    pub(super) full_sized: u16,
    /// Those of them that an acknowledgement released.
    pub(super) clocked: u16,
    /// Most segments that left at once although no acknowledgement released them.
    pub(super) burst: u16,
    /// Largest pipe in segments.
    pub(super) pipe_max_segments: u32,
    /// Smallest round-trip time in microseconds; 0 without one.
    pub(super) rtt_least_us: u32,
}

impl Signs {
    fn with(self, other: Self) -> Self {
        Self {
            receiver_full: self.receiver_full || other.receiver_full,
            ran_dry: self.ran_dry || other.ran_dry,
            waited: self.waited || other.waited,
            full_sized: self.full_sized.saturating_add(other.full_sized),
            clocked: self.clocked.saturating_add(other.clocked),
            burst: self.burst.max(other.burst),
            pipe_max_segments: self.pipe_max_segments.max(other.pipe_max_segments),
            rtt_least_us: [self, other]
                .map(|signs| signs.rtt_least_us)
                .into_iter()
                .filter(|us| *us > 0)
                .min()
                .unwrap_or(0),
        }
    }
}

/// Part of the least round trip by which all of a round trip's are longer where the path is full, and round trips for which that
/// counts.
const FULL_PART: u64 = 8;
const FULL_ROUNDS: u8 = 2;

/// Round trips of one sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    pub(super) current: Signs,
    last: Option<Signs>,
    /// After the last new segment the application had no more data.
    pub(super) dry: bool,
    /// In the current one the sender was seen pacing.
    pub(super) paced: bool,
    /// Segments of the burst under way.
    burst: u16,
    /// Round trips for which the path counts as full.
    full: u8,
    /// Position in the stream whose acknowledgement ends the current one.
    end: u64,
}

impl Rounds {
    /// An acknowledgement up to `una` when `nxt` was sent; returns the round trip that it ended.
    pub(super) fn on_ack(&mut self, una: u64, nxt: u64) -> Option<Signs> {
        if una < self.end {
            return None;
        }
        self.end = nxt;
        self.paced = false;
        let ended = std::mem::take(&mut self.current);
        self.last = Some(ended);
        Some(ended)
    }

    /// A segment came back after `rtt`.
    pub(super) fn note_rtt(&mut self, rtt: Micros) {
        let us = u32::try_from(rtt.0).unwrap_or(u32::MAX).max(1);
        let least_us = &mut self.current.rtt_least_us;
        *least_us = if *least_us == 0 { us } else { us.min(*least_us) };
    }

    /// Segments left that no acknowledgement released, right after the one before (`at_once`) or later.
    pub(super) fn note_burst(&mut self, segments: u32, at_once: bool) {
        let before = if at_once { self.burst } else { 0 };
        self.burst = before.saturating_add(u16::try_from(segments).unwrap_or(u16::MAX));
        self.current.burst = self.current.burst.max(self.burst);
    }

    /// A round trip ended, of a path whose least is `least`; returns whether the path was full.
    pub(super) fn note_full(&mut self, ended: Signs, least: Option<Micros>) -> bool {
        let full = least.is_some_and(|least| u64::from(ended.rtt_least_us) >= least.0 + least.0 / FULL_PART);
        self.full = if full { FULL_ROUNDS } else { self.full.saturating_sub(1) };
        full
    }

    /// Something was lost: the path is full.
    pub(super) fn note_loss(&mut self) {
        self.full = FULL_ROUNDS;
    }

    /// Whether the path was full lately: nobody could have sent more through it without a queue.
    pub(super) fn fills_path(&self) -> bool {
        self.full > 0
    }

    /// Clears the state from before a change of the window.
    pub(super) fn forget(&mut self, nxt: u64) {
        *self = Self { end: nxt, dry: self.dry, full: self.full, ..Self::default() };
    }

    /// The last full round trip and the current one together.
    pub(super) fn recent(&self) -> Signs {
        self.last.map_or(self.current, |last| last.with(self.current))
    }
}

#[cfg(test)]
mod tests {
    use spand_proto::units::{Bytes, Micros, Timestamp};

    use super::super::Evidence;
    use crate::flow::observation::{AckSample, Sent};
    use crate::types::{Limiter, SampleReason};

    const MSS: u64 = 1_000;

    fn opened() -> Evidence {
        let mut evidence = Evidence::new(0, false);
        evidence.on_open(Timestamp(0), Bytes(MSS), Some(Micros(100_000)));
        evidence
    }

    fn send(evidence: &mut Evidence, segments: u64, peer_window: u64) {
        for n in 1..=segments {
            let (pipe, peer_window) = (n * MSS, Some(peer_window));
            let sent = Sent { new_bytes: 1_000, full_sized: true, pipe, flight: pipe, peer_window, ..Sent::default() };
            evidence.on_sent(Timestamp(0), &sent);
        }
    }

    fn acknowledge(evidence: &mut Evidence, at: Timestamp, segments: u64) {
        let bytes = segments * MSS;
        evidence.on_ack(&AckSample { at, delivered: bytes, ..AckSample::default() });
    }

    #[test]
    fn a_transfer_that_leaves_in_one_flight_of_an_unknown_window_gives_a_lower_bound() {
        let mut evidence = opened();
        send(&mut evidence, 21, 1_000_000);
        acknowledge(&mut evidence, Timestamp::from_micros(100_000), 21);
        let end = evidence.on_transfer_end().unwrap();
        assert_eq!((end.reason, end.window.segments(Bytes(MSS)).0), (SampleReason::EndAppLimited, 21));
    }

    #[test]
    fn a_window_that_is_not_full_holds_a_sender_that_has_more() {
        let limiter = |more, repeats_wait| {
            let mut evidence = opened();
            let sent = Sent { new_bytes: 1_000, full_sized: true, more, pipe: 1_000, flight: 1_000, ..Sent::default() };
            evidence.on_sent(Timestamp(0), &sent);
            let again = Sent { new_bytes: 0, retransmitted_bytes: 1_000, repeats_wait, ..sent };
            evidence.on_sent(Timestamp::from_micros(1), &again);
            evidence.limiter(Timestamp::from_micros(500_000))
        };
        assert_eq!(limiter(true, false), Limiter::Window);
        assert_eq!(limiter(false, true), Limiter::Window, "something lost waits to be sent again");
        assert_eq!(limiter(false, false), Limiter::Application);
    }

    #[test]
    fn a_peers_window_has_moved_only_as_far_as_the_sender_knows() {
        let sent = Sent { flight: 5_000, peer_window: Some(8_000), ..Sent::default() };
        assert!(!opened().receiver_is_full(&sent, 0));
        assert!(opened().receiver_is_full(&sent, 2_000), "acknowledgements of two segments are on their way to it");
    }
}
