//! Rows on this kernel.

mod buffers;
mod crowd;
mod growth;
mod hops;
mod lanes;
mod mice;
mod overflow;
mod satellite;
#[cfg(test)]
mod tests;

use std::thread;

use anyhow::{Result, anyhow};

use crate::papers::row::Row;

/// All of them, in the page's order.
pub(super) fn all() -> Vec<Row> {
    vec![
        hops::five_bottlenecks(),
        crowd::long_lives(),
        crowd::short_lives(),
        satellite::satellite(),
        growth::followed(),
        overflow::overflow(),
        mice::burst_tcp(),
        buffers::estimates(),
    ]
}

/// Does the work of each of `count` networks in a thread of its own.
fn side_by_side(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..count).map(|network| scope.spawn(move || work(network))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a client panicked"))?)
    })
}
