//! What `status` shows.

use spand_proto::operator::lines_left_out;

use super::agent::Agent;
use crate::apply::Applier;
use crate::clock;
use crate::control::{InForce, Limitation, Status};

impl<A: Applier> Agent<A> {
    pub(super) fn status(&self) -> Status {
        let now = self.clock.now();
        let named = |counts: &std::collections::BTreeMap<&'static str, u64>| {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.clock.uptime().0 / 1_000_000,
            log_lines_left_out: lines_left_out(),
            sandbox: self.confined.parts().map(|(part, dropped)| (part.to_owned(), dropped)).collect(),
            paused: self.pause.pausing().is_paused(),
            paused_until: self.pause.until(),
            reloads: self.reloads.clone(),
            mode: self.config.mode,
            method: self.applier.method(),
            host_name: self.host_name.to_string(),
            addresses: self.addresses.borrow().clone(),
            gateway: self.gateway.shown(self.dialer.status(), now, clock::wall_ns()),
            networks_held: self.holdings.len(),
            in_force: self
                .applier
                .in_force()
                .into_iter()
                .map(|(prefix, window)| InForce { prefix, cwnd_segments: window.0 })
                .collect(),
            decisions: named(&self.decisions),
            method_events: named(&self.applier.counts()),
            advice: self.holdings.counts(),
            pushes: self.pushes.counts(),
            connections_seen: Some(self.seen.shown()),
            comparison: self.comparison.classes(),
            transfers_paused: self.comparison.paused(),
            limitations: self
                .applier
                .limitations()
                .iter()
                .map(|limitation| Limitation {
                    name: limitation.name().to_owned(),
                    sentence: limitation.sentence().to_owned(),
                })
                .collect(),
        }
    }
}
