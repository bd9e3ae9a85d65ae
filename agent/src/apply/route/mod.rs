//! Sets the initial window of routes: one route for each advised network, a copy of its covering route with `initcwnd`.
//!
//! A copied next hop must never outlive its original. So every change of a route around or inside a network, of a rule
//! or of a link removes our route first; it comes back when things stood still for a while. Someone else's route is never
//! touched: ours bear a protocol number and a metric of their own (`signature`), the kernel matches the number on every
//! removal, and the ledger must know them. Where an administrator sets the same thing, removes or changes a route of
//! ours, it stays away.
//!
//! Facts from the kernel (`fib_trie.c`, `route.c`): each change of an IPv4 route makes all cached routes of the namespace
//! stale, so changes are collected by the caller and made in one batch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spand_proto::network::Network;
use spand_proto::units::{Micros, Segments, Timestamp};
use tracing::{debug, info, warn};

use super::{Applier, ApplyCounts, Lack, Outcome, Wishes};
use crate::clock;
use crate::config::{Config, Way};
use crate::exit::Failure;
use crate::ledger::{Entry, Ledger};

mod cleanup;
mod disturbance;
pub mod guard;
mod monitor;
mod netlink;
mod obstacle;
mod plan;
mod privilege;
mod signature;
mod undo;
mod view;

#[cfg(test)]
mod tests;

pub use cleanup::{CleanUp, clean_up};
pub use netlink::{Netlink, NetlinkError};
pub use obstacle::Obstacle;
pub use privilege::{may_change_routes, only_agent_here};
pub use signature::{PRIORITY, PROTOCOL};
pub use undo::{undo_command, undo_line};

use cleanup::ESRCH;
use disturbance::Disturbance;
use guard::Guard;
use monitor::Monitor;
use netlink::Change;
use plan::{Plan, Step};
use view::{Hop, View};

/// Disturbances that are remembered until they settled; beyond, they are merged into one that touches everything.
const MOST_UNSETTLED: usize = 64;

/// Networks that are remembered as stepped back from; beyond, the agent applies nothing new.
const MOST_STEPPED_BACK: usize = 65_536;

/// How long the kernel's news may take to be read.
const NEWS_DELAY: Duration = Duration::from_millis(50);

/// The applier.
#[derive(Debug)]
pub struct RouteApplier {
    netlink: Netlink,
    monitor: Monitor,
    guard: Option<Guard>,
    ledger: Ledger,
    settle: Micros,
    verify: Micros,
    limit: usize,
    view: Option<View>,
    viewed: Timestamp,
    in_force: BTreeMap<Network, InForce>,
    obstacles: BTreeMap<Network, Obstacle>,
    unsettled: Vec<(Timestamp, Disturbance)>,
    stepped_back: BTreeSet<Network>,
    counts: ApplyCounts,
}

/// A route of ours.
#[derive(Clone, Debug)]
struct InForce {
    hop: Hop,
    link: String,
    window: Segments,
}

impl RouteApplier {
    /// Opens netlink and the ledger, removes what an earlier agent left, and starts the guard.
    pub async fn start(config: &Config, now: Timestamp) -> Result<Self, Failure> {
        let netlink = Netlink::open().map_err(Failure::environment)?;
        let path = config.ledger_file();
        let (mut ledger, recorded) = Ledger::open(&path).map_err(Failure::environment)?;
        let done = clean_up(&netlink, &recorded).await.map_err(Failure::environment)?;
        let left: Vec<Network> = ledger.in_force().keys().copied().collect();
        ledger.forget(&left, "an earlier agent's").map_err(Failure::environment)?;
        let monitor = Monitor::start().map_err(Failure::environment)?;
        let guard = Guard::spawn(&path)
            .map_err(|error| Failure::Environment(format!("cannot start the supervising process: {error}")))?;
        let mut applier = Self {
            netlink,
            monitor,
            guard: Some(guard),
            ledger,
            settle: Micros::from_millis(config.route.settle_ms.get()),
            verify: Micros::from_secs(config.route.verify_s.get()),
            limit: config.limits.applied.get(),
            view: None,
            viewed: now,
            in_force: BTreeMap::new(),
            obstacles: BTreeMap::new(),
            unsettled: Vec::new(),
            stepped_back: BTreeSet::new(),
            counts: ApplyCounts::new(),
        };
        applier.count("cleaned_up", done.removed.len());
        Ok(applier)
    }

