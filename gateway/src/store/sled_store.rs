//! The store on sled 0.34: one tree, whose keys ([`Key`]) and values are in postcard. sled's own checksums find damage.
//!
//! ```text
//! DIRECTORY/lock   held by the gateway that uses the store
//! DIRECTORY/sled   the database
//! ```
//!
//! A database that cannot be read, whatever the reason, is deleted and replaced by an empty one. An error of the machine deletes
//! nothing: the store stays closed, and the next write tries to open it again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::EIO;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sled::{Batch, Db};
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::contained::{contained, discard};
use super::{Change, EstimateStore, OpenError, StoreError};
use crate::totals::{Point, Step, TotalsChange};

/// Format of all entries. A change to the bytes of a type in the store raises it.
pub(super) const FORMAT: u8 = 7;

/// Memory that the database may use for its page cache. The gateway reads everything once, at its start, and only
/// writes after that.
pub(super) const CACHE_BYTES: u64 = 64 << 20;
/// Entries written together: a batch stays far below the database's 512 KiB segment.
const BATCH_ENTRIES: usize = 128;

const DATABASE: &str = "sled";
const LOCK: &str = "lock";
/// Files of a store of earlier gateways, beside `sled`.
const VERSION: &str = "VERSION";
const VERSION_NEW: &str = "VERSION.new";

/// Key of an entry.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Key {
    /// [`FORMAT`], and a number that grows with each opening. sled reads a log that is torn in the middle up to there only, at
    /// each opening, and loses what is written behind it; nothing else shows that.
    Mark,
    /// Value: [`NetworkRecord`].
    Network(Network),
    /// Value: [`Point`].
    Totals(Step, Timestamp),
}

/// A store on disk.
#[derive(Debug)]
pub struct SledStore {
    path: PathBuf,
    database: Database,
    /// Dropped last: held until the database is closed.
    lock: Option<Flock<File>>,
}

#[derive(Debug)]
enum Database {
    Open(Db),
    /// Not open yet, or a write failed, after which sled refuses everything: the next write opens it.
    Closed,
    /// It panicked.
    Broken,
}

/// A store just opened.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SledStore,
    /// What it holds.
    pub contents: Contents,
}

/// What a store holds.
#[derive(Debug, Default)]
pub struct Contents {
    /// Records, in order of network.
    pub records: Vec<(Network, NetworkRecord)>,
    /// Steps of the history of the whole.
    pub totals: Vec<(Step, Point)>,
    /// Sentence on the database before, where it could not be read and was deleted.
    pub deleted: Option<String>,
}

impl SledStore {
    /// Opens the store at `path`, or makes one.
    pub fn open(path: &Path) -> Result<Opened, OpenError> {
        let mut store = Self::closed(path.to_owned());
        let contents = store.connect()?;
        Ok(Opened { store, contents })
    }

    /// The store at `path`, which the first write opens. Networks that it holds stay in it until they change.
    pub const fn closed(path: PathBuf) -> Self {
        Self { path, database: Database::Closed, lock: None }
    }

    fn connect(&mut self) -> Result<Contents, OpenError> {
        self.lock()?;
        let why = match self.read()? {
            Ok(contents) => return Ok(contents),
            Err(why) => why,
        };
        fs::remove_dir_all(self.path.join(DATABASE)).map_err(self.failed("deleting its database"))?;
        // An earlier gateway would take the new database for its own.
        for file in [VERSION, VERSION_NEW] {
            _ = fs::remove_file(self.path.join(file));
        }
        let deleted = format!("the store {} cannot be read ({why}) and was deleted", self.path.display());
        let again = self.read().and_then(|read| read.map_err(|why| OpenError::New { path: self.path.clone(), why }));
        let contents = again.inspect_err(|_| tracing::warn!("{deleted}"))?;
        Ok(Contents { deleted: Some(deleted), ..contents })
    }

