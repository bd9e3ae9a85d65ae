//! The store's directory: whose it is, which version it has, and how a bad one is set aside.
//!
//! ```text
//! NAME                      directory of the store
//! NAME/VERSION              "spand store 3\n", written before anything else
//! NAME/sled                 the database
//! NAME.lock                 held by the gateway that uses the store; outlives a set-aside
//! NAME.damaged-1764000000   a store set aside, by the second since 1970 when that happened
//! NAME.newer-1764000000     the same, written by a newer gateway
//! NAME.older-1764000000     the same, written by an older gateway
//!
//! Of each kind the newest three are kept.
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::OpenError;

/// Version of directory and database; each value has its own ([`super::codec`]).
const VERSION: u32 = 3;

const VERSION_FILE: &str = "VERSION";
const VERSION_FILE_NEW: &str = "VERSION.new";
const VERSION_WORDS: &str = "spand store ";
const DATABASE: &str = "sled";

/// Stores set aside that are kept of each kind: for a look at what happened, or for the way back to a newer gateway.
const KEPT_ASIDE: usize = 3;

/// Why a store was set aside.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Damage {
    /// Another version of the gateway wrote it.
    #[error("has version {0}, and this gateway reads version {VERSION}")]
    Version(u32),
    /// It says no version, or not in our words.
    #[error("does not say its version")]
    NoVersion,
    /// The database could not be read.
    #[error("cannot be read ({0})")]
    Unreadable(String),
}

/// A store that was set aside. Its text is the one line for the log.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the store {} {damage}: it was moved to {} and the gateway starts cold", from.display(), to.display())]
pub struct SetAside {
    /// Where it was.
    pub from: PathBuf,
    /// Where it is now.
    pub to: PathBuf,
    /// Why.
    pub damage: Damage,
}

/// The directory, locked for this process.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: Flock<File>,
}

/// What was found in it.
pub(super) enum Found {
    /// A store of this version.
    Store,
    /// Nothing: it was made ready for a new store.
    Nothing,
    /// A store that cannot be used.
    Bad(Damage),
}

impl Directory {
    /// Locks the store at `path`, making its parent directories.
    pub(super) fn lock(path: &Path) -> Result<Self, OpenError> {
        let fail = |action| move |error| OpenError::Io { path: path.to_owned(), action, error };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(fail("making its parent directory"))?;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(beside(path, "lock"));
        let file = file.map_err(fail("opening its lock file"))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(OpenError::InUse(path.to_owned())),
            Err((_, errno)) => Err(fail("locking it")(errno.into())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Looks what is there; an empty place is made ready.
    pub(super) fn look(&self) -> Result<Found, OpenError> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make()?;
                return Ok(Found::Nothing);
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(OpenError::NotAStore(self.path.clone()));
            }
            Err(error) => return Err(self.failed("reading its directory")(error)),
        };
        let names: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
        let names = names.map_err(self.failed("reading its directory"))?;
        let ours = |name: &std::ffi::OsString| name == VERSION_FILE || name == DATABASE || name == VERSION_FILE_NEW;
        if !names.is_empty() && !names.iter().any(ours) {
            return Err(OpenError::NotAStore(self.path.clone()));
        }
        let begun = names.iter().any(|name| name == VERSION_FILE || name == DATABASE);
        if !begun {
            self.make()?;
            return Ok(Found::Nothing);
        }
        match fs::read(self.path.join(VERSION_FILE)) {
            Ok(text) => Ok(match parse_version(&text) {
                Some(VERSION) => Found::Store,
                Some(other) => Found::Bad(Damage::Version(other)),
                None => Found::Bad(Damage::NoVersion),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Bad(Damage::NoVersion)),
            Err(error) => Err(self.failed("reading its version")(error)),
        }
    }

    /// Makes an empty store where there is none: without its version the next start would set it aside.
    pub(super) fn make_where_missing(&self) -> Result<(), OpenError> {
        if self.path.join(VERSION_FILE).exists() { Ok(()) } else { self.make() }
    }

    /// Makes an empty store: its directory and its version.
    pub(super) fn make(&self) -> Result<(), OpenError> {
        let make = || {
            fs::create_dir_all(&self.path)?;
            // By way of a second name, so that a crash leaves a whole version or none.
            let new = self.path.join(VERSION_FILE_NEW);
            let mut file = File::create(&new)?;
            file.write_all(format!("{VERSION_WORDS}{VERSION}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, self.path.join(VERSION_FILE))?;
            File::open(&self.path)?.sync_all()
        };
        make().map_err(self.failed("making it"))
    }

    /// Moves the store out of the way. The caller has to [make](Self::make_where_missing) an empty one.
    pub(super) fn set_aside(&self, damage: Damage) -> Result<SetAside, OpenError> {
        let kind = match damage {
            Damage::Version(version) if version > VERSION => "newer",
            Damage::Version(_) => "older",
            Damage::NoVersion | Damage::Unreadable(_) => "damaged",
        };
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // After the newest there is: a free second before it would be the oldest, and the first to be removed.
        let newest_s = self.aside(kind).ok().and_then(|aside| Some(aside.last()?.0));
        let first_s = newest_s.map_or(now_s, |newest_s| now_s.max(newest_s.saturating_add(1)));
        let mut free = (first_s..first_s.saturating_add(3_600)).map(|s| beside(&self.path, &format!("{kind}-{s}")));
        let to = free.find(|to| !to.exists()).unwrap_or_else(|| beside(&self.path, kind));
        fs::rename(&self.path, &to).map_err(self.failed("moving it aside"))?;
        self.remove_oldest(kind);
        Ok(SetAside { from: self.path.clone(), to, damage })
    }

    /// Removes what was set aside of this kind, but the newest few. What cannot be removed is no reason not to start.
    fn remove_oldest(&self, kind: &str) {
        let aside = match self.aside(kind) {
            Ok(aside) => aside,
            Err(error) => {
                let store = self.path.display();
                return tracing::warn!(%error, "cannot list the stores set aside of {store}; none is removed");
            }
        };
        let oldest = aside.len().saturating_sub(KEPT_ASIDE);
        for (_, path) in aside.into_iter().take(oldest) {
            let shown = path.display();
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::warn!("removed {shown}, set aside earlier: only the newest {KEPT_ASIDE} are kept"),
                Err(error) => tracing::warn!(%error, "cannot remove {shown}, set aside earlier; remove it by hand"),
            }
        }
    }

    /// The stores set aside of a kind, with the second of their names, oldest first. Anything else by such a name, a link or
    /// a file, is left alone.
    fn aside(&self, kind: &str) -> io::Result<Vec<(u64, PathBuf)>> {
        let prefix = beside(&self.path, &format!("{kind}-"));
        let (Some(parent), Some(prefix)) = (prefix.parent(), prefix.file_name()) else { return Ok(Vec::new()) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let mut found = Vec::new();
        for entry in fs::read_dir(parent)? {
            let entry = entry?;
            let name = entry.file_name();
            let second = name.as_bytes().strip_prefix(prefix.as_bytes()).and_then(|rest| str::from_utf8(rest).ok());
            if let Some(second) = second.and_then(|second| second.parse().ok())
                && entry.file_type()?.is_dir()
            {
                found.push((second, entry.path()));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    pub(super) fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> OpenError {
        let path = self.path.clone();
        move |error| OpenError::Io { path: path.clone(), action, error }
    }
}

fn parse_version(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.strip_prefix(VERSION_WORDS)?.trim_end().parse().ok()
}

/// The path with `.suffix` after its last name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}
