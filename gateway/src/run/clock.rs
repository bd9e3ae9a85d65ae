//! From the kernel's time stamps to the packet clock.
//!
//! The kernel stamps packets by the wall clock, which an administrator may step; the packet clock runs by the monotonic
//! clock. Both are slewed alike, so between steps they differ by a constant, and within one only that constant moves:
//! round-trip times keep the kernel's precision, and a step changes nothing but the constant.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spand_proto::units::{Micros, Timestamp};

use crate::publisher::PacketClock;

/// Readings further apart than this are a step of the wall clock.
const STEP: Micros = Micros::from_millis(50);
/// Two clocks read further apart than this (the thread had to wait in between) say nothing about each other.
const SIMULTANEOUS: Micros = Micros(500);

/// Maps wall clock stamps to the packet clock.
#[derive(Clone, Debug)]
pub(super) struct StampClock<C> {
    clock: C,
    /// Packet clock less wall clock.
    offset_nanos: i128,
}

impl<C: PacketClock> StampClock<C> {
    /// A mapping to `clock`, from the difference of the clocks now.
    pub(super) fn new(clock: C) -> Self {
        let offset_nanos = difference(clock.now(), wall_clock());
        Self { clock, offset_nanos }
    }

    /// Compares the clocks; to be called now and then, best before a batch of stamps is mapped. Gives the packet clock's
    /// time, and whether the wall clock has been stepped since the last call.
    pub(super) fn check(&mut self) -> (Timestamp, bool) {
        let before = self.clock.now();
        let wall = wall_clock();
        let now = self.clock.now();
        let stepped = now.since(before) <= SIMULTANEOUS && self.compare(now, wall);
        (now, stepped)
    }

    fn compare(&mut self, now: Timestamp, wall: Timestamp) -> bool {
        let measured = difference(now, wall);
        let stepped = (measured - self.offset_nanos).unsigned_abs() > u128::from(STEP.0) * 1_000;
        if stepped {
            self.offset_nanos = measured;
        }
        stepped
    }

    /// The packet clock's time of a stamp read by `now`. A stamp from before a step back would lie in the future: it
    /// counts as now. One from before a step forward lies in the past, where the engine clamps it.
    pub(super) fn map(&self, stamp: Timestamp, now: Timestamp) -> Timestamp {
        let mapped = i128::from(stamp.0) + self.offset_nanos;
        let mapped = Timestamp(u64::try_from(mapped.max(0)).unwrap_or(u64::MAX));
        if mapped > now.after(STEP) { now } else { mapped }
    }
}

fn difference(a: Timestamp, b: Timestamp) -> i128 {
    i128::from(a.0) - i128::from(b.0)
}

fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl PacketClock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    const SECOND: u64 = 1_000_000_000;

    fn clock() -> StampClock<Fixed> {
        StampClock { clock: Fixed, offset_nanos: 0 }
    }

    #[test]
    fn a_step_moves_the_constant_and_not_the_packets() {
        let hour = 3_600 * SECOND;
        for (name, wall) in [("forward", 10_000 * SECOND + hour), ("back", 10_000 * SECOND - hour)] {
            let mut clock = clock();
            let now = Timestamp(10_000 * SECOND);
            assert!(clock.compare(now, Timestamp(wall)), "{name}");
            assert_eq!(clock.map(Timestamp(wall - 7), now), Timestamp(now.0 - 7), "{name}");
            assert!(!clock.compare(now, Timestamp(wall)), "{name}: one step is reported once");
        }
    }

    #[test]
    fn small_differences_are_noise_and_leave_stamps_alone() {
        let mut clock = clock();
        let now = Timestamp(10_000 * SECOND);
        assert!(!clock.compare(now, Timestamp(now.0 + 20_000_000)));
        assert_eq!(clock.map(Timestamp(now.0 - 1), now), Timestamp(now.0 - 1));
    }

    #[test]
    fn stamps_from_before_a_step_are_never_in_the_future() {
        let mut clock = clock();
        let now = Timestamp(10_000 * SECOND);
        let before_the_step = Timestamp(now.0 - 5);
        clock.compare(now, Timestamp(now.0 - 3_600 * SECOND));
        assert_eq!(clock.map(before_the_step, now), now);
        clock.compare(now, Timestamp(now.0 + 3_600 * SECOND));
        assert!(clock.map(before_the_step, now) < now);
        assert_eq!(clock.map(Timestamp(0), now), Timestamp(0), "and never below the epoch");
    }
}
