//! The agent's clock: it runs on while the host is suspended and is not moved when someone sets the time.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use spand_proto::units::{Micros, Timestamp};

/// Gives moments that only ever grow.
///
/// They start at the wall clock's time of the agent's start and run on by `CLOCK_BOOTTIME`, so a lifetime ends on time
/// after a suspend and after a step of the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall_at_start: Timestamp,
    boot_at_start: Timestamp,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { wall_at_start: wall(), boot_at_start: since_boot() }
    }

    /// Now.
    pub fn now(self) -> Timestamp {
        let passed_ns = since_boot().0.saturating_sub(self.boot_at_start.0);
        Timestamp(self.wall_at_start.0.saturating_add(passed_ns))
    }

    /// Time since the start.
    pub fn uptime(self) -> Micros {
        since_boot().since(self.boot_at_start)
    }
}

/// Seconds since 1970 by the wall clock, on which hosts agree: for time slots, never for lifetimes.
pub(crate) fn wall_unix_s() -> u64 {
    wall().0 / 1_000_000_000
}

/// Nanoseconds since 1970 by the wall clock.
pub(crate) fn wall_ns() -> u64 {
    wall().0
}

fn wall() -> Timestamp {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
}

/// By `CLOCK_BOOTTIME`.
pub(crate) fn since_boot() -> Timestamp {
    // The kernel has had this clock since 2.6.39 and cannot refuse to read it.
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).map(std::time::Duration::from).unwrap_or_default();
    Timestamp(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
