//! Advice that a host holds of another gateway of the cluster, which lives on while this one's snapshot comes.
//!
//! A snapshot of many hosts can take longer than advice lives. Adopted advice is used without being read here, so a gateway
//! adopts only if its own withdrawals cover it. It has had the others' cells for a lifetime, and sends the withdrawals and
//! retreats since then before the pages of the snapshot.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use prometheus_client::encoding::EncodeLabelSet;
use spand_core::mem::allocated_for;
use spand_proto::contract::Cluster;
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};
use strum::{IntoStaticStr, VariantArray};

use super::{Published, ToHosts};

/// Withdrawals that are remembered, and networks that are sent before a snapshot. With more of them within a lifetime no host is adopted.
const MOST: usize = 2_048;

/// Bytes of the withdrawals that are remembered, and of what N hosts are sent before their snapshots.
pub(super) const fn most_bytes(subscribers: usize) -> usize {
    let remembered = allocated_for::<(Timestamp, Network)>(MOST);
    remembered.saturating_add(subscribers.saturating_mul(allocated_for::<Network>(MOST)))
}

/// The cluster of this gateway.
pub(super) struct Membership {
    cluster: Cluster,
    /// Whether it has known what the others see for this long.
    knows_others: Box<dyn Fn(Micros) -> bool + Send + Sync>,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// Why a host that asked for it is not adopted.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum NotAdopted {
    /// What it holds is of another cluster, or this gateway is of none.
    OtherCluster,
    /// Hosts get the networks that they use, and this one named none.
    InUse,
    /// This gateway has not known for a lifetime what the others see.
    OthersUnknown,
    /// More was withdrawn or is held back than is sent before a snapshot.
    TooMuchWithdrawn,
}

impl NotAdopted {
    pub(super) fn name(self) -> &'static str {
        self.into()
    }
}

/// Label of a reason.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct NotAdoptedLabel {
    pub(super) reason: &'static str,
}

/// The last withdrawals.
#[derive(Debug, Default)]
pub(super) struct Withdrawn {
    recent: VecDeque<(Timestamp, Network)>,
    /// When the last one that is no longer remembered was.
    forgotten: Option<Timestamp>,
}

impl Withdrawn {
    /// The advice about a network ended.
    pub(super) fn note(&mut self, network: Network, now: Timestamp) {
        if self.recent.len() >= MOST {
            self.forgotten = self.recent.pop_front().map(|(at, _)| at);
        }
        self.recent.push_back((now, network));
    }

    /// Those since then; `None` where not all of them are remembered.
    fn since(&self, from: Timestamp) -> Option<impl Iterator<Item = Network>> {
        let is_whole = self.forgotten.is_none_or(|at| at < from);
        is_whole.then(|| self.recent.iter().rev().take_while(move |(at, _)| *at >= from).map(|(_, network)| *network))
    }
}

impl Published {
    /// Makes this gateway one of a cluster, which `knows_others` if it has known what they see for this long. Once.
    pub fn join_cluster(&self, cluster: Cluster, knows_others: impl Fn(Micros) -> bool + Send + Sync + 'static) {
        let knows_others = Box::new(knows_others);
        drop(self.shared.cluster.membership.set(Membership { cluster, knows_others }));
    }

    /// Its cluster.
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        self.shared.cluster.membership.get().map(|membership| &membership.cluster)
    }

    /// What to send before the pages of the snapshot to a host that holds advice of this cluster and is adopted.
    /// The networks of that advice are in use by the host.
    pub(super) fn adopt(&self, held: &Cluster, in_use: (u64, &[Network])) -> Result<Vec<Network>, NotAdopted> {
        let membership = self.shared.cluster.membership.get().filter(|membership| membership.cluster == *held);
        let membership = membership.ok_or(NotAdopted::OtherCluster)?;
        let config = &self.shared.config;
        if config.to_hosts == ToHosts::InUse && in_use.1.is_empty() {
            return Err(NotAdopted::InUse);
        }
        if !(membership.knows_others)(config.lifetime) {
            return Err(NotAdopted::OthersUnknown);
        }
        let from = Timestamp(self.now().0.saturating_sub(config.lifetime.0.saturating_mul(1_000)));
        let state = self.shared.state.read();
        let withdrawn = state.withdrawn.since(from).ok_or(NotAdopted::TooMuchWithdrawn)?;
        let gone = withdrawn.filter(|network| !state.networks.has_estimate(*network));
        // One more shows that there are too many.
        let first: BTreeSet<Network> = gone.chain(state.networks.with_retreats().take(MOST + 1)).collect();
        if first.len() > MOST {
            return Err(NotAdopted::TooMuchWithdrawn);
        }
        let (host, networks) = in_use;
        let known = networks.iter().filter(|network| state.networks.has_estimate(**network));
        let uses: Vec<_> = known.map(|network| (host, *network)).collect();
        drop(state);
        self.uses_of_host(&uses);
        Ok(first.into_iter().collect())
    }
}
