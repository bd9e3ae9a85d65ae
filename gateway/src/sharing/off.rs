//! A gateway without the feature `share`: there is nobody to share with.

use std::io;

use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::shard::Partition;
use spand_proto::units::Timestamp;

use super::Share;
use crate::publisher::Published;

/// An engine's end, of which there is none.
#[derive(Debug)]
pub enum EngineEnd {}

/// How sharing is, which nobody asks.
#[derive(Clone, Debug)]
pub enum ShareStatus {}

/// What runs, which is nothing.
#[derive(Debug)]
pub enum Sharing {}

impl EngineEnd {
    /// Exchanges nothing.
    pub fn turn(&mut self, _engine: &mut Engine, _now: Timestamp) -> bool {
        match *self {}
    }
}

impl Sharing {
    /// How it is.
    pub fn status(&self) -> &ShareStatus {
        match *self {}
    }

    /// Ends it.
    pub fn stop(self) {
        match self {}
    }
}

/// The most that sharing takes.
pub(crate) const fn most_bytes(engines: usize) -> usize {
    0
}

/// Starts nothing.
#[expect(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "as with the feature")]
pub(crate) fn start(
    (share, own): (&Share, Option<spand_cells::Sharing>),
    engines: (&EngineConfig, Partition, u64),
    published: &Published,
) -> io::Result<Option<(Sharing, Vec<EngineEnd>)>> {
    Ok(None)
}
