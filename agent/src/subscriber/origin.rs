//! Which cluster's advice this host holds. Pure.

use spand_proto::contract::Cluster;
use spand_proto::push::UpdateEvent;

/// Follows snapshots.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// The cluster of all that is held, as far as a whole snapshot shows it.
    held: Option<Cluster>,
    /// The cluster of the snapshot that is under way.
    coming: Option<Cluster>,
}

impl Origin {
    /// What to name in a subscription.
    pub(super) const fn cluster(&self) -> Option<&Cluster> {
        self.held.as_ref()
    }

    /// An event of the stream that is heard. From the beginning of another cluster's snapshot to its end this host holds advice of
    /// both, which neither adopts.
    pub(super) fn on_event(&mut self, event: &UpdateEvent) {
        match event {
            UpdateEvent::SnapshotBegin { cluster, .. } => {
                self.coming.clone_from(cluster);
                if self.held != self.coming {
                    self.held = None;
                }
            }
            UpdateEvent::SnapshotEnd { .. } => self.held = self.coming.clone(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use spand_proto::contract::ContractVersion;

    use super::*;

    fn begin(cluster: &str) -> UpdateEvent {
        UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks: 1, cluster: Cluster::new(cluster) }
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
