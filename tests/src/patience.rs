//! Waiting for what must come.

use std::time::Duration;

/// How long a test waits for it at most. No limit of the programs': a machine that also compiles may be slow.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What `future` gives.
///
/// # Panics
/// Where it gives nothing.
pub async fn awaited<T>(what: &str, future: impl Future<Output = T>) -> T {
    let given = tokio::time::timeout(PATIENCE, future).await;
    given.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}
