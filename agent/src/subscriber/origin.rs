//! Follows which cluster's advice this host holds, and for which networks, by the events of a stream. It keeps no advice, does no IO and reads
//! no clock.

use std::collections::BTreeSet;

use spand_proto::contract::Cluster;
use spand_proto::network::Network;
use spand_proto::push::{MAX_NETWORKS_HELD, UpdateEvent};

/// Follows snapshots.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// The cluster of all that is held, as far as a whole snapshot shows it.
    held: Option<Cluster>,
    /// The cluster of the snapshot that is under way.
    coming: Option<Cluster>,
    /// The networks with advice since the last snapshot began; `None` once there were more than a subscription can name.
    networks: Option<BTreeSet<Network>>,
}

impl Origin {
    /// What to name in a subscription.
    pub(super) const fn cluster(&self) -> Option<&Cluster> {
        self.held.as_ref()
    }

    /// The networks to name with it.
    pub(super) fn networks(&self) -> Vec<Network> {
        let named = self.networks.as_ref().filter(|_| self.held.is_some());
        named.into_iter().flatten().copied().collect()
    }

    /// An event of the stream that is heard. From the beginning of another cluster's snapshot to its end this host holds advice of
    /// both, which neither adopts.
    pub(super) fn on_event(&mut self, event: &UpdateEvent) {
        match event {
            UpdateEvent::SnapshotBegin { cluster, .. } => {
                self.coming.clone_from(cluster);
                self.networks = Some(BTreeSet::new());
                if self.held != self.coming {
                    self.held = None;
                }
            }
            UpdateEvent::SnapshotEnd { .. } => self.held = self.coming.clone(),
            UpdateEvent::Estimate(update) => self.gives(update.estimate.network),
            UpdateEvent::ImminentStart(start) => self.gives(start.estimate.estimate.network),
            UpdateEvent::Withdrawal { network, .. } => {
                self.networks.as_mut().map(|networks| networks.remove(network));
            }
            _ => {}
        }
    }

    fn gives(&mut self, network: Network) {
        if let Some(networks) = &mut self.networks {
            networks.insert(network);
            if networks.len() > MAX_NETWORKS_HELD {
                self.networks = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use spand_proto::contract::ContractVersion;
    use spand_proto::made_up;
    use spand_proto::push::{EstimateUpdate, WithdrawalReason};
    use spand_proto::units::{Micros, Timestamp, Window};

    use super::*;

    fn begin(cluster: &str) -> UpdateEvent {
        UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks: 1, cluster: Cluster::new(cluster) }
    }

    #[test]
    fn the_networks_of_a_whole_snapshot_and_since_are_named_unless_there_are_too_many() {
        let network = |n: usize| {
            Network::of(IpAddr::from(0xcb00_0000_u32.wrapping_add(u32::try_from(n << 8).unwrap()).to_be_bytes()))
        };
        let withdrawn = |n| UpdateEvent::Withdrawal { network: network(n), reason: WithdrawalReason::Expired };
        let given = |network: Network| {
            let estimate = made_up::estimate(network, Window::default(), Timestamp(0));
            UpdateEvent::Estimate(EstimateUpdate { estimate, lifetime: Micros::from_secs(60), lease: None })
        };
        let mut origin = Origin::default();
        let mut after = |events: &[UpdateEvent]| {
            for event in events {
                origin.on_event(event);
            }
            origin.networks()
        };
        assert_eq!(after(&[begin("main"), given(network(1)), given(network(2))]), [], "it is not whole");
        let end = UpdateEvent::SnapshotEnd { networks: 2 };
        assert_eq!(after(&[end.clone(), withdrawn(1), given(network(3))]), [network(2), network(3)]);
        let many = (0..=MAX_NETWORKS_HELD).map(|n| given(network(n)));
        assert_eq!(after(&many.collect::<Vec<_>>()), []);
        assert_eq!(after(&[withdrawn(1)]), [], "not all of the others are remembered");
        assert_eq!(after(&[begin("main"), given(network(1)), end]), [network(1)]);
    }

    #[test]
    fn a_cluster_is_named_once_its_snapshot_is_whole_and_while_all_that_is_held_is_of_it() {
        let mut origin = Origin::default();
        let mut named = |event: &UpdateEvent| {
            origin.on_event(event);
            origin.cluster().map_or("", Cluster::as_str).to_owned()
        };
        let end = UpdateEvent::SnapshotEnd { networks: 1 };
        assert_eq!([named(&begin("main")), named(&end)], ["", "main"]);
        assert_eq!([named(&begin("main")), named(&begin("main"))], ["main", "main"], "another gateway of it, twice");
        assert_eq!([named(&begin("other")), named(&begin("main")), named(&end)], ["", "", "main"]);
        assert_eq!(
            [named(&begin("")), named(&end)],
            ["", ""],
            "a gateway that shares with no other, or knows no clusters"
        );
    }
}
