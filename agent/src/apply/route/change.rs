//! Making changes: each is in the ledger first, and each answer of the kernel is heard.

use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};
use tracing::{info, warn};

use super::applier::RouteApplier;
use super::cleanup::{ESRCH, undo_line};
use super::netlink::{Change, NetlinkError};
use super::plan::{InForce, Obstacle, Step};
use crate::apply::DesiredStarts;
use crate::clock;
use crate::ledger::Entry;

/// How long a route that the kernel refused is not tried again, unless something around it changes.
const REFUSAL_PAUSE: Micros = Micros::from_secs(30);

impl RouteApplier {
    /// Someone removed or changed these routes of ours: they are no longer ours.
    pub(super) fn step_back(&mut self, lost: &[Network], now: Timestamp) {
        for network in lost {
            self.in_force.remove(network);
            let length_s = self.stepped_back.on_lost(*network, now).0 / 1_000_000;
            warn!(%network, "someone removed or changed our route: it comes back in {length_s} s");
        }
        self.forget(lost, "someone else removed or changed it");
    }

    pub(super) fn forget(&mut self, networks: &[Network], why: &str) {
        if let Err(error) = self.ledger.forget(networks, why) {
            self.count("ledger_failures", 1);
            warn!(%error, "the ledger still lists routes that are gone");
        }
    }

    /// Removes routes of ours, whatever the state of the ledger.
    pub(super) async fn remove(&mut self, networks: &[Network], why: &str) {
        let (mut gone, mut changes) = (Vec::new(), Vec::new());
        for network in networks {
            if let Some(route) = self.in_force.remove(network) {
                changes.push(Change::Delete(route.hop.route(*network, route.window)));
                gone.push((*network, route));
            }
        }
        let results = self.netlink.change(changes).await;
        let mut forgotten = Vec::with_capacity(gone.len());
        for ((network, route), result) in gone.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    info!(%network, reason = why, "back to the host's default");
                    forgotten.push(network);
                }
                // Links take their routes with them.
                Err(NetlinkError::Refused { source, .. }) if source.raw_os_error() == Some(ESRCH) => {
                    forgotten.push(network);
                }
                Err(error) => {
                    warn!(%network, %error, "cannot remove our route; it is tried again");
                    self.in_force.insert(network, route);
                    self.count("kernel_refusals", 1);
                }
            }
        }
        self.count("removed", forgotten.len());
        self.forget(&forgotten, why);
    }

    /// Records, then makes, the additions and changes of a plan.
    pub(super) async fn put(&mut self, steps: Vec<Step>, desired: &DesiredStarts, now: Timestamp) {
        if steps.is_empty() {
            return;
        }
        let entries = steps.iter().map(|step| entry(step, desired, now)).collect();
        if let Err(error) = self.ledger.record(entries) {
            warn!(%error, "routes stay as they are");
            self.count("ledger_failures", 1);
            self.obstacles.extend(steps.iter().map(|step| (step.network, Obstacle::Ledger)));
            return;
        }
        let results = self.netlink.change(steps.iter().map(Step::change).collect()).await;
        let mut refused = Vec::new();
        for (step, result) in steps.into_iter().zip(results) {
            let network = step.network;
            match result {
                Ok(()) => {
                    info!(%network, window_segments = step.window.0, gateway = %step.hop.gateway, "initial window set");
                    self.count(if step.before.is_some() { "changed" } else { "added" }, 1);
                    self.in_force.insert(network, InForce { hop: step.hop, link: step.link, window: step.window });
                }
                Err(error) => {
                    warn!(%network, %error, "initial window not set");
                    self.count("kernel_refusals", 1);
                    self.obstacles.insert(network, Obstacle::Kernel);
                    self.refused.insert(network, now.after(REFUSAL_PAUSE));
                    if step.before.is_none() {
                        refused.push(network);
                    }
                }
            }
        }
        self.forget(&refused, "the kernel refused it");
    }
}

/// The ledger's entry for a step.
fn entry(step: &Step, desired: &DesiredStarts, now: Timestamp) -> Entry {
    let wanted = desired.get(&step.network);
    Entry {
        network: step.network,
        window: step.window,
        gateway: step.hop.gateway,
        link: step.link.clone(),
        old: match step.before {
            Some(window) => format!("our route with initcwnd {}", window.0),
            None => format!("no route of its own: covered by one via {} dev {}", step.hop.gateway, step.link),
        },
        undo: undo_line(step.network, step.hop.gateway, &step.link),
        reason: wanted.map_or_else(String::new, |wanted| wanted.reason.to_string()),
        lifetime_s: wanted.map_or(0, |wanted| wanted.expires.since(now).0 / 1_000_000),
        made_unix_s: clock::wall_unix_s(),
    }
}
