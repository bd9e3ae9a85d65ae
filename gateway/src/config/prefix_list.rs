//! A prefix list: networks by longest match, such as the routes of a BGP table.
//!
//! One prefix a line; what follows a blank after it (a next hop, an AS path) is not read; `#` starts a comment.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use spand_proto::network::{Network, NotANetwork};
use spand_proto::operator::Failure;

/// Most prefixes that are taken: four times today's full table of routes. Each costs about 100 bytes.
pub const MAX_PREFIXES: usize = 4_000_000;

/// A prefix list that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrefixListError {
    /// The file cannot be read (exit code 1).
    #[error("cannot read the prefix list {}: {source}; name another one (traffic.prefix_list, --prefix-list)", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line that names no network (exit code 64).
    #[error("prefix list {}, line {line}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        source: NotANetwork,
    },
    /// More lines than are taken (exit code 64).
    #[error("prefix list {} holds more than {MAX_PREFIXES} prefixes: leave out the longest ones", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
}

impl From<PrefixListError> for Failure {
    fn from(error: PrefixListError) -> Self {
        match error {
            PrefixListError::Unreadable { .. } => Self::environment(error),
            PrefixListError::Line { .. } | PrefixListError::TooLong { .. } => Self::Usage(error.to_string()),
        }
    }
}

/// Reads the list in `path`: sorted, host bits cleared, each prefix once.
pub fn load_prefix_list(path: &Path) -> Result<Vec<IpNet>, PrefixListError> {
    let unreadable = |source| PrefixListError::Unreadable { path: path.to_owned(), source };
    let reader = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut prefixes = Vec::new();
    for (index, line) in reader.lines().enumerate() {
        let line = line.map_err(unreadable)?;
        let content = line.split('#').next().unwrap_or_default();
        let Some(text) = content.split_whitespace().next() else { continue };
        let network: Network =
            text.parse().map_err(|source| PrefixListError::Line { path: path.to_owned(), line: index + 1, source })?;
        if prefixes.len() == MAX_PREFIXES {
            return Err(PrefixListError::TooLong { path: path.to_owned() });
        }
        prefixes.push(network.prefix());
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    Ok(prefixes)
}
