//! Work side by side.

use std::thread;

use anyhow::{Context as _, Result, anyhow};

/// Does all work at once, each in a thread, and gives what came of it in order.
pub fn all<T: Send, W: FnOnce() -> Result<T> + Send>(work: impl IntoIterator<Item = W>) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let start = |work| {
            let thread = thread::Builder::new().name("client".to_owned());
            thread.spawn_scoped(scope, work).context("cannot start a thread")
        };
        let workers = work.into_iter().map(start).collect::<Result<Vec<_>>>()?;
        workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a client panicked"))?).collect()
    })
}
