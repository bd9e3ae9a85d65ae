//! The store on sled 0.34.
//!
//! Everything that touches the database runs contained ([`super::contain`]). The database's own timed flush is off: the
//! writer flushes when it knows what it has written.

use std::fs;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sled::{Batch, Db};
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;

use super::cause::{is_environment, is_lock_held};
use super::codec;
use super::contain::{Failed, contained, discard};
use super::directory::{Damage, Directory, Found, SetAside};
use super::{Change, EstimateStore, OpenError, StoreError};

/// A store on disk.
#[derive(Debug)]
pub struct SledStore {
    database: Database,
    /// Dropped last: the lock is held until the database is closed.
    directory: Directory,
}

#[derive(Debug)]
enum Database {
    Open(Db),
    /// It refused something, and after an error of the disk sled refuses everything: the next attempt opens it anew.
    Closed,
    /// It panicked.
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
}

/// Memory that the database may use for its page cache. The gateway reads everything once, at its start, and only
/// writes after that.
const CACHE_BYTES: u64 = 64 << 20;

/// Changes written together. Small enough that a batch stays far below the database's 512 KiB segment.
const BATCH_CHANGES: usize = 128;

impl SledStore {
    /// Opens the store at `path`, or makes one. One that is damaged or newer is set aside and replaced by an empty one.
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
        let Contents { database, records, unreadable } = opened;
        let store = Self { database: Database::Open(database), directory };
        Ok(Opened { store, records, unreadable, set_aside })
    }

    fn run(
        &mut self,
        action: &'static str,
        work: impl FnOnce(&Db) -> sled::Result<()> + Send,
    ) -> Result<(), StoreError> {
        if matches!(self.database, Database::Closed) {
            self.reopen(action)?;
        }
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

    /// Opens the database once more after an error. Where what the disk was too small for cannot be read either, it is set
    /// aside as at a start, and what changes from now on goes to an empty one.
    fn reopen(&mut self, action: &'static str) -> Result<(), StoreError> {
        let refused = |why: String| StoreError::Database { action, why };
        let no_room = |error: OpenError| refused(error.to_string());
        // The disk may have been too small for it since one was set aside.
        self.directory.make_where_missing().map_err(no_room)?;
        let opened = match read(&self.directory).map_err(no_room)? {
            Ok(opened) => opened,
            Err(why) => {
                let aside = self.directory.set_aside(Damage::Unreadable(why)).map_err(no_room)?;
                tracing::warn!("{aside}");
                self.directory.make_where_missing().map_err(no_room)?;
                read(&self.directory).map_err(no_room)?.map_err(refused)?
            }
        };
        self.database = Database::Open(opened.database);
        Ok(())
    }

    fn close(&mut self) {
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
                        Some(record) => batch.insert(key.as_slice(), codec::value(&key, record)),
                        None => batch.remove(key.as_slice()),
                    }
                }
                database.apply_batch(batch)?;
            }
            Ok(())
        })
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

struct Contents {
    database: Db,
    records: Vec<(Network, NetworkRecord)>,
    unreadable: usize,
}

/// Opens the database and reads all of it. The inner error says what is damaged, the outer one that the file system
/// refused and the store itself may be sound.
fn read(directory: &Directory) -> Result<Result<Contents, String>, OpenError> {
    clear_half_snapshots(&directory.database()).map_err(directory.failed("clearing a half-written snapshot"))?;
    let config = sled::Config::new().path(directory.database()).cache_capacity(CACHE_BYTES).flush_every_ms(None);
    let opened = contained(|| {
        // Not dropped when reading panics: dropping would flush, and a second panic during the first ends the process.
        let database = ManuallyDrop::new(open_released(&config).map_err(|error| (error, None))?);
        let read = entries(&database);
        let database = ManuallyDrop::into_inner(database);
        match read {
            Ok((records, unreadable)) => Ok(Contents { database, records, unreadable }),
            Err(error) => Err((error, Some(database))),
        }
    });
    match opened {
        Ok(Ok(contents)) => Ok(Ok(contents)),
        Ok(Err((error, database))) => {
            if let Some(database) = database {
                discard(database);
            }
            match error {
                error if is_lock_held(&error) => Err(OpenError::InUse(directory.path().to_owned())),
                sled::Error::Io(why) if is_environment(&why) => Err(directory.failed("opening it")(why)),
                error => Ok(Err(error.to_string())),
            }
        }
        Err(Failed::NoThread(error)) => Err(OpenError::NoThread { path: directory.path().to_owned(), error }),
        Err(Failed::Panicked(words)) => Ok(Err(words)),
    }
}

/// All records, and how many entries could not be read.
fn entries(database: &Db) -> sled::Result<(Vec<(Network, NetworkRecord)>, usize)> {
    let mut records = Vec::new();
    let mut unreadable = 0;
    for entry in database.iter() {
        let (key, value) = entry?;
        match codec::network(&key).zip(codec::record_of(&key, &value).ok()) {
            Some(record) => records.push(record),
            None => unreadable += 1,
        }
    }
    Ok((records, unreadable))
}

fn no_thread(error: &std::io::Error) -> String {
    format!("no thread could be started: {error}")
}

/// Opens the database, waiting for one of this process that was just dropped: sled's own threads let go of its file a
/// moment after the drop.
fn open_released(config: &sled::Config) -> sled::Result<Db> {
    let until = Instant::now() + RELEASE;
    loop {
        match config.open() {
            Err(error) if is_lock_held(&error) && Instant::now() < until => thread::sleep(RELEASE_STEP),
            opened => return opened,
        }
    }
}

const RELEASE: Duration = Duration::from_secs(5);
const RELEASE_STEP: Duration = Duration::from_millis(10);

/// sled takes the newest of its snapshot files even where a crash left it half written, and then refuses to open
/// (spacejam/sled issue 1527). Such a file is known by its name, and without it the one before is used.
fn clear_half_snapshots(database: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(database) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "generating") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_set_aside_on_a_full_disk_is_made_anew_with_its_version_once_there_is_room() {
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
}
