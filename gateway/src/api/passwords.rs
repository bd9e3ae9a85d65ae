//! Passwords of people and scripts, kept as Argon2id hashes (RFC 9106) in a file that is read again when it changes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use argon2::Argon2;
use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use parking_lot::Mutex;
use spand_proto::operator::Failure;
use tokio::sync::Semaphore;

use super::holdings::Holdings;
use crate::buckets::Buckets;

/// Names with their hashes.
type Book = HashMap<String, String>;

/// Who may ask, by name and password.
#[derive(Debug)]
pub(super) struct Passwords {
    path: PathBuf,
    /// What the last look at the file found: an unchanged file is neither read in nor logged again.
    tried: Mutex<Result<String, String>>,
    book: Mutex<Arc<Book>>,
    failures: AtomicU64,
    /// Credentials found right lately, as hashes under secrets of this process: checking a password takes long on purpose.
    right: Mutex<HashMap<[u64; 2], Instant>>,
    secrets: [RandomState; 2],
    /// One check at a time: each takes 19 MiB.
    one: Arc<Semaphore>,
    /// Requests that have a check or wait for one, in all and by peer.
    queue: Semaphore,
    queued: Holdings,
    attempts: Buckets,
}

/// What becomes of credentials.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Right,
    Wrong,
    /// They were not looked at: too many wrong ones came from there.
    TooMany,
    /// They were not looked at: too many wait to be.
    Busy,
}

/// A file of passwords that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordsError {
    /// It cannot be read.
    #[error("cannot read {} (admin.passwords): {source}; the gateway's user needs the right to", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line that is none.
    #[error("{} (admin.passwords), line {line}: write NAME:HASH, as `spand-gateway password NAME` prints it", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// Nobody in it.
    #[error("{} (admin.passwords) names nobody: add a line of `spand-gateway password NAME`", path.display())]
    Nobody {
        /// The file.
        path: PathBuf,
    },
}

/// How long credentials that were found right are taken without another check, from when they were shown last.
const RIGHT_FOR: Duration = Duration::from_secs(300);
/// Credentials that are remembered so.
const MAX_RIGHT: usize = 256;
/// Requests that may wait for a check, each for those before it: the next one is refused at once.
const QUEUE: usize = 16;
/// Those of one peer, so that two cannot fill the queue: a browser has six connections to a host.
const QUEUE_PER_PEER: NonZeroUsize = NonZeroUsize::new(6).unwrap();
/// Wrong ones of one peer: ten at once, then one in five seconds.
const ATTEMPTS_PER_S: f64 = 0.2;
const ATTEMPTS: NonZeroU32 = NonZeroU32::new(10).unwrap();

impl Passwords {
    /// Reads the file.
    pub(super) fn open(path: &Path) -> Result<Self, PasswordsError> {
        let text = read(path)?;
        let book = Mutex::new(Arc::new(parse(path, &text)?));
        Ok(Self {
            path: path.to_owned(),
            tried: Mutex::new(Ok(text)),
            book,
            failures: AtomicU64::new(0),
            right: Mutex::default(),
            secrets: [RandomState::new(), RandomState::new()],
            one: Arc::new(Semaphore::new(1)),
            queue: Semaphore::new(QUEUE),
            queued: Holdings::new(QUEUE_PER_PEER),
            attempts: Buckets::new(ATTEMPTS_PER_S, ATTEMPTS),
        })
    }

