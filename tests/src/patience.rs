//! Waiting for what must come.

use std::time::Duration;

/// How long a test waits for it at most. No limit of the programs': a machine that also compiles may be slow.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Seconds in the environment that bound [`shortened`] waits: a test of what happens where nothing comes.
pub const PATIENCE_ENV: &str = "SPAND_PATIENCE_S";

/// `within`, or what [`PATIENCE_ENV`] allows of it.
pub fn shortened(within: Duration) -> Duration {
    let allowed = std::env::var(PATIENCE_ENV).ok().and_then(|seconds| seconds.parse().ok());
    allowed.map_or(within, |seconds| within.min(Duration::from_secs(seconds)))
}

/// What `future` gives.
///
/// # Panics
/// Where it gives nothing.
pub async fn awaited<T>(what: &str, future: impl Future<Output = T>) -> T {
    let given = tokio::time::timeout(PATIENCE, future).await;
    given.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}
