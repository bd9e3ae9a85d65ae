//! What the agent changed on this host, so that it can be undone by anyone, also after a crash.
//!
//! One JSON object a line, written and synced before the change is made. A line that a crash cut short is a change that
//! was never made. Anything else that cannot be read is damage: the file is set aside, and the caller falls back to what
//! the kernel shows. The file is rewritten when it holds mostly history, so it stays in proportion to what is in force.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use spand_proto::network::Network;
use tracing::warn;

mod entry;
#[cfg(test)]
mod tests;

pub use entry::{Entry, Line, Recorded, read};

/// Lines of history that are kept before the file is rewritten.
const HISTORY_LINES: usize = 1_000;

/// The ledger of a running agent.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: File,
    in_force: BTreeMap<Network, Entry>,
    lines: usize,
}

/// A ledger that cannot be opened or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} the ledger {}: {source}; nothing is changed without it", path.display())]
pub struct LedgerError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl Ledger {
    /// Opens the ledger at `path` and returns what an earlier agent left in it. A damaged one is set aside.
    pub fn open(path: &Path) -> Result<(Self, Recorded), LedgerError> {
        let fault = |what| {
            let path = path.to_owned();
            move |source| LedgerError { what, path, source }
        };
        let recorded = read(path).map_err(fault("read"))?;
        if let Recorded::Damaged { line } = &recorded {
            let aside = path.with_extension("damaged");
            fs::rename(path, &aside).map_err(fault("set aside"))?;
            warn!(
                line,
                aside = %aside.display(),
                "the ledger is damaged and was set aside; routes are cleaned up by their protocol number and metric"
            );
        }
        let in_force = match &recorded {
            Recorded::Entries(entries) => entries.clone(),
            Recorded::Missing | Recorded::Damaged { .. } => BTreeMap::new(),
        };
        let mut ledger = Self {
            path: path.to_owned(),
            // Replaced at once; opened here so that the field needs no absence.
            file: File::open("/dev/null").map_err(fault("open"))?,
            in_force,
            lines: 0,
        };
        ledger.rewrite()?;
        Ok((ledger, recorded))
    }

    /// What is in force.
    pub const fn in_force(&self) -> &BTreeMap<Network, Entry> {
        &self.in_force
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records changes that are about to be made; they are on disk when this returns.
    pub fn record(&mut self, entries: Vec<Entry>) -> Result<(), LedgerError> {
        self.append(entries.into_iter().map(Line::Made).collect())
    }

    /// Records that changes were undone, or are no longer ours.
    pub fn forget(&mut self, networks: &[Network], why: &str) -> Result<(), LedgerError> {
        let line = |network: &Network| Line::Gone { network: *network, why: why.to_owned() };
        self.append(networks.iter().filter(|network| self.in_force.contains_key(network)).map(line).collect())
    }

    fn append(&mut self, lines: Vec<Line>) -> Result<(), LedgerError> {
        if lines.is_empty() {
            return Ok(());
        }
        let text = entry::to_text(&lines);
        self.write(&text).map_err(|source| self.fault("write", source))?;
        self.lines += lines.len();
        for line in lines {
            line.apply(&mut self.in_force);
        }
        if self.lines > 2 * self.in_force.len() + HISTORY_LINES { self.rewrite() } else { Ok(()) }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // A full disk may have taken half a line; what follows must not be glued to it.
            self.file.set_len(before)?;
        }
        written
    }

    /// Writes what is in force to a new file and puts it in the old one's place.
    fn rewrite(&mut self) -> Result<(), LedgerError> {
        let mut lines = vec![Line::Format { version: entry::FORMAT }];
        lines.extend(self.in_force.values().cloned().map(Line::Made));
        self.file = replace(&self.path, &entry::to_text(&lines)).map_err(|source| self.fault("write", source))?;
        self.lines = lines.len();
        Ok(())
    }

    fn fault(&self, what: &'static str, source: io::Error) -> LedgerError {
        LedgerError { what, path: self.path.clone(), source }
    }
}

/// A new file in the place of `path`, synced with its folder, open for appending.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<File> {
    let fresh = path.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o640).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}
