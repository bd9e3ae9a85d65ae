//! The store: networks and the history of the whole, kept over a restart.
//!
//! Losing it costs a cold start and nothing else: a store that cannot be read is deleted with one line, and never repaired.

mod contained;
#[cfg(fuzzing)]
pub mod fuzzing;
mod refused;
mod sled_store;
#[cfg(test)]
mod tests;
mod waiting;
mod writer;

use std::path::PathBuf;

use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;

use crate::totals::TotalsChange;

pub use self::refused::{Refused, RefusedLabels};
pub use self::sled_store::{Contents, Opened, SledStore};
pub use self::writer::{StoreMeasures, StoreWriter};

/// A change of one network: its record, or `None` where the network is gone.
pub type Change = (Network, Option<NetworkRecord>);

/// Where records are kept.
pub trait EstimateStore: Send + 'static {
    /// Saves changes. They are there after [`EstimateStore::flush`]; before that, a crash may lose any of them.
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError>;

    /// Saves steps of the history of the whole. A store that outlives nothing need not keep them.
    fn save_totals(&mut self, _change: &TotalsChange) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns once everything saved is on the disk.
    fn flush(&mut self) -> Result<(), StoreError>;
}

/// Why a store could not be opened. Damage is no reason: a damaged store is deleted.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the lock.
    #[error("the store {0} is in use by another gateway: stop that one, or give this one a store of its own")]
    InUse(PathBuf),
    /// The directory holds something else.
    #[error("{0} holds files that are not of a store: name an empty or a new directory as the store")]
    NotAStore(PathBuf),
    /// The machine refused.
    #[error("the store {path} cannot be used: {action} failed: {error}; fix that, or choose another store.directory")]
    Io {
        /// The store.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// An empty store in the place of a damaged one failed too.
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
            Self::Io { error, .. } => sled_store::is_disk(error),
            Self::New { .. } => true,
            Self::InUse(_) | Self::NotAStore(_) => false,
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
