//! The packet clock outside the engine: what a capture would stamp on a packet that arrived now.
//!
//! Ages and delays are differences to packet times, so they are taken on the packets' clock. It runs by the monotonic
//! clock: a step of the wall clock changes nothing here.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spand_proto::units::{Micros, Timestamp};

/// The packets' clock.
pub trait PacketClock: Send + Sync + 'static {
    /// The time a packet captured now would carry.
    fn now(&self) -> Timestamp;
}

/// A packet clock that took the wall clock once and runs on by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    started: Instant,
    started_at: Timestamp,
}

impl MonotonicClock {
    /// A clock that agrees with the wall clock now.
    pub fn from_wall_clock() -> Self {
        // A clock before 1970 counts from 1970: still monotonic, still consistent.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { started: Instant::now(), started_at: Timestamp::default().after(Micros::from(since_epoch)) }
    }
}

impl PacketClock for MonotonicClock {
    fn now(&self) -> Timestamp {
        self.started_at.after(Micros::from(self.started.elapsed()))
    }
}
