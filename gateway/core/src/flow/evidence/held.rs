//! What limited a sender, by time, as in the kernel's `tcp_chrono`.
//!
//! After each segment of new data the reason is kept why no other followed: the window was full, the peer's window was full, or
//! the application had no data. It applies until an acknowledgement makes room or more is sent. If no write of the application
//! ended with the segment (no PSH: RFC 9293 section 3.9.1, `tcp_push`), more data was queued: then the application is not the
//! limit.

use spand_proto::units::{Micros, Timestamp};

use crate::types::Limiter;

/// A sender that paces spreads its data over the round trip: after silence for this part of one, it has none.
const PACED_SILENCE: u64 = 4;

/// Why a sender sent no more than it did, after its last segment of new data.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Stand {
    /// Nothing was sent yet.
    #[default]
    Unknown,
    /// No data, as far as seen.
    Dry,
    /// The window was full; whether there was more data is unknown.
    Full,
    /// There was more data, and room in the peer's window.
    More,
    /// One more segment would not have fitted the peer's window.
    Receiver,
    /// Room for a segment or two, and shortly before for none: it waits for room for a burst (`tcp_tso_should_defer`).
    Waiting,
}

/// The state of a sender, and when it was last limited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    stand: Stand,
    /// The state after its last segment of new data.
    tail: Stand,
    /// When its window last limited it, and when its peer's.
    window: Mark,
    receiver: Mark,
    /// When its window was last full: one that paces may have more data, and room.
    full: Mark,
}

impl Held {
    /// New data was sent; `stand`: the state after it. `clocked`: an acknowledgement released it. `round`: a round trip.
    pub(super) fn on_sent(&mut self, at: Timestamp, stand: Stand, clocked: bool, round: Micros) {
        let receiver_lately = self.receiver.is_within(round, at);
        if clocked && self.stand == Stand::Dry && !receiver_lately {
            // There was more data after all.
            self.window = Mark::of(at);
        }
        self.tail = match stand {
            Stand::Receiver => {
                self.receiver = Mark::of(at);
                stand
            }
            Stand::More if receiver_lately => Stand::Waiting,
            _ => stand,
        };
        self.stand = self.tail;
    }

    /// Sending resumes after an idle time.
    pub(super) fn resume(&mut self) {
        (self.window, self.receiver, self.full) = (Mark::default(), Mark::default(), Mark::default());
    }

    /// A retransmission. `waits`: more lost data waits for it; `filled`: it fills the window, as does the first one after a timeout
    /// (`timed_out`), when the window is one segment.
    pub(super) fn on_repeated(&mut self, at: Timestamp, waits: bool, filled: bool, timed_out: bool) {
        if filled {
            self.full = Mark::of(at);
        }
        self.stand = match self.tail {
            _ if waits => Stand::More,
            Stand::Unknown | Stand::Dry if filled && timed_out => Stand::Full,
            tail => tail,
        };
    }

    /// An acknowledgement makes room.
    pub(super) fn on_ack(&mut self, at: Timestamp) {
        match self.stand {
            Stand::Unknown | Stand::Dry | Stand::Waiting => {}
            Stand::Receiver => self.receiver = Mark::of(at),
            Stand::More => self.window = Mark::of(at),
            Stand::Full => {
                (self.window, self.full) = (Mark::of(at), Mark::of(at));
                (self.stand, self.tail) = (Stand::Dry, Stand::Dry);
            }
        }
    }

    /// The same for a sender that paces (BBR), `silent` after its last segment. `ran_dry`: a recent segment was smaller than it could
    /// have been. `repairs`: retransmissions fill its window, which is not seen here.
    pub(super) fn limiter_of_paced(
        &self,
        now: Timestamp,
        round: Micros,
        silent: Micros,
        [ran_dry, repairs]: [bool; 2],
    ) -> Limiter {
        match self.limiter(now, round) {
            limiter if !ran_dry && silent.0 < round.0 / PACED_SILENCE => match limiter {
                Limiter::Application => Limiter::Window,
                limiter => limiter,
            },
            // It had data and room, but pacing delayed it, which is over.
            Limiter::Window if !repairs && self.stand == Stand::Dry && !self.full.is_within(round, now) => {
                Limiter::Application
            }
            limiter => limiter,
        }
    }

    /// What limited it in the `round` before `now`: its window if that ever did, unless the receiver did for most of it.
    pub(super) fn limiter(&self, now: Timestamp, round: Micros) -> Limiter {
        let window = matches!(self.stand, Stand::Full | Stand::More);
        let receiver = matches!(self.stand, Stand::Receiver | Stand::Waiting);
        if self.stand == Stand::Unknown {
            Limiter::Unknown
        } else if receiver && !self.window.is_within(Micros(round.0 / 2), now) {
            Limiter::Receiver
        } else if window || self.window.is_within(round, now) {
            Limiter::Window
        } else if receiver || self.receiver.is_within(round, now) {
            Limiter::Receiver
        } else {
            Limiter::Application
        }
    }
}