    fn count(&mut self, name: &'static str, more: usize) {
        if more > 0 {
            *self.counts.entry(name).or_default() += more as u64;
        }
    }

    /// Takes in what others changed: removes our routes whose next hop is in doubt before anything else happens.
    async fn retreat_from(&mut self, now: Timestamp) {
        let disturbance = self.monitor.take();
        if disturbance.is_empty() {
            return;
        }
        let doubtful: Vec<Network> = self
            .in_force
            .iter()
            .filter(|(network, route)| disturbance.touches(**network, Some(route.hop.link)))
            .map(|(network, _)| *network)
            .collect();
        self.count("removed_for_change", doubtful.len());
        self.remove(&doubtful, "routes, rules or links changed").await;
        self.view = None;
        if disturbance.only_ours() {
            return;
        }
        if self.unsettled.len() >= MOST_UNSETTLED {
            let mut merged = Disturbance::default();
            merged.everything();
            self.unsettled.clear();
            self.unsettled.push((now.after(self.settle), merged));
        } else {
            self.unsettled.push((now.after(self.settle), disturbance));
        }
    }

    /// Looks at the kernel again where that is due. False where it cannot be read.
    async fn look(&mut self, now: Timestamp) -> bool {
        if self.view.is_some() && now.since(self.viewed) < self.verify {
            return true;
        }
        let Some(view) = self.dump(now).await else { return false };
        let suspects = plan::lost(&self.in_force, &view);
        self.view = Some(view);
        if suspects.is_empty() {
            return true;
        }
        // A link that goes down takes its routes along without a word about them: let its own news come in first.
        tokio::time::sleep(NEWS_DELAY).await;
        self.retreat_from(now).await;
        let Some(view) = self.dump(now).await else { return false };
        let lost = plan::lost(&self.in_force, &view);
        self.view = Some(view);
        self.step_back(&lost);
        true
    }

    async fn dump(&mut self, now: Timestamp) -> Option<View> {
        match self.netlink.view().await {
            Ok(view) => {
                self.viewed = now;
                Some(view)
            }
            Err(error) => {
                warn!(%error, "cannot look at the kernel's routes: ours are removed");
                self.view = None;
                None
            }
        }
    }

    /// Someone removed or changed these routes of ours: they are no longer ours.
    fn step_back(&mut self, lost: &[Network]) {
        for network in lost {
            self.in_force.remove(network);
            if self.stepped_back.len() < MOST_STEPPED_BACK {
                self.stepped_back.insert(*network);
            }
            warn!(%network, "someone removed or changed our route: it stays away until the agent is started again");
        }
        self.forget(lost, "someone else removed or changed it");
    }

    fn forget(&mut self, networks: &[Network], why: &str) {
        if let Err(error) = self.ledger.forget(networks, why) {
            self.count("ledger_failures", 1);
            warn!(%error, "the ledger still lists routes that are gone");
        }
    }

    /// Removes routes of ours, whatever the state of the ledger.
    async fn remove(&mut self, networks: &[Network], why: &str) {
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
    async fn put(&mut self, steps: Vec<Step>, wishes: &Wishes, now: Timestamp) {
        if steps.is_empty() {
            return;
        }
        let entries = steps.iter().map(|step| entry(step, wishes, now)).collect();
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
                    if step.before.is_none() {
                        refused.push(network);
                    }
                }
            }
        }
        self.forget(&refused, "the kernel refused it");
    }

    /// Starts the guard again where it ended. False where that fails: then nothing may be in force.
    fn guarded(&mut self) -> bool {
        if self.guard.as_mut().is_some_and(Guard::is_alive) {
            return true;
        }
        self.count("guard_restarts", 1);
        self.guard = Guard::spawn(self.ledger.path())
            .inspect_err(|error| warn!(%error, "cannot start the supervising process: routes are removed"))
            .ok();
        self.guard.is_some()
    }

    /// Removes all and notes why nothing comes back.
    async fn give_up(&mut self, wishes: &Wishes, obstacle: Obstacle) {
        let all: Vec<Network> = self.in_force.keys().copied().collect();
        self.remove(&all, obstacle.name()).await;
        self.obstacles = wishes.keys().map(|network| (*network, obstacle)).collect();
    }
}

