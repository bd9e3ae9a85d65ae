//! Whether advice is paused on this host: by an administrator, until `resume` or for a stated time, over restarts of the agent and
//! of the host.
//!
//! The file `pause.json` of the state directory exists while a pause is in effect. Within one boot the end is a time of
//! `CLOCK_BOOTTIME`, so that neither a step of the wall clock nor a suspend moves it. An agent of a later boot reads the end by
//! the wall clock. A pause never lasts longer than its length, whatever the clocks show.
//! An unreadable file shows that advice was paused: it is set aside, and the pause has no end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use spand_proto::operator::rfc3339_unix_s;
use spand_proto::push::PauseState;
use spand_proto::units::Timestamp;
use tracing::{info, warn};

use crate::clock::{self, Clock};
use crate::ledger;

#[cfg(test)]
mod tests;

/// Longest pause that ends by itself: what is meant to last longer has no end.
pub const MOST: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Number of the file's format; what another release wrote in another one counts as damaged.
const FORMAT: u32 = 1;

/// Largest file that is read in bytes.
const MOST_BYTES: u64 = 4_096;

const NS_PER_S: u64 = 1_000_000_000;

/// Whether advice is paused, and until when by the agent's clock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pausing {
    /// Connections start on advice.
    #[default]
    Active,
    /// None does.
    Paused {
        /// When that ends by itself.
        ends: Option<Timestamp>,
    },
}

impl Pausing {
    /// Whether no connection starts on advice.
    pub const fn is_paused(self) -> bool {
        matches!(self, Self::Paused { .. })
    }

    /// The state for the gateway at `now`.
    pub fn state(self, now: Timestamp) -> PauseState {
        match self {
            Self::Active => PauseState::Active,
            Self::Paused { ends } => PauseState::Paused { remaining: ends.map(|ends| ends.since(now)) },
        }
    }

    /// When it ends by itself, in seconds since 1970-01-01 00:00 UTC as the wall clock shows now.
    pub(crate) fn ends_unix_s(self, now: Timestamp) -> Option<u64> {
        let Self::Paused { ends: Some(ends) } = self else { return None };
        // Ends lie on whole seconds; what the two clocks drift apart by is less than half of one.
        Some((clock::wall_ns() + ends.0.saturating_sub(now.0) + NS_PER_S / 2) / NS_PER_S)
    }
}

/// A pause that cannot be read or kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", path.display())]
pub(crate) struct PauseError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What stands in the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Record {
    format: u32,
    /// For people.
    paused_since: String,
    /// By the wall clock; `null` where it has no end.
    paused_until: Option<String>,
    /// How long it was to last, where it has an end.
    length_s: Option<u64>,
    /// The boot that `ends_boot_ns` counts from.
    boot_id: Option<String>,
    /// By `CLOCK_BOOTTIME`.
    ends_boot_ns: Option<u64>,
}

/// The pause of a running agent, with its file.
#[derive(Debug)]
pub(crate) struct Pause {
    path: PathBuf,
    clock: Clock,
    pausing: Pausing,
}

