//! When the bytes of a first flight may leave, for an application that spreads them itself.

use std::time::{Duration, Instant};

use crate::table::Pacing;

/// Shares of a burst that are written together: fewer would wake the application for each packet.
const STEPS: u64 = 5;

/// The schedule of a first flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    began: Instant,
    pacing: Option<Pacing>,
    /// Payload of a full-sized packet: parts that are no multiple of it would leave in more packets.
    packet_bytes: u64,
    /// What the first flight has, beyond which acknowledgements set the time.
    window_bytes: u64,
    /// When the first acknowledgements are back.
    round: Duration,
}

/// What may be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ready {
    /// This many bytes, now.
    Write(u64),
    /// Nothing until this time has passed.
    Wait(Duration),
}

impl Pace {
    /// Of a start with this window, over a path of this round trip. `packet_bytes` is the payload of a full-sized packet, its stream
    /// frame's header left out.
    pub fn new(pacing: Pacing, packet_bytes: u64, window_bytes: u64, round: Duration) -> Self {
        Self { began: Instant::now(), pacing: Some(pacing), packet_bytes: packet_bytes.max(1), window_bytes, round }
    }

    /// Without limits.
    pub fn at_once() -> Self {
        Self { began: Instant::now(), pacing: None, packet_bytes: 1, window_bytes: 0, round: Duration::ZERO }
    }

    /// The same schedule, which begins now.
    #[must_use]
    pub const fn from(self, now: Instant) -> Self {
        Self { began: now, ..self }
    }

    /// What may be written now, after `written` bytes of the flight.
    pub fn ready(&self, written: u64, now: Instant) -> Ready {
        let passed = now.saturating_duration_since(self.began);
        let Some(pacing) = self.pacing.filter(|_| written < self.window_bytes && passed < self.round) else {
            return Ready::Write(u64::MAX);
        };
        let rate = pacing.bytes_per_s.max(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a round trip's bytes")]
        let due = pacing.burst_bytes.saturating_add((passed.as_secs_f64() * rate as f64) as u64);
        let step = (pacing.burst_bytes / STEPS).next_multiple_of(self.packet_bytes).max(self.packet_bytes);
        // The first acknowledgements lift the limit.
        let lifted = self.round.saturating_sub(passed);
        match due.checked_sub(written) {
            Some(room) if room >= step => Ready::Write(room - room % self.packet_bytes),
            room => {
                let lacking = (step - room.unwrap_or(0)).saturating_add(written.saturating_sub(due));
                let due_in = Duration::try_from_secs_f64(lacking as f64 / rate as f64);
                Ready::Wait(due_in.map_or(lifted, |time| time.min(lifted)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_leaves_as_a_burst_and_then_at_its_rate_until_acknowledgements_are_back() {
        let pacing = Pacing { burst_bytes: 10_000, bytes_per_s: 100_000 };
        let began = Instant::now();
        let pace = Pace::new(pacing, 1_000, 30_000, Duration::from_millis(150)).from(began);
        let at = |ms: u64| began + Duration::from_millis(ms);
        assert_eq!(pace.ready(0, at(0)), Ready::Write(10_000));
        assert_eq!(pace.ready(10_000, at(0)), Ready::Wait(Duration::from_millis(20)), "a fifth of the burst");
        assert_eq!(pace.ready(10_000, at(20)), Ready::Write(2_000));
        assert_eq!(pace.ready(12_000, at(25)), Ready::Wait(Duration::from_millis(15)));
        assert_eq!(pace.ready(20_000, at(145)), Ready::Write(4_000), "whole packets");
        assert_eq!(pace.ready(24_000, at(140)), Ready::Wait(Duration::from_millis(10)), "no longer than a round trip");
        assert_eq!(pace.ready(24_000, at(150)), Ready::Write(u64::MAX));
        assert_eq!(pace.ready(30_000, at(1)), Ready::Write(u64::MAX), "the flight is over");
        let slow = Pacing { burst_bytes: 0, bytes_per_s: 0 };
        let endless = Pace::new(slow, u64::MAX, 30_000, Duration::from_millis(150)).from(began);
        assert_eq!(endless.ready(0, at(0)), Ready::Wait(Duration::from_millis(150)));
        assert_eq!(Pace::at_once().ready(0, at(0)), Ready::Write(u64::MAX));
    }
}