impl Applier for RouteApplier {
    fn way(&self) -> Way {
        Way::Route
    }

    fn lacks(&self) -> &'static [Lack] {
        &Lack::ROUTE
    }

    async fn reconcile(&mut self, wishes: &Wishes, now: Timestamp) {
        if !self.monitor.is_alive() {
            match Monitor::start() {
                Ok(monitor) => self.monitor = monitor,
                Err(error) => {
                    warn!(%error, "cannot listen to the kernel's news: routes are removed");
                    return self.give_up(wishes, Obstacle::Kernel).await;
                }
            }
        }
        self.retreat_from(now).await;
        self.unsettled.retain(|(until, _)| *until > now);
        if !self.guarded() {
            return self.give_up(wishes, Obstacle::Unguarded).await;
        }
        if !self.look(now).await {
            return self.give_up(wishes, Obstacle::Kernel).await;
        }
        let Some(view) = &self.view else { return };
        let plan = Plan::new(&plan::Situation {
            wishes,
            view,
            in_force: &self.in_force,
            stepped_back: &self.stepped_back,
            unsettled: &self.unsettled,
            limit: self.limit,
        });
        for (network, obstacle) in &plan.obstacles {
            if self.obstacles.get(network) == Some(obstacle) {
                continue;
            }
            *self.counts.entry(obstacle.name()).or_default() += 1;
            if *obstacle == Obstacle::Administrator {
                info!(%network, "not applied: {}", obstacle.sentence());
            } else {
                debug!(%network, reason = obstacle.name(), "not applied");
            }
        }
        self.obstacles = plan.obstacles;
        let changes = !plan.steps.is_empty() || plan.removals.iter().any(|(_, networks)| !networks.is_empty());
        for (reason, networks) in plan.removals {
            self.remove(&networks, reason).await;
        }
        self.put(plan.steps, wishes, now).await;
        if changes {
            // What was seen is no longer so.
            self.view = None;
        }
    }

    async fn clear(&mut self) {
        let all: Vec<Network> = self.in_force.keys().copied().collect();
        self.remove(&all, "the agent stops").await;
    }

    async fn disturbed(&mut self) {
        match &mut self.guard {
            Some(guard) => tokio::select! {
                () = self.monitor.wait() => {}
                () = guard.ended() => {}
            },
            None => self.monitor.wait().await,
        }
    }

    fn outcome(&self, network: Network) -> Option<Outcome> {
        if let Some(route) = self.in_force.get(&network) {
            let how = format!("route via {} dev {} proto {PROTOCOL}", route.hop.gateway, route.link);
            return Some(Outcome::InForce { window: route.window, how });
        }
        let obstacle = self.obstacles.get(&network)?;
        Some(Outcome::NotApplied { reason: obstacle.name(), sentence: obstacle.sentence().to_owned() })
    }

    fn in_force(&self) -> Vec<(Network, Segments)> {
        self.in_force.iter().map(|(network, route)| (*network, route.window)).collect()
    }

    fn counts(&self) -> ApplyCounts {
        self.counts.clone()
    }
}

/// The ledger's entry for a step.
fn entry(step: &Step, wishes: &Wishes, now: Timestamp) -> Entry {
    let wish = wishes.get(&step.network);
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
        reason: wish.map_or_else(String::new, |wish| wish.reason.to_string()),
        lifetime_s: wish.map_or(0, |wish| wish.expires.since(now).0 / 1_000_000),
        made_unix_s: clock::wall_unix_s(),
    }
}
