//! The experiment in the store: the comparison of `/v1/benefit`, and of each host that reported what its transfers are counted by.
//!
//! ```text
//! key    0                                        the comparison: one entry
//!        1, names of a certificate                a host
//!        4 or 6, address (4 or 16 bytes)          a host without one
//! value  as in [`super::codec`]
//! ```
//!
//! The payload of the comparison begins with its layout ([`spand_proto::comparison::LAYOUT`]). A tree of its own: what is
//! damaged here leaves the networks as they are.
//!
//! A host's entry says which batches of it were taken. It is on the disk before the comparison that counts them, so that a
//! crash between the two loses transfers and counts none twice.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sled::{Batch, Db, Tree};
use spand_core::mem::{allocated, listed, treed};
use spand_proto::comparison::{ARMS, CLASSES, Comparison, LAYOUT};
use spand_proto::contract::MAX_HOST_NAME_BYTES;
use spand_proto::units::Timestamp;

use super::codec::{FORMAT, RecordError, decoded, opened, sealed, unsealed};
use crate::publisher::Client;

const TREE: &[u8] = b"experiment";
const COMPARISON: &[u8] = &[0];
const CERTIFICATE: u8 = 1;
/// Hosts written together, of some 2 KB at most each: a batch stays far below the database's 512 KiB segment.
const BATCH_HOSTS: usize = 64;

/// What is compared, and since when.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Experiment {
    /// When it began.
    pub since: Timestamp,
    /// Both arms.
    pub comparison: Comparison,
    /// Compared transfers of hosts that were forgotten.
    pub beyond: u64,
}

/// What is kept of a host that reported.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReportingHost {
    /// When it was heard last.
    pub heard: Timestamp,
    /// Its agents, the one heard last at the end.
    pub agents: Vec<NewestBatch>,
    /// Its compared transfers by class and arm.
    pub compared: [[u32; ARMS.len()]; CLASSES.len()],
}

/// The newest batch that was taken of an agent.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NewestBatch {
    /// Checksum of the name that the agent gives itself.
    pub name: u32,
    /// When it started, by its host's clock: only to distinguish agents.
    pub started: Timestamp,
    /// The batch's number.
    pub batch: u64,
}

/// What changed of the experiment since the change before.
#[derive(Clone, Debug)]
pub struct ExperimentChange {
    /// The experiment, whole.
    pub experiment: Experiment,
    /// Hosts that reported meanwhile; `None` for those that were forgotten.
    pub hosts: BTreeMap<Client, Option<ReportingHost>>,
    /// Whether these are all hosts.
    pub all_hosts: bool,
}

/// The experiment as a store held it.
#[derive(Clone, Debug)]
pub struct SavedExperiment {
    /// The experiment.
    pub experiment: Experiment,
    /// Its hosts.
    pub hosts: Vec<(Client, ReportingHost)>,
    /// Hosts whose entries could not be read and were left out.
    pub unreadable: usize,
}

/// Why a saved experiment is not continued.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotContinued {
    /// Its entry is not as it was written.
    #[error("is damaged")]
    Damaged,
    /// Another version of the gateway wrote it.
    #[error("has format {0}, and this version of the gateway reads format {FORMAT}")]
    Format(u8),
    /// It counted in other size classes, strata or steps.
    #[error("was counted in other size classes than those of this version of the gateway")]
    OtherSizes,
}

/// What a database holds of it.
pub(super) struct Held {
    pub(super) experiment: Result<Option<SavedExperiment>, NotContinued>,
    /// Whether there are entries of an experiment that is not continued.
    pub(super) stale: bool,
}

impl ExperimentChange {
    /// The most that N hosts take that wait, are being written, or have just been read.
    pub(crate) const fn most_bytes(hosts: usize, agents: usize) -> usize {
        let each = allocated(4 * MAX_HOST_NAME_BYTES) + listed::<NewestBatch>(agents);
        let change = treed::<Client, Option<ReportingHost>>(hosts).saturating_add(hosts.saturating_mul(each));
        change.saturating_mul(2)
    }

    /// Both in one, where the other is the newer.
    pub(super) fn followed_by(mut self, newer: Self) -> Self {
        if newer.all_hosts {
            return newer;
        }
        self.hosts.extend(newer.hosts);
        Self { experiment: newer.experiment, ..self }
    }
}

