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

use anyhow::{Result, bail};

use crate::campaign::together;
use crate::papers::row::{Judged, Outcomes, Run};

/// Runs a setting, and judges what no query says.
type Experiment = (Run, Option<fn(&Outcomes) -> Judged>);

/// The experiment of this name.
pub(super) fn experiment(name: &str) -> Result<Experiment> {
    Ok(match name {
        "hops" => (hops::run, None),
        "crowd" => (crowd::run, None),
        "satellite" => (satellite::run, None),
        "growth" => (growth::run, None),
        "overflow" => (overflow::run, Some(overflow::judged)),
        "mice" => (mice::run, None),
        "buffers" => (buffers::run, Some(buffers::judged)),
        other => bail!("there is no experiment `{other}`"),
    })
}

/// Does the work of each of `count` networks in a thread of its own.
fn side_by_side(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    together::all((0..count).map(|network| move || work(network))).map(drop)
}