    /// Locks the directory, which is made if missing.
    fn lock(&mut self) -> Result<(), OpenError> {
        if self.lock.is_some() {
            return Ok(());
        }
        if self.path.is_file() {
            return Err(OpenError::NotAStore(self.path.clone()));
        }
        fs::create_dir_all(&self.path).map_err(self.failed("making it"))?;
        let entries = fs::read_dir(&self.path).map_err(self.failed("reading its directory"))?;
        let mut names = entries.filter_map(|entry| Some(entry.ok()?.file_name())).peekable();
        if names.peek().is_some()
            && !names.any(|name| [DATABASE, LOCK, VERSION, VERSION_NEW].iter().any(|ours| name == *ours))
        {
            return Err(OpenError::NotAStore(self.path.clone()));
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.path.join(LOCK));
        let file = file.map_err(self.failed("opening its lock file"))?;
        self.lock = Some(Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            Errno::EWOULDBLOCK => OpenError::InUse(self.path.clone()),
            errno => self.failed("locking it")(errno.into()),
        })?);
        Ok(())
    }

    /// Opens the database and reads all of it. The inner error is the reason why it cannot be read; the outer one is of the machine,
    /// and the database may be sound.
    fn read(&mut self) -> Result<Result<Contents, String>, OpenError> {
        let path = self.path.join(DATABASE);
        let config = sled::Config::new().path(&path).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let read = clear_half_snapshots(&path)
            .and_then(|()| contained(|| read(&config))?.unwrap_or_else(|panic| Err(io::Error::other(panic))));
        match read {
            Ok((database, contents)) => {
                self.database = Database::Open(database);
                Ok(Ok(contents))
            }
            Err(error) if is_lock_held(&error) => Err(OpenError::InUse(self.path.clone())),
            Err(error) if is_environment(&error) => Err(self.failed("opening it")(error)),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> OpenError {
        let path = self.path.clone();
        move |error| OpenError::Io { path: path.clone(), action, error }
    }

    fn write<V: Serialize>(
        &mut self,
        action: &'static str,
        entries: impl Iterator<Item = (Key, Option<V>)> + Send,
    ) -> Result<(), StoreError> {
        self.run(action, |database| {
            let mut entries = entries.peekable();
            while entries.peek().is_some() {
                let mut batch = Batch::default();
                for (key, value) in entries.by_ref().take(BATCH_ENTRIES) {
                    match value {
                        Some(value) => batch.insert(encoded(&key)?, encoded(&value)?),
                        None => batch.remove(encoded(&key)?),
                    }
                }
                database.apply_batch(batch)?;
            }
            Ok(())
        })
    }

    fn run(
        &mut self,
        action: &'static str,
        work: impl FnOnce(&Db) -> sled::Result<()> + Send,
    ) -> Result<(), StoreError> {
        if matches!(self.database, Database::Closed) {
            let contents = match self.connect() {
                Ok(contents) => contents,
                Err(error @ OpenError::New { .. }) => {
                    // An empty one is no better: the disk does not keep what is written to it.
                    self.database = Database::Broken;
                    return Err(StoreError::Broken { action, why: error.to_string() });
                }
                Err(error) => return Err(StoreError::from(&error)),
            };
            if let Some(deleted) = contents.deleted {
                tracing::warn!("{deleted}; networks are saved again as they change");
            }
        }
        let Database::Open(database) = &self.database else {
            return Err(StoreError::Broken { action, why: "it failed before".to_owned() });
        };
        match contained(|| work(database)) {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => {
                self.close();
                Err(StoreError::Database { action, why: error.to_string() })
            }
            // Nothing was tried: the database is as it was.
            Err(no_thread) => Err(StoreError::Database { action, why: no_thread.to_string() }),
            Ok(Err(why)) => {
                // Forgotten and not dropped: dropping flushes, and what panicked once would panic again.
                std::mem::forget(std::mem::replace(&mut self.database, Database::Broken));
                Err(StoreError::Broken { action, why })
            }
        }
    }

    pub(super) fn close(&mut self) {
        if let Database::Open(database) = std::mem::replace(&mut self.database, Database::Closed) {
            discard(database);
        }
    }
}

impl EstimateStore for SledStore {
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.write("save", changes.iter().map(|(network, record)| (Key::Network(*network), record.as_ref())))
    }

    fn save_totals(&mut self, change: &TotalsChange) -> Result<(), StoreError> {
        let entries = change.iter().map(|((step, at), point)| (Key::Totals(*step, *at), point.as_ref()));
        self.write("save the history of the whole", entries)
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

impl From<&OpenError> for StoreError {
    fn from(error: &OpenError) -> Self {
        Self::Database { action: "open", why: error.to_string() }
    }
}

fn read(config: &sled::Config) -> io::Result<(Db, Contents)> {
    let (database, written) = using(config, leave_mark)?;
    discard(database);
    using(config, |database| {
        let (mut contents, mut mark) = (Contents::default(), None);
        for entry in database.iter() {
            let (key, value) = entry?;
            match decoded(&key)? {
                Key::Mark => mark = Some(decoded::<(u8, u64)>(&value)?.1),
                Key::Network(network) => contents.records.push((network, decoded(&value)?)),
                Key::Totals(step, _) => contents.totals.push((step, decoded(&value)?)),
            }
        }
        if written.is_some() && mark != written {
            return Err(io::Error::other("it does not keep what is written to it"));
        }
        contents.records.sort_unstable_by_key(|(network, _)| *network);
        Ok(contents)
    })
}

fn using<T>(config: &sled::Config, work: impl FnOnce(&Db) -> io::Result<T>) -> io::Result<(Db, T)> {
    // Not dropped when work panics: dropping would flush, and a second panic during the first ends the process.
    let database = ManuallyDrop::new(open_released(config)?);
    let done = work(&database);
    let database = ManuallyDrop::into_inner(database);
    match done {
        Ok(done) => Ok((database, done)),
        Err(error) => {
            // Dropping flushes, and may panic after a failed read: that is no damage.
            discard(database);
            Err(error)
        }
    }
}

/// Checks the format and writes the next mark. `None` where that failed, as on a full disk; a database without a mark gets one first.
fn leave_mark(database: &Db) -> io::Result<Option<u64>> {
    let key = encoded(&Key::Mark)?;
    let number = match database.get(&key)? {
        Some(value) => match decoded(&value)? {
            (FORMAT, number) => Some::<u64>(number),
            (format, _) => {
                let why = format!("it has format {format}, and this gateway reads format {FORMAT}");
                return Err(io::Error::other(why));
            }
        },
        None if database.is_empty() && database.tree_names().len() == 1 => None,
        None => {
            return Err(io::Error::other("it has no mark: it is damaged, or another version of the gateway wrote it"));
        }
    };
    let next = number.map_or(0, |number| number.wrapping_add(1));
    let written = database.insert(key, encoded(&(FORMAT, next))?).and_then(|_| database.flush());
    match (written, number) {
        (Err(error), None) => Err(error.into()),
        (written, _) => Ok(written.is_ok().then_some(next)),
    }
}

pub(super) fn encoded(value: &impl Serialize) -> sled::Result<Vec<u8>> {
    // postcard refuses no value of ours.
    postcard::to_extend(value, Vec::new()).map_err(|error| sled::Error::Unsupported(error.to_string()))
}

pub(super) fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::other(format!("it has a malformed entry: {error}")))
}

