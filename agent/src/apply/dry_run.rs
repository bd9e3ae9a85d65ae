//! Says what it would do, and does nothing.

use std::collections::BTreeMap;

use spand_proto::network::Network;
use spand_proto::units::{Segments, Timestamp};
use tracing::info;

use super::{Applier, ApplyCounts, Decided, Lack, News, Outcome};
use crate::config::Way;

/// The applier that changes nothing.
#[derive(Debug, Default)]
pub struct DryRun {
    would: BTreeMap<Network, Segments>,
    counts: ApplyCounts,
}

impl Applier for DryRun {
    fn way(&self) -> Way {
        Way::DryRun
    }

    fn lacks(&self) -> &'static [Lack] {
        &[Lack::Everything]
    }

    async fn reconcile(&mut self, decided: &Decided<'_>, _now: Timestamp) -> bool {
        let wishes = decided.wishes;
        let gone: Vec<Network> = self.would.keys().filter(|network| !wishes.contains_key(network)).copied().collect();
        let mut changed = !gone.is_empty();
        for network in gone {
            self.would.remove(&network);
            *self.counts.entry("would_remove").or_default() += 1;
            info!(%network, "dry run: would go back to the host's default");
        }
        for (network, wish) in wishes {
            let before = self.would.insert(*network, wish.window);
            if before == Some(wish.window) {
                continue;
            }
            changed = true;
            let name = if before.is_some() { "would_change" } else { "would_add" };
            *self.counts.entry(name).or_default() += 1;
            info!(%network, window_segments = wish.window.0, reason = %wish.reason, "dry run: would start like this");
        }
        changed
    }

    async fn clear(&mut self) {
        self.would.clear();
    }

    async fn news(&mut self) -> News {
        std::future::pending().await
    }

    fn outcome(&self, network: Network) -> Option<Outcome> {
        self.would.get(&network).map(|window| Outcome::WouldBe { window: *window })
    }

    fn in_force(&self) -> Vec<(Network, Segments)> {
        Vec::new()
    }

    fn counts(&self) -> ApplyCounts {
        self.counts.clone()
    }
}
