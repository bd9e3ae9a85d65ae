//! Waiting for what must come.

use std::time::{Duration, Instant};

/// How long a test waits for it at most. No limit of the agent's: a machine that also compiles may be slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What `future` gives.
pub(crate) async fn awaited<T>(what: &str, future: impl Future<Output = T>) -> T {
    let given = tokio::time::timeout(PATIENCE, future).await;
    given.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}
