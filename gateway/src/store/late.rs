//! A store that could not be opened when the gateway started, because of its disk.

use std::path::PathBuf;

use super::sled_store::MAX_SET_ASIDE;
use super::{Change, EstimateStore, ExperimentChange, OpenError, Opened, SledStore, StoreError};
use crate::totals::TotalsChange;

/// Tries to open the store with each write. Nobody takes what it holds by then: networks stay in it until they change or the next start
/// reads them, an experiment until another is saved.
#[derive(Debug)]
pub struct LateStore {
    path: PathBuf,
    store: Option<SledStore>,
    /// Times that a new store could not be opened either; the one before was set aside each time.
    pub(super) renewed: u32,
}

impl LateStore {
    /// The store at `path`, not open yet.
    pub const fn new(path: PathBuf) -> Self {
        Self { path, store: None, renewed: 0 }
    }

    fn opened(&mut self) -> Result<&mut SledStore, StoreError> {
        match &mut self.store {
            Some(store) => Ok(store),
            closed => {
                if self.renewed >= MAX_SET_ASIDE {
                    let why = format!("{MAX_SET_ASIDE} new stores could not be opened");
                    return Err(StoreError::Broken { action: "open", why });
                }
                let opened = SledStore::open(&self.path).map_err(|error| {
                    self.renewed += u32::from(matches!(error, OpenError::New { .. }));
                    StoreError::from(&error)
                })?;
                Ok(closed.insert(taken_on(opened)))
            }
        }
    }
}

/// The store of one that was opened late, and a line about it.
fn taken_on(Opened { mut store, records, set_aside, experiment, .. }: Opened) -> SledStore {
    if let Some(set_aside) = set_aside {
        tracing::warn!("{set_aside}");
    }
    tracing::info!(
        networks = records.len(),
        "the store is open, and estimates are saved; the next start reads what it holds"
    );
    if matches!(experiment, Ok(Some(_))) {
        tracing::warn!("the experiment in the store is replaced by the present one once a host reports");
    }
    store.abandon_experiment();
    store
}

impl From<&OpenError> for StoreError {
    fn from(error: &OpenError) -> Self {
        Self::Database { action: "open", why: error.to_string() }
    }
}

impl EstimateStore for LateStore {
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.opened()?.save(changes)
    }

    fn save_experiment(&mut self, change: &ExperimentChange) -> Result<bool, StoreError> {
        self.opened()?.save_experiment(change)
    }

    fn save_totals(&mut self, change: &TotalsChange) -> Result<(), StoreError> {
        self.opened()?.save_totals(change)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.opened()?.flush()
    }
}