/// Reads what there is of an experiment.
pub(super) fn read(database: &Db) -> sled::Result<Held> {
    // Opening it would write it.
    if !database.tree_names().iter().any(|name| name == TREE) {
        return Ok(Held { experiment: Ok(None), stale: false });
    }
    let tree = database.open_tree(TREE)?;
    let experiment = match tree.get(COMPARISON)? {
        None => Ok(None),
        Some(value) => match comparison_of(&value) {
            Ok(experiment) => Ok(Some(with_hosts(experiment, &tree)?)),
            Err(why) => Err(why),
        },
    };
    // A crash before the first comparison was written leaves hosts alone.
    let stale = !matches!(experiment, Ok(Some(_))) && !tree.is_empty();
    Ok(Held { experiment, stale })
}

fn with_hosts(experiment: Experiment, tree: &Tree) -> sled::Result<SavedExperiment> {
    let (mut hosts, mut unreadable) = (Vec::new(), 0);
    for entry in tree {
        let (key, value) = entry?;
        if key == COMPARISON {
            continue;
        }
        match client(&key).zip(opened(&key, &value).ok()) {
            Some(host) => hosts.push(host),
            None => unreadable += 1,
        }
    }
    Ok(SavedExperiment { experiment, hosts, unreadable })
}

/// Writes a change: hosts first, and `between` runs before the comparison is written.
pub(super) fn write(database: &Db, change: &ExperimentChange, between: impl FnOnce()) -> sled::Result<()> {
    let tree = database.open_tree(TREE)?;
    let mut hosts = change.hosts.iter().filter_map(|(client, host)| Some((key(client)?, host))).peekable();
    let any = hosts.peek().is_some();
    while hosts.peek().is_some() {
        let mut batch = Batch::default();
        for (key, host) in hosts.by_ref().take(BATCH_HOSTS) {
            match host {
                Some(host) => batch.insert(key.as_slice(), sealed(&key, host)?),
                None => batch.remove(key),
            }
        }
        tree.apply_batch(batch)?;
    }
    if any {
        database.flush()?;
    }
    between();
    tree.insert(COMPARISON, sealed(COMPARISON, &(LAYOUT, &change.experiment))?)?;
    Ok(())
}

/// Removes all of it. The comparison sorts first and so goes first: what a crash leaves is continued by nobody.
pub(super) fn clear(database: &Db) -> sled::Result<()> {
    database.open_tree(TREE)?.clear()?;
    database.flush().map(drop)
}

/// The key of a host. None of what cannot report.
pub(super) fn key(client: &Client) -> Option<Vec<u8>> {
    Some(match client {
        Client::Certificate(names) => [&[CERTIFICATE], names.as_bytes()].concat(),
        Client::Address(IpAddr::V4(address)) => [&[4][..], &address.octets()].concat(),
        Client::Address(IpAddr::V6(address)) => [&[6][..], &address.octets()].concat(),
        Client::Host(_) => return None,
    })
}

/// The host of a key.
pub(super) fn client(key: &[u8]) -> Option<Client> {
    let (kind, rest) = key.split_first()?;
    Some(match *kind {
        CERTIFICATE => Client::Certificate(str::from_utf8(rest).ok()?.to_owned()),
        4 => Client::Address(<[u8; 4]>::try_from(rest).ok()?.into()),
        6 => Client::Address(<[u8; 16]>::try_from(rest).ok()?.into()),
        _ => return None,
    })
}

/// The comparison of its entry.
pub(super) fn comparison_of(value: &[u8]) -> Result<Experiment, NotContinued> {
    let payload = unsealed(COMPARISON, value).map_err(|error| match error {
        RecordError::Format(format) => NotContinued::Format(format),
        _ => NotContinued::Damaged,
    })?;
    // Before all else: the rest of another layout may be anything.
    let (layout, rest): (u64, _) = postcard::take_from_bytes(payload).map_err(|_| NotContinued::Damaged)?;
    if layout != LAYOUT {
        return Err(NotContinued::OtherSizes);
    }
    decoded(rest).map_err(|_| NotContinued::Damaged)
}

/// The entry of a comparison.
#[cfg(any(test, fuzzing))]
pub(super) fn entry_of(experiment: &Experiment) -> sled::Result<Vec<u8>> {
    sealed(COMPARISON, &(LAYOUT, experiment))
}
