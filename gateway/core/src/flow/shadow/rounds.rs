//! A sender's events by round trip: one ends when the highest byte sent at its start is acknowledged. What limited it is kept by
//! time, in [`super::held`].

/// What happened in one round trip.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "signs are seen one by one, in any combination")]
pub(super) struct Signs {
    /// The pipe reached the window.
    pub(super) filled: bool,
    /// One more segment would not have fitted the peer's window.
    pub(super) receiver_full: bool,
    /// A segment below the full size, or new data with nothing outstanding: the application had no more data.
    pub(super) ran_dry: bool,
    /// The application's write ended with a segment of the next one: it may have had no data for a while.
    pub(super) pushed: bool,
    /// Full-sized segments of new data.
    pub(super) full_sized: u16,
    /// Those of them that an acknowledgement released.
    pub(super) clocked: u16,
    /// Largest pipe in segments.
    pub(super) pipe_max_segments: u32,
}

impl Signs {
    fn with(self, other: Self) -> Self {
        Self {
            filled: self.filled || other.filled,
            receiver_full: self.receiver_full || other.receiver_full,
            ran_dry: self.ran_dry || other.ran_dry,
            pushed: self.pushed || other.pushed,
            full_sized: self.full_sized.saturating_add(other.full_sized),
            clocked: self.clocked.saturating_add(other.clocked),
            pipe_max_segments: self.pipe_max_segments.max(other.pipe_max_segments),
        }
    }
}

/// Round trips after a change of the pipe in which a sender still counts as probing for more, and round trips without
/// a change after which it does not probe at all: BBR probes in one of eight.
const SEARCH_ROUNDS: u8 = 3;
const STILL_ROUNDS: u8 = 24;
/// Up to this pipe, in segments, that quarter may be two, a tenth or less.
const SMALL_PIPE: u32 = 30;

/// Round trips of one sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    pub(super) current: Signs,
    last: Option<Signs>,
    /// After the last new segment the application had no more data.
    pub(super) dry: bool,
    /// In the current one the sender was seen pacing.
    pub(super) paced: bool,
    /// Largest pipe of the round trip of its last change, in segments; 0 before the first.
    changed_pipe_segments: u32,
    /// Round trips since.
    still: u8,
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
        self.note_change(ended.pipe_max_segments);
        Some(ended)
    }

    fn note_change(&mut self, pipe: u32) {
        let before = self.changed_pipe_segments;
        let change = pipe.abs_diff(before);
        // A tenth: BBR sends a quarter more in one round trip of eight.
        if change > before / 10 {
            self.changed_pipe_segments = pipe;
            self.still = if before == 0 { SEARCH_ROUNDS } else { 0 };
        } else if change > 1 && before <= SMALL_PIPE {
            self.still = self.still.min(SEARCH_ROUNDS);
        } else {
            self.still = self.still.saturating_add(1);
        }
    }

    /// Whether the largest pipe changed recently.
    pub(super) fn searching(&self) -> bool {
        self.still < SEARCH_ROUNDS
    }

    /// Whether it has not changed for so long that no congestion control can be at work.
    pub(super) fn still(&self) -> bool {
        self.still > STILL_ROUNDS
    }

    /// Clears the state from before a change of the window.
    pub(super) fn forget(&mut self, nxt: u64) {
        *self = Self {
            end: nxt,
            dry: self.dry,
            changed_pipe_segments: self.changed_pipe_segments,
            still: self.still,
            ..Self::default()
        };
    }

    /// The last full round trip and the current one together.
    pub(super) fn recent(&self) -> Signs {
        self.last.map_or(self.current, |last| last.with(self.current))
    }
}

#[cfg(test)]
mod tests {
    use spand_proto::units::{Bytes, Micros, Timestamp};

    use super::super::Shadow;
    use super::super::observation::{Acked, Sent};
    use crate::types::{Limiter, SampleReason};

    const MSS: u64 = 1_000;

    fn opened() -> Shadow {
        let mut shadow = Shadow::new(0, false);
        shadow.on_open(Timestamp(0), Bytes(MSS), Some(Micros(100_000)));
        shadow
    }

    fn send(shadow: &mut Shadow, segments: u64, peer_window: u64) {
        for n in 1..=segments {
            let (pipe, peer_window) = (n * MSS, Some(peer_window));
            let sent = Sent { new_bytes: 1_000, full_sized: true, pipe, flight: pipe, peer_window, ..Sent::default() };
            shadow.on_sent(Timestamp(0), &sent);
        }
    }

    fn acknowledge(shadow: &mut Shadow, at: Timestamp, segments: u64) {
        let bytes = segments * MSS;
        shadow.on_ack(at, &Acked { acked_bytes: bytes, delivered_bytes: bytes, ..Acked::default() });
    }

    #[test]
    fn a_transfer_that_leaves_in_one_flight_of_an_unknown_window_gives_a_lower_bound() {
        let mut shadow = opened();
        send(&mut shadow, 21, 1_000_000);
        acknowledge(&mut shadow, Timestamp::from_micros(100_000), 21);
        let end = shadow.on_transfer_end(Timestamp::from_micros(900_000)).unwrap();
        assert_eq!((end.reason, end.window.segments(Bytes(MSS)).0), (SampleReason::EndAppLimited, 21));
    }

    #[test]
    fn the_usual_first_flight_fills_the_usual_window_and_shows_no_more_than_that() {
        let mut shadow = opened();
        send(&mut shadow, 10, 1_000_000);
        assert_eq!(shadow.on_transfer_end(Timestamp(0)).unwrap().reason, SampleReason::EndSlowStart);
    }

    #[test]
    fn a_window_that_is_not_full_holds_a_sender_that_has_more() {
        let limiter = |more, repeats_wait| {
            let mut shadow = opened();
            let sent = Sent { new_bytes: 1_000, full_sized: true, more, pipe: 1_000, flight: 1_000, ..Sent::default() };
            shadow.on_sent(Timestamp(0), &sent);
            let again = Sent { new_bytes: 0, retransmitted_bytes: 1_000, repeats_wait, ..sent };
            shadow.on_sent(Timestamp::from_micros(1), &again);
            shadow.limiter(Timestamp::from_micros(500_000))
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