/// A time, its low half in microseconds: an idle time clears older ones before that wraps. 0 is never.
#[derive(Clone, Copy, Debug, Default)]
struct Mark(u32);

impl Mark {
    fn of(at: Timestamp) -> Self {
        Self(low_half_us(at).max(1))
    }

    fn is_within(self, time: Micros, now: Timestamp) -> bool {
        self.0 > 0 && u64::from(low_half_us(now).wrapping_sub(self.0)) <= time.0
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low_half_us(at: Timestamp) -> u32 {
    (at.0 / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Micros = Micros(100_000);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(ms * 1_000)
    }

    /// A sender in this state at 0 ms.
    fn standing(stand: Stand) -> Held {
        let mut held = Held::default();
        assert_eq!(held.limiter(at(0), ROUND), Limiter::Unknown);
        held.on_sent(at(0), stand, false, ROUND);
        held
    }

    #[test]
    fn a_full_window_counts_for_a_round_trip_after_the_acknowledgement_that_made_room() {
        let mut held = standing(Stand::Full);
        held.on_ack(at(300));
        assert_eq!(held.limiter(at(400), ROUND), Limiter::Window);
        held.on_ack(at(390));
        assert_eq!(
            held.limiter(at(401), ROUND),
            Limiter::Application,
            "what it had left went out with the full window"
        );
    }

    #[test]
    fn a_sender_that_had_more_is_never_held_by_its_application() {
        let mut held = standing(Stand::More);
        held.on_ack(at(10));
        assert_eq!(held.limiter(at(900), ROUND), Limiter::Window);
        held.on_sent(at(910), Stand::Dry, false, ROUND);
        held.on_ack(at(1_000));
        assert_eq!(held.limiter(at(1_020), ROUND), Limiter::Application);
        held.on_sent(at(1_021), Stand::Dry, true, ROUND);
        assert_eq!(
            held.limiter(at(1_030), ROUND),
            Limiter::Window,
            "an acknowledgement let go what seemed not to be there"
        );
    }

    #[test]
    fn what_was_lost_waits_for_the_window() {
        let mut held = standing(Stand::Dry);
        held.on_repeated(at(0), true, false, false);
        assert_eq!(held.limiter(at(900), ROUND), Limiter::Window);
        held.on_repeated(at(0), false, false, false);
        assert_eq!(held.limiter(at(900), ROUND), Limiter::Application);
        held.on_repeated(at(0), false, true, true);
        assert_eq!(held.limiter(at(900), ROUND), Limiter::Window, "a timeout left a window of one segment");
    }

    #[test]
    fn a_receiver_is_the_limit_until_there_was_room_for_a_round_trip() {
        let mut held = standing(Stand::More);
        held.on_ack(at(10));
        held.on_sent(at(10), Stand::Receiver, true, ROUND);
        assert_eq!(held.limiter(at(50), ROUND), Limiter::Window, "for most of the round trip it was the window");
        assert_eq!(held.limiter(at(70), ROUND), Limiter::Receiver);
        held.on_ack(at(200));
        held.on_sent(at(200), Stand::More, true, ROUND);
        held.on_ack(at(250));
        assert_eq!(held.limiter(at(260), ROUND), Limiter::Receiver, "room for a segment is no window");
        held.on_sent(at(320), Stand::More, true, ROUND);
        held.on_ack(at(330));
        assert_eq!(held.limiter(at(340), ROUND), Limiter::Window);
    }

    #[test]
    fn a_paced_sender_has_nothing_once_it_is_silent() {
        let held = standing(Stand::Dry);
        let limiter = |silent, ran_dry| held.limiter_of_paced(at(30), ROUND, Micros(silent), [ran_dry, false]);
        assert_eq!(limiter(20_000, false), Limiter::Window);
        assert_eq!(limiter(20_000, true), Limiter::Application);
        assert_eq!(limiter(30_000, false), Limiter::Application);
    }

    #[test]
    fn what_its_pace_held_back_is_no_window_once_it_is_sent() {
        let mut held = standing(Stand::More);
        held.on_ack(at(10));
        held.on_sent(at(20), Stand::Dry, false, ROUND);
        let limiter = |held: &Held, repairs| held.limiter_of_paced(at(30), ROUND, Micros(10_000), [true, repairs]);
        assert_eq!(limiter(&held, false), Limiter::Application);
        assert_eq!(limiter(&held, true), Limiter::Window, "repeats may fill it");
        let mut full = standing(Stand::Full);
        full.on_ack(at(10));
        assert_eq!(limiter(&full, false), Limiter::Window);
    }
}
