//! Opens the database on disk, whatever became of it.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use sled::Db;
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;

use super::cause::{Failed, contained, discard, is_environment, is_lock_held};
use super::directory::Directory;
use super::{OpenError, codec, experiment, totals};
use crate::totals::{Point, Step};

/// Memory that the database may use for its page cache. The gateway reads everything once, at its start, and only
/// writes after that.
pub(super) const CACHE_BYTES: u64 = 64 << 20;

/// A database that is open, and what it holds.
pub(super) struct Contents {
    pub(super) database: Db,
    pub(super) records: Vec<(Network, NetworkRecord)>,
    /// Entries that could not be read.
    pub(super) unreadable: usize,
    pub(super) experiment: experiment::Held,
    /// Steps of the history of the whole, and how many could not be read.
    pub(super) totals: (Vec<(Step, Point)>, usize),
}

/// Opens the database, has it show that it keeps what is written, and reads all of it. The inner error says what is damaged, the
/// outer one that the file system refused and the store itself may be sound.
pub(super) fn read(directory: &Directory) -> Result<Result<Contents, String>, OpenError> {
    clear_half_snapshots(&directory.database()).map_err(directory.failed("clearing a half-written snapshot"))?;
    let written = match using(directory, |database| Ok(leave_mark(database)))? {
        Ok((database, mark)) => {
            discard(database);
            mark
        }
        Err(why) => return Ok(Err(why)),
    };
    Ok(using(directory, |database| {
        let found = mark(database)?;
        let (records, unreadable) = entries(database)?;
        Ok((found, records, unreadable, experiment::read(database)?, totals::read(database)?))
    })?
    .and_then(|(database, (found, records, unreadable, experiment, totals))| {
        if written.is_some() && found != written {
            discard(database);
            return Err("it does not keep what is written to it".to_owned());
        }
        Ok(Contents { database, records, unreadable, experiment, totals })
    }))
}

/// Opens the database for `work`. The errors are those of [`read`].
fn using<T: Send>(
    directory: &Directory,
    work: impl FnOnce(&Db) -> sled::Result<T> + Send,
) -> Result<Result<(Db, T), String>, OpenError> {
    let config = sled::Config::new().path(directory.database()).cache_capacity(CACHE_BYTES).flush_every_ms(None);
    let opened = contained(|| {
        // Not dropped when work panics: dropping would flush, and a second panic during the first ends the process.
        let database = ManuallyDrop::new(open_released(&config).map_err(|error| (error, None))?);
        let done = work(&database);
        let database = ManuallyDrop::into_inner(database);
        match done {
            Ok(done) => Ok((database, done)),
            Err(error) => Err((error, Some(database))),
        }
    });
    match opened {
        Ok(Ok(done)) => Ok(Ok(done)),
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

/// Tree and key of a number that grows with every opening. A log that is torn in the middle is read up to there only, by every
/// later opening too: what is written behind is lost each time, and nothing else says so.
const MARKS: &[u8] = b"openings";

/// Writes the next mark. None where that failed, as on a full disk: then nothing is known.
fn leave_mark(database: &Db) -> Option<u64> {
    let next = mark(database).ok()?.map_or(0, |mark| mark.wrapping_add(1));
    let marks = database.open_tree(MARKS).ok()?;
    marks.insert(MARKS, &next.to_be_bytes()).ok()?;
    database.flush().ok()?;
    Some(next)
}

fn mark(database: &Db) -> sled::Result<Option<u64>> {
    let mark = database.open_tree(MARKS)?.get(MARKS)?;
    Ok(mark.and_then(|mark| mark.as_ref().try_into().ok()).map(u64::from_be_bytes))
}

/// All records, and how many entries could not be read.
fn entries(database: &Db) -> sled::Result<(Vec<(Network, NetworkRecord)>, usize)> {
    let mut records = Vec::new();
    let mut unreadable = 0;
    for entry in database.iter() {
        let (key, value) = entry?;
        match codec::network(&key).zip(codec::opened(&key, &value).ok()) {
            Some(record) => records.push(record),
            None => unreadable += 1,
        }
    }
    Ok((records, unreadable))
}

pub(super) fn no_thread(error: &std::io::Error) -> String {
    format!("no thread could be started: {error}")
}

/// Opens the database, waiting for one of this process that was just dropped: sled's own threads let go of its file a
/// moment after the drop.
pub(super) fn open_released(config: &sled::Config) -> sled::Result<Db> {
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
