//! A prefix list: networks by longest match, such as the routes of a BGP table, or with a name each.
//!
//! One prefix a line, then a blank and what belongs to it (a next hop, an AS path, a name); `#` starts a comment.

use std::path::{Path, PathBuf};

use ipnet::IpNet;
use spand_confine::read_at_most;
use spand_proto::network::{Network, NotANetwork};
use spand_proto::operator::Failure;

/// Most prefixes that are taken: four times today's full table of routes. Each costs about 100 bytes.
pub const MAX_PREFIXES: usize = 4_000_000;

/// Largest list or database of names in MiB.
pub(crate) const MOST_MIB: u64 = 256;

/// A prefix list that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrefixListError {
    /// The file cannot be read (exit code 1).
    #[error("cannot read the prefix list {}: {source}; name another one (traffic.prefix_list, --prefix-list, names.list)", path.display())]
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
    let mut prefixes = Vec::new();
    read_prefixes(path, |network, _| prefixes.push(network.prefix()))?;
    prefixes.sort_unstable();
    prefixes.dedup();
    Ok(prefixes)
}

/// Gives `take` each line's network and what follows it.
pub(crate) fn read_prefixes(path: &Path, mut take: impl FnMut(Network, &str)) -> Result<(), PrefixListError> {
    let unreadable = |source| PrefixListError::Unreadable { path: path.to_owned(), source };
    let text = read_at_most(path, MOST_MIB).and_then(spand_confine::text).map_err(unreadable)?;
    let mut taken = 0;
    for (index, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default().trim();
        let (text, rest) = content.split_once(char::is_whitespace).unwrap_or((content, ""));
        if text.is_empty() {
            continue;
        }
        let network: Network =
            text.parse().map_err(|source| PrefixListError::Line { path: path.to_owned(), line: index + 1, source })?;
        if taken == MAX_PREFIXES {
            return Err(PrefixListError::TooLong { path: path.to_owned() });
        }
        taken += 1;
        take(network, rest.trim_start());
    }
    Ok(())
}
