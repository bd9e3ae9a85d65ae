//! The store: what the gateway knows, kept over a restart.
//!
//! Losing it costs a cold start and nothing else, and the code is built on that: a store that cannot be read is set
//! aside with one clear line and never repaired. The database is sled 0.34 behind [`EstimateStore`]; the bytes inside
//! are ours, with a version and a checksum (`codec`).
//!
//! Knows nothing about samples, estimates or reports: records go in and come out as the engine gives them, and the experiment as
//! the API does.

mod cause;
mod codec;
mod directory;
mod experiment;
#[cfg(fuzzing)]
pub mod fuzzing;
mod late;
mod opening;
mod refused;
mod sled_store;
#[cfg(test)]
mod tests;
mod totals;
mod waiting;
mod writer;

use std::path::PathBuf;

use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;

use crate::totals::TotalsChange;

pub use self::directory::{Damage, SetAside};
pub use self::experiment::{Experiment, ExperimentChange, NewestBatch, NotContinued, ReportingHost, SavedExperiment};
pub use self::late::LateStore;
pub use self::refused::{Refused, RefusedLabels};
pub use self::sled_store::{Opened, SledStore};
pub use self::writer::{StoreMeasures, StoreWriter};

/// A change of one network: its record, or `None` where the network is gone.
pub type Change = (Network, Option<NetworkRecord>);

/// Where records are kept.
pub trait EstimateStore: Send + 'static {
    /// Saves changes. They are there after [`EstimateStore::flush`]; before that, a crash may lose any of them.
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// Saves a change of the experiment: hosts are on the disk before the comparison that counts their transfers. Gives whether
    /// the store has all its hosts then; where not, the next change should hold all of them. A store that outlives nothing
    /// need not keep it.
    fn save_experiment(&mut self, _change: &ExperimentChange) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Saves steps of the history of the whole. A store that outlives nothing need not keep them.
    fn save_totals(&mut self, _change: &TotalsChange) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns once everything saved is on the disk.
    fn flush(&mut self) -> Result<(), StoreError>;
}

/// Why a store could not be opened. Damage is no reason: a damaged store is set aside.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the lock.
    #[error("the store {0} is in use by another gateway: stop that one, or give this one a store of its own")]
    InUse(PathBuf),
    /// The directory holds something else.
    #[error("{0} holds files that are no store: name an empty or a new directory as the store")]
    NotAStore(PathBuf),
    /// The file system refused.
    #[error("the store {path} cannot be used: {action} failed: {error}; fix that, or choose another store.directory")]
    Io {
        /// The store.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The file system's error.
        error: std::io::Error,
    },
    /// The machine has no thread to open it with.
    #[error(
        "the store {path} cannot be opened: no thread could be started: {error}; raise the limit of tasks (ulimit -u, TasksMax=)"
    )]
    NoThread {
        /// The store.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// A new, empty store failed too.
    #[error("a new store at {path} cannot be opened: {why}")]
    New {
        /// The store.
        path: PathBuf,
        /// The database's error.
        why: String,
    },
}

impl OpenError {
    /// Whether the disk is the reason, as it is where a new, empty store failed too: the gateway can work without one, and the disk may
    /// recover.
    pub fn is_of_disk(&self) -> bool {
        match self {
            Self::Io { error, .. } => cause::is_disk(error),
            Self::New { .. } => true,
            Self::InUse(_) | Self::NotAStore(_) | Self::NoThread { .. } => false,
        }
    }
}

/// Why records could not be saved.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// The database refused.
    #[error("the database refused to {action}: {why}")]
    Database {
        /// What was tried.
        action: &'static str,
        /// The database's error.
        why: String,
    },
    /// The database panicked; it is not used any more.
    #[error(
        "the database failed while trying to {action}, and nothing more is saved until the gateway restarts: {why}"
    )]
    Broken {
        /// What was tried.
        action: &'static str,
        /// Its last words.
        why: String,
    },
}
