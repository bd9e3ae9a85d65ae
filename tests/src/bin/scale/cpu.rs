//! What work costs in CPU time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// CPU time of all threads, and of the one that asks.
pub(super) const PROCESS: ClockId = ClockId::CLOCK_PROCESS_CPUTIME_ID;
pub(super) const THREAD: ClockId = ClockId::CLOCK_THREAD_CPUTIME_ID;

/// CPU time of one kind of work of the engine's thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) count: u64,
    cpu: Duration,
}

impl Cost {
    /// Does it, and counts it.
    pub(super) fn of<T>(&mut self, count: usize, work: impl FnOnce() -> T) -> T {
        let begun = cpu(THREAD);
        let done = work();
        self.cpu += cpu_since(THREAD, begun);
        self.count += count as u64;
        done
    }

    pub(super) fn each_us(self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count as f64
    }
}

pub(super) fn cpu(clock: ClockId) -> Duration {
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

pub(super) fn cpu_since(clock: ClockId, earlier: Duration) -> Duration {
    cpu(clock).saturating_sub(earlier)
}
