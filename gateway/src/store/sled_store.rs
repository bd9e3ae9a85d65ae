//! The store on sled 0.34.
//!
//! Everything that touches the database runs contained ([`contained`]). The database's own timed flush is off: the
//! writer flushes when it knows what it has written.

use std::path::Path;

use sled::{Batch, Db};
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;

use super::cause::{Failed, contained, discard};
use super::codec;
use super::directory::{Damage, Directory, Found, SetAside};
use super::experiment::{self, Held};
use super::opening::{Contents, no_thread, read};
use super::totals;
use super::{Change, EstimateStore, ExperimentChange, NotContinued, OpenError, SavedExperiment, StoreError};
use crate::totals::{Point, Step, TotalsChange};

/// A store on disk.
#[derive(Debug)]
pub struct SledStore {
    database: Database,
    read: Read,
    /// Times it was set aside since it was opened.
    set_aside: u32,
    /// It holds entries of an experiment that is not continued.
    stale_experiment: bool,
    /// It lost hosts of the experiment that were saved to it.
    lacks_hosts: bool,
    /// Dropped last: the lock is held until the database is closed.
    directory: Directory,
}

type Read = fn(&Directory) -> Result<Result<Contents, String>, OpenError>;

#[derive(Debug)]
enum Database {
    Open(Db),
    /// A write failed, and after a disk error sled refuses everything: the next attempt opens it again.
    Closed,
    /// It panicked, or was set aside too often.
    Broken,
}

/// A store just opened.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SledStore,
    /// What it holds, in order of network.
    pub records: Vec<(Network, NetworkRecord)>,
    /// Entries that could not be read and were left out.
    pub unreadable: usize,
    /// The store found before, where it had to be set aside.
    pub set_aside: Option<SetAside>,
    /// The experiment that it holds, where it holds one, or why that is not continued.
    pub experiment: Result<Option<SavedExperiment>, NotContinued>,
    /// Steps of the history of the whole, and how many could not be read and were left out.
    pub totals: (Vec<(Step, Point)>, usize),
}

/// Changes written together. Small enough that a batch stays far below the database's 512 KiB segment.
const BATCH_CHANGES: usize = 128;
/// Times that a gateway sets its store aside while it runs: where a new one cannot be read either, each attempt would leave one
/// more copy on a disk that keeps nothing.
pub(super) const MAX_SET_ASIDE: u32 = 4;

impl SledStore {
    /// Opens the store at `path`, or makes one. One that is damaged or of another version is set aside and replaced by an empty one.
    pub fn open(path: &Path) -> Result<Opened, OpenError> {
        let directory = Directory::lock(path)?;
        let (mut set_aside, fresh) = match directory.look()? {
            Found::Store => (None, false),
            Found::Nothing => (None, true),
            Found::Bad(damage) => (Some(directory.set_aside(damage)?), true),
        };
        directory.make_where_missing()?;
        let opened = match read(&directory)? {
            Ok(opened) => opened,
            Err(why) if fresh => return Err(OpenError::New { path: path.to_owned(), why }),
            Err(why) => {
                set_aside = Some(directory.set_aside(Damage::Unreadable(why))?);
                directory.make_where_missing()?;
                read(&directory)?.map_err(|why| OpenError::New { path: path.to_owned(), why })?
            }
        };
        let Contents { database, records, unreadable, experiment: Held { experiment, stale }, totals } = opened;
        let database = Database::Open(database);
        let store = Self { database, read, set_aside: 0, stale_experiment: stale, lacks_hosts: false, directory };
        Ok(Opened { store, records, unreadable, set_aside, experiment, totals })
    }

    /// Removes the experiment: the next one starts from zero.
    pub fn remove_experiment(&mut self) -> Result<(), StoreError> {
        self.run("remove the experiment", experiment::clear)?;
        self.stale_experiment = false;
        Ok(())
    }

    /// The experiment that it holds is not continued: it goes once another is saved.
    pub(super) const fn abandon_experiment(&mut self) {
        self.stale_experiment = true;
    }