    /// Times a changed file could not be used.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Looks at the file: a changed one comes into force, or is logged as broken, once.
    pub(super) fn look(&self) {
        let found = read(&self.path).map_err(|error| error.to_string());
        let mut tried = self.tried.lock();
        if *tried == found {
            return;
        }
        let parsed = found.as_ref().map_err(Clone::clone).and_then(|text| {
            let parsed = parse(&self.path, text);
            parsed.map_err(|error| error.to_string())
        });
        *tried = found;
        drop(tried);
        match parsed {
            Ok(book) => {
                tracing::info!(names = book.len(), "passwords reloaded");
                *self.book.lock() = Arc::new(book);
                self.right.lock().clear();
            }
            Err(why) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%why, "cannot reload passwords; the previous ones stay in force");
            }
        }
    }

    /// Judges a name and a password that came from `peer`.
    pub(super) async fn check(&self, name: &str, password: &str, peer: IpAddr) -> Verdict {
        let key = [self.secrets[0].hash_one((name, password)), self.secrets[1].hash_one((name, password))];
        if self.is_right(key) {
            return Verdict::Right;
        }
        // Before the queue: who guesses must not make others wait. A right one gives it back.
        if !self.attempts.take(peer) {
            return Verdict::TooMany;
        }
        let verdict = self.check_in_turn(key, name, password, peer).await;
        if verdict != Verdict::Wrong {
            self.attempts.give_back(peer);
        }
        verdict
    }

    async fn check_in_turn(&self, key: [u64; 2], name: &str, password: &str, peer: IpAddr) -> Verdict {
        let Some(_held) = self.queued.take(peer) else { return Verdict::Busy };
        let Ok(_place) = self.queue.try_acquire() else { return Verdict::Busy };
        let Ok(alone) = Arc::clone(&self.one).acquire_owned().await else { return Verdict::Busy };
        // Meanwhile another request may have brought the same.
        if self.is_right(key) {
            return Verdict::Right;
        }
        let book = Arc::clone(&self.book.lock());
        let (name, password) = (name.to_owned(), password.to_owned());
        let asked = Arc::clone(&book);
        // A check continues when its requester is gone, and keeps its turn.
        let checked = tokio::task::spawn_blocking(move || (is_in(&asked, &name, &password), drop(alone)).0).await;
        if !checked.unwrap_or(false) {
            return Verdict::Wrong;
        }
        let mut right = self.right.lock();
        // A file that came into force meanwhile is checked again.
        if Arc::ptr_eq(&book, &self.book.lock()) {
            right.retain(|_, shown| shown.elapsed() < RIGHT_FOR);
            if right.len() < MAX_RIGHT {
                right.insert(key, Instant::now());
            }
        }
        Verdict::Right
    }

    fn is_right(&self, key: [u64; 2]) -> bool {
        let mut right = self.right.lock();
        let Some(shown) = right.get_mut(&key).filter(|shown| shown.elapsed() < RIGHT_FOR) else { return false };
        *shown = Instant::now();
        true
    }
}

/// A line for the file.
pub fn line(name: &str, password: &str) -> Result<String, Failure> {
    if name.is_empty() || name.contains(|c: char| c == ':' || c.is_control()) {
        return Err(Failure::Usage(format!("`{name}` is no name: write one without a colon")));
    }
    if password.is_empty() {
        return Err(Failure::Usage("the password is empty: write it to standard input, as one line".to_owned()));
    }
    let salt = SaltString::generate(&mut OsRng);
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    let hash = hash.map_err(|error| Failure::Environment(format!("cannot hash the password: {error}")))?;
    Ok(format!("{name}:{hash}"))
}

fn is_in(book: &Book, name: &str, password: &str) -> bool {
    // An unknown name takes as long as a known one: the time of an answer leaks nothing.
    let there = book.get(name);
    let Some(hash) = there.or_else(|| book.values().next()) else { return false };
    let checked = PasswordHash::new(hash).is_ok_and(|hash| {
        let right = Argon2::default().verify_password(password.as_bytes(), &hash);
        right.is_ok()
    });
    checked && there.is_some()
}

fn read(path: &Path) -> Result<String, PasswordsError> {
    spand_confine::read_to_string(path).map_err(|source| PasswordsError::Unreadable { path: path.to_owned(), source })
}

fn parse(path: &Path, text: &str) -> Result<Book, PasswordsError> {
    let mut book = Book::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts = line.split_once(':').filter(|(name, hash)| {
            !name.is_empty() && PasswordHash::new(hash).is_ok_and(|hash| hash.algorithm.as_str() == "argon2id")
        });
        let Some((name, hash)) = parts else {
            return Err(PasswordsError::Line { path: path.to_owned(), line: number });
        };
        book.insert(name.to_owned(), hash.to_owned());
    }
    if book.is_empty() { Err(PasswordsError::Nobody { path: path.to_owned() }) } else { Ok(book) }
}

impl From<PasswordsError> for Failure {
    fn from(error: PasswordsError) -> Self {
        match error {
            PasswordsError::Unreadable { .. } => Self::environment(error),
            PasswordsError::Line { .. } | PasswordsError::Nobody { .. } => Self::Usage(error.to_string()),
        }
    }
}