/// Opens the database, waiting for one of this process that was just dropped: sled's own threads let go of its file a
/// moment after the drop.
pub(super) fn open_released(config: &sled::Config) -> io::Result<Db> {
    let until = Instant::now() + RELEASE;
    loop {
        match config.open().map_err(io::Error::from) {
            Err(error) if is_lock_held(&error) && Instant::now() < until => thread::sleep(RELEASE_STEP),
            opened => return opened,
        }
    }
}

const RELEASE: Duration = Duration::from_secs(5);
const RELEASE_STEP: Duration = Duration::from_millis(10);

/// sled takes the newest of its snapshot files even where a crash left it half written, and then refuses to open
/// (spacejam/sled issue 1527). Such a file is known by its name, and without it the one before is used.
fn clear_half_snapshots(database: &Path) -> io::Result<()> {
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

/// Whether sled found its file locked; only the text shows it.
fn is_lock_held(error: &io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

/// Whether an error is of the machine. Every system error is, except those of files that are not as they were written.
pub(super) fn is_environment(error: &io::Error) -> bool {
    // `Other` is what sled makes of torn files.
    !matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
            | ErrorKind::InvalidInput
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::Other
    )
}

/// Whether the disk itself is the reason: it is full, read-only, or fails.
pub(super) fn is_disk(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
        // EIO has no kind of its own, and sled's copies have lost the number.
        || error.to_string().contains(&format!("(os error {EIO})"))
}