    pub(super) fn run(
        &mut self,
        action: &'static str,
        work: impl FnOnce(&Db) -> sled::Result<()> + Send,
    ) -> Result<(), StoreError> {
        self.reopen_closed(action)?;
        let Database::Open(database) = &self.database else {
            return Err(StoreError::Broken { action, why: "it failed before".to_owned() });
        };
        match contained(|| work(database)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.close();
                Err(StoreError::Database { action, why: error.to_string() })
            }
            // Nothing was tried: the database is as it was.
            Err(Failed::NoThread(error)) => Err(StoreError::Database { action, why: no_thread(&error) }),
            Err(Failed::Panicked(why)) => {
                // Forgotten and not dropped: dropping flushes, and what panicked once would panic again.
                std::mem::forget(std::mem::replace(&mut self.database, Database::Broken));
                Err(StoreError::Broken { action, why })
            }
        }
    }

    fn reopen_closed(&mut self, action: &'static str) -> Result<(), StoreError> {
        if matches!(self.database, Database::Closed) { self.reopen(action) } else { Ok(()) }
    }

    /// Opens the database once more after an error. Where what the disk was too small for cannot be read either, it is set
    /// aside as at a start, and what changes from now on goes to an empty one; not for ever.
    fn reopen(&mut self, action: &'static str) -> Result<(), StoreError> {
        let refused = |why: String| StoreError::Database { action, why };
        let no_room = |error: OpenError| refused(error.to_string());
        // The disk may have been too small for it since one was set aside.
        self.directory.make_where_missing().map_err(no_room)?;
        let opened = match (self.read)(&self.directory).map_err(no_room)? {
            Ok(opened) => opened,
            Err(why) if self.set_aside >= MAX_SET_ASIDE => {
                self.database = Database::Broken;
                let why = format!("it was set aside {MAX_SET_ASIDE} times and cannot be read again ({why})");
                return Err(StoreError::Broken { action, why });
            }
            Err(why) => {
                self.set_aside += 1;
                let aside = self.directory.set_aside(Damage::Unreadable(why)).map_err(no_room)?;
                tracing::warn!("{aside}");
                self.directory.make_where_missing().map_err(no_room)?;
                (self.read)(&self.directory).map_err(no_room)?.map_err(refused)?
            }
        };
        self.database = Database::Open(opened.database);
        self.stale_experiment = opened.experiment.stale;
        self.lacks_hosts |= !matches!(opened.experiment.experiment, Ok(Some(_)));
        Ok(())
    }

    pub(super) fn close(&mut self) {
        if let Database::Open(database) = std::mem::replace(&mut self.database, Database::Closed) {
            discard(database);
        }
    }
}

impl EstimateStore for SledStore {
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.run("save", |database| {
            for changes in changes.chunks(BATCH_CHANGES) {
                let mut batch = Batch::default();
                for (network, record) in changes {
                    let key = codec::key(*network);
                    match record {
                        Some(record) => batch.insert(key.as_slice(), codec::sealed(&key, record)?),
                        None => batch.remove(key.as_slice()),
                    }
                }
                database.apply_batch(batch)?;
            }
            Ok(())
        })
    }

    fn save_experiment(&mut self, change: &ExperimentChange) -> Result<bool, StoreError> {
        const SAVE: &str = "save the experiment";
        self.reopen_closed(SAVE)?;
        if self.stale_experiment {
            self.remove_experiment()?;
        }
        self.run(SAVE, |database| experiment::write(database, change, || {}))?;
        self.lacks_hosts &= !change.all_hosts;
        Ok(!self.lacks_hosts)
    }

    fn save_totals(&mut self, change: &TotalsChange) -> Result<(), StoreError> {
        self.run("save the history of the whole", |database| totals::write(database, change))
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.run("flush", |database| database.flush().map(drop))
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_set_aside_on_a_full_disk_is_created_again_with_its_version_once_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("estimates");
        let mut store = SledStore::open(&path).unwrap().store;
        store.close();
        // As where there was room for moving it aside, and none for making another.
        store.directory.set_aside(Damage::Unreadable("torn".to_owned())).unwrap();
        store.save(&[(Network::of([203, 0, 113, 1].into()), None)]).unwrap();
        store.flush().unwrap();
        drop(store);
        assert_eq!(SledStore::open(&path).unwrap().set_aside, None);
    }

    #[test]
    fn a_store_that_cannot_be_created_again_either_is_set_aside_a_few_times_and_then_fails_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = SledStore::open(&dir.path().join("estimates")).unwrap().store;
        store.close();
        store.read = |_| Ok(Err("torn".to_owned()));
        let change = [(Network::of([203, 0, 113, 1].into()), None)];
        let errors: Vec<_> = (0..20).map(|_| store.save(&change).unwrap_err()).collect();
        let broken = errors.iter().filter(|error| matches!(error, StoreError::Broken { .. })).count();
        assert_eq!(broken, 16, "{errors:?}");
        let first = errors[4].to_string();
        assert!(first.contains("nothing more is saved") && first.contains("set aside 4 times"), "{first}");
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let aside = names.filter(|name| name.to_string_lossy().contains("damaged")).count();
        assert_eq!(aside, 3, "the newest of the four");
    }
}
