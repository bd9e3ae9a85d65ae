//! Waiting in tests for what must come.

use std::time::{Duration, Instant};

/// How long at most. No limit of the gateway's: a machine that also compiles may be slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `step` has brought it about.
pub(crate) fn eventually(what: &str, mut step: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !step() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
