//! The pace of estimates, of snapshots and of changes: all subscribers together, and one page after the other.
//!
//! Starts, ends of estimates and leases that changed do not wait for it, and are not counted.
//!
//! A hundred agents that come back at once (the gateway was restarted) would otherwise have a million messages encoded,
//! sent and decoded before anything else; a start would wait behind them in every queue there is.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for one message: 50,000 a second over all subscribers, about a fifth of a core. 100 agents that
/// come back at once have 10,000 networks each within 20 seconds, and one alone within a fifth of one.
const MESSAGE: Duration = Duration::from_micros(20);

/// Hands out moments in the order asked.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next_free: Mutex<Option<Instant>>,
}

impl Pace {
    /// The moment from which on `messages` may be sent.
    pub(super) fn reserve(&self, messages: u32) -> Instant {
        let mut next_free = self.next_free.lock();
        let now = Instant::now();
        let turn = next_free.map_or(now, |free| free.max(now));
        *next_free = Some(turn + MESSAGE * messages);
        turn
    }
}
