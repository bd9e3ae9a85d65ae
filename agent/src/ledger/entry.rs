//! The lines of a ledger.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use spand_proto::network::Network;
use spand_proto::units::Segments;

/// Number of the format; an older agent sets a newer ledger aside as damaged.
pub(super) const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first one.
    Format {
        /// Number of the format.
        version: u32,
    },
    /// A change that is about to be made.
    Made(Entry),
    /// A change that is no longer in force or no longer ours.
    Gone {
        /// Its network.
        network: Network,
        /// Why.
        why: String,
    },
}

/// One change: a route that the agent set.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Entry {
    /// The network.
    pub network: Network,
    /// The initial window that was set.
    pub window: Segments,
    /// The gateway that was copied.
    pub gateway: IpAddr,
    /// The link that was copied, by name.
    pub link: String,
    /// What there was before, for people.
    pub old: String,
    /// A command that takes it back.
    pub undo: String,
    /// Why it was made.
    pub reason: String,
    /// How long the advice behind it holds without a refresh, in seconds from `made_unix_s`.
    pub lifetime_s: u64,
    /// When, by the wall clock: seconds since 1970-01-01 00:00 UTC.
    pub made_unix_s: u64,
}

impl Line {
    /// What the line does to the entries in force.
    pub(super) fn apply(self, in_force: &mut BTreeMap<Network, Entry>) {
        match self {
            Self::Format { .. } => {}
            Self::Made(entry) => {
                in_force.insert(entry.network, entry);
            }
            Self::Gone { network, .. } => {
                in_force.remove(&network);
            }
        }
    }
}

/// The lines as they stand in the file.
pub(super) fn to_text(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        // Numbers, strings and addresses only: this cannot fail.
        text.push_str(&serde_json::to_string(line).unwrap_or_default());
        text.push('\n');
    }
    text
}

// Reading a ledger that someone else may have left, without changing it.

/// Largest ledger that is read: 65,536 entries of a kilobyte. A larger one is damage.
const MOST_BYTES: u64 = 64 << 20;

/// The content of a ledger.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Recorded {
    /// There is none.
    Missing,
    /// These changes are in force, as far as it knows.
    Entries(BTreeMap<Network, Entry>),
    /// It cannot be read from this line on.
    Damaged {
        /// The line, counted from 1.
        line: usize,
    },
}

impl Recorded {
    /// Whether a route for `network` that bears our signature is ours. Without a readable ledger the signature decides.
    pub fn is_ours(&self, network: Network) -> bool {
        match self {
            Self::Entries(entries) => entries.contains_key(&network),
            Self::Missing | Self::Damaged { .. } => true,
        }
    }
}

/// Reads the ledger at `path`.
pub fn read(path: &Path) -> io::Result<Recorded> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MOST_BYTES + 1).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Recorded::Missing),
        Err(error) => return Err(error),
    };
    Ok(parse(&text))
}

pub(super) fn parse(text: &[u8]) -> Recorded {
    if text.len() as u64 > MOST_BYTES {
        return Recorded::Damaged { line: 1 };
    }
    let mut in_force = BTreeMap::new();
    let mut lines = text.split_inclusive(|&byte| byte == b'\n').enumerate().peekable();
    if lines.peek().is_none() {
        // Never written by us: a ledger begins with its format.
        return Recorded::Damaged { line: 1 };
    }
    while let Some((index, line)) = lines.next() {
        let whole = line.ends_with(b"\n");
        match serde_json::from_slice::<Line>(line) {
            Ok(Line::Format { version }) if index == 0 && version == FORMAT && whole => {}
            Ok(line @ (Line::Made(_) | Line::Gone { .. })) if index > 0 && whole => line.apply(&mut in_force),
            // A crash cut the last line short; what it announced was never done.
            _ if index > 0 && !whole && lines.peek().is_none() => {}
            _ => return Recorded::Damaged { line: index + 1 },
        }
    }
    Recorded::Entries(in_force)
}