impl Pause {
    /// Reads what an earlier agent left at `path`. A damaged file is set aside, and advice stays paused.
    pub(crate) fn open(path: &Path, clock: Clock) -> Result<Self, PauseError> {
        let mut pause = Self { path: path.to_owned(), clock, pausing: Pausing::Active };
        let mut text = Vec::new();
        match File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut text)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(pause),
            Err(error) => return Err(pause.fault("read", error)),
            Ok(_) => {}
        }
        let Ok(left) = remaining(&text, boot_id().as_deref()) else {
            let aside = path.with_extension("damaged");
            fs::rename(path, &aside).map_err(|error| pause.fault("set aside", error))?;
            warn!(
                aside = %aside.display(),
                "the file of a pause is damaged and was set aside: advice stays paused until `spand-agent resume`"
            );
            pause.pausing = Pausing::Paused { ends: None };
            pause.write(None)?;
            return Ok(pause);
        };
        pause.pausing = Pausing::Paused { ends: left.map(|left_ns| Timestamp(clock.now().0.saturating_add(left_ns))) };
        if !pause.expire() {
            info!(until = pause.until().unwrap_or_else(|| "resumed".to_owned()), "advice is paused");
        }
        Ok(pause)
    }

    /// Whether it is paused, and until when.
    pub(crate) const fn pausing(&self) -> Pausing {
        self.pausing
    }

    /// When it ends by itself, in RFC 3339.
    pub(crate) fn until(&self) -> Option<String> {
        self.pausing.ends_unix_s(self.clock.now()).map(rfc3339_unix_s)
    }

    /// Pauses from now on, for `length` or until it is resumed; it replaces a pause before. In effect also where an error says
    /// that it will not outlast this process.
    pub(crate) fn pause(&mut self, length: Option<Duration>) -> Result<(), PauseError> {
        let ends = length.map(|length| {
            let wall_ns = clock::wall_ns();
            // To the next whole second, so that its end is shown alike at all times.
            let length_ns = u64::try_from(length.min(MOST).as_nanos()).unwrap_or(u64::MAX);
            let until_ns = wall_ns.saturating_add(length_ns).div_ceil(NS_PER_S) * NS_PER_S;
            Timestamp(self.clock.now().0.saturating_add(until_ns - wall_ns))
        });
        self.pausing = Pausing::Paused { ends };
        self.write(ends)
    }

    /// Resumes; whether it was paused. In effect also where an error says that a later agent will be paused again.
    pub(crate) fn resume(&mut self) -> Result<bool, PauseError> {
        let was_paused = std::mem::take(&mut self.pausing).is_paused();
        self.remove().map(|()| was_paused)
    }

    /// Whether the pause has just ended by itself.
    pub(crate) fn expire(&mut self) -> bool {
        let Pausing::Paused { ends: Some(ends) } = self.pausing else { return false };
        if ends > self.clock.now() {
            return false;
        }
        self.pausing = Pausing::Active;
        info!("the pause has ended: connections start on advice again");
        if let Err(error) = self.remove() {
            // Its end is in it, and has passed.
            warn!(%error, "the file of a pause that has ended stays");
        }
        true
    }

    fn remove(&self) -> Result<(), PauseError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.fault("remove", error)),
            _ => Ok(()),
        }
    }

    fn write(&self, ends: Option<Timestamp>) -> Result<(), PauseError> {
        let left_ns = ends.map(|ends| ends.0.saturating_sub(self.clock.now().0));
        let wall_s = clock::wall_unix_s();
        let record = Record {
            format: FORMAT,
            paused_since: rfc3339_unix_s(wall_s),
            paused_until: self.until(),
            length_s: left_ns.map(|left_ns| left_ns.div_ceil(NS_PER_S)),
            boot_id: ends.and_then(|_| boot_id()),
            ends_boot_ns: left_ns.map(|left_ns| clock::since_boot().0.saturating_add(left_ns)),
        };
        let text = serde_json::to_string(&record).map_err(|error| self.fault("write", error.into()))?;
        ledger::replace(&self.path, &format!("{text}\n")).map(drop).map_err(|error| self.fault("write", error))
    }

    fn fault(&self, what: &'static str, source: io::Error) -> PauseError {
        PauseError { what, path: self.path.clone(), source }
    }
}

/// A file that holds no pause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Damaged;

/// What is left of the pause in a file, in nanoseconds; `None` where it has no end.
fn remaining(text: &[u8], boot_id: Option<&str>) -> Result<Option<u64>, Damaged> {
    if text.len() as u64 > MOST_BYTES {
        return Err(Damaged);
    }
    let record: Record = serde_json::from_slice(text).map_err(|_| Damaged)?;
    if record.format != FORMAT {
        return Err(Damaged);
    }
    let (until, length_s) = match (record.paused_until, record.length_s) {
        (None, None) => return Ok(None),
        (Some(until), Some(length_s)) => (until, length_s),
        _ => return Err(Damaged),
    };
    let until = humantime::parse_rfc3339(&until).map_err(|_| Damaged)?;
    let until = until.duration_since(UNIX_EPOCH).map_err(|_| Damaged)?;
    let until_ns = u64::try_from(until.as_nanos()).map_err(|_| Damaged)?;
    let same_boot = record.boot_id.is_some() && record.boot_id.as_deref() == boot_id;
    let left_ns = match record.ends_boot_ns.filter(|_| same_boot) {
        Some(ends_ns) => ends_ns.saturating_sub(clock::since_boot().0),
        None => until_ns.saturating_sub(clock::wall_ns()),
    };
    // A wall clock that was set back, or a host that has none and begins in 1970, prolongs nothing beyond its length.
    Ok(Some(left_ns.min(length_s.min(MOST.as_secs() + 1) * NS_PER_S)))
}

/// The kernel's name for this boot.
fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// The length of a pause from the command line.
pub(crate) fn parse_length(text: &str) -> Result<Duration, String> {
    let wanted =
        "give a length from 1s to 366days, such as 90s, 30m or 1h30m, or leave --for out to pause until `resume`";
    match humantime::parse_duration(text) {
        Ok(length) if (Duration::from_secs(1)..=MOST).contains(&length) => Ok(length),
        Ok(_) => Err(format!("it is too short or too long: {wanted}")),
        Err(error) => Err(format!("{error}: {wanted}")),
    }
}
