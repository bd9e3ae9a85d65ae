//! Logs what it would do and changes nothing.

use std::collections::BTreeMap;

use spand_proto::network::Network;
use spand_proto::units::{Segments, Timestamp};
use tracing::info;

use super::{Applier, ApplyCounts, Decided, Limitation, News, Outcome};
use crate::config::ApplyMethod;

/// The applier that changes nothing.
#[derive(Debug, Default)]
pub struct DryRun {
    would: BTreeMap<Network, Segments>,
    counts: ApplyCounts,
}

impl Applier for DryRun {
    fn method(&self) -> ApplyMethod {
        ApplyMethod::DryRun
    }

    fn limitations(&self) -> &'static [Limitation] {
        &Limitation::DRY_RUN
    }

    async fn reconcile(&mut self, decided: &Decided<'_>, _now: Timestamp) -> bool {
        let desired = decided.desired;
        let gone: Vec<Network> = self.would.keys().filter(|network| !desired.contains_key(network)).copied().collect();
        let mut changed = !gone.is_empty();
        for network in gone {
            self.would.remove(&network);
            *self.counts.entry("would_remove").or_default() += 1;
            info!(%network, "dry run: would go back to the host's default");
        }
        for (network, wanted) in desired {
            let before = self.would.insert(*network, wanted.window);
            if before == Some(wanted.window) {
                continue;
            }
            changed = true;
            let name = if before.is_some() { "would_change" } else { "would_add" };
            *self.counts.entry(name).or_default() += 1;
            info!(%network, window_segments = wanted.window.0, reason = %wanted.reason, "dry run: would start like this");
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
