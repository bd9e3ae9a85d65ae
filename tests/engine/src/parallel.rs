//! Work on all processors.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};

/// What `work` makes of each item, in their order; `done` hears how many there are as they come.
///
/// # Errors
/// The first error of `work`, or that it panicked.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    done: &(dyn Fn(usize) + Sync),
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let some = || -> Result<Vec<(usize, R)>> {
        let mut made = Vec::new();
        while let Some((index, item)) = items.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            made.push((index, work(item)?));
            done(finished.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Ok(made)
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut made: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(some)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")));
        joined.collect::<Result<Vec<_>>>()
    })?
    .into_iter()
    .flatten()
    .collect();
    made.sort_unstable_by_key(|(index, _)| *index);
    Ok(made.into_iter().map(|(_, one)| one).collect())
}
