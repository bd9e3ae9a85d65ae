//! Reading a ledger that someone else may have left, without changing it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use spand_proto::network::Network;

use super::entry::{Entry, FORMAT, Line};

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
