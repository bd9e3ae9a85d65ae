//! The lines of a ledger.

use std::collections::BTreeMap;
use std::net::IpAddr;

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
