//! The applier: what it holds, and the order in which it acts.

use std::collections::BTreeMap;
use std::time::Duration;

use spand_proto::network::Network;
use spand_proto::operator::Failure;
use spand_proto::units::{Micros, Segments, Timestamp};
use tracing::{debug, info, warn};

use crate::apply::{Applier, ApplyCounts, Decided, DesiredStarts, Limitation, News, Outcome};
use crate::config::{ApplyMethod, Config};
use crate::ledger::{self, Ledger};

use super::cleanup::clean_up;
use super::guard::Guard;
use super::monitor::Disturbance;
use super::monitor::Monitor;
use super::netlink::{Netlink, NetlinkError};
use super::plan::Obstacle;
use super::plan::{self, InForce, Plan, StepBacks};
use super::signature::PROTOCOL;
use super::view::View;

/// Disturbances that are remembered until they settled; beyond, they are merged into one that touches everything.
const MOST_UNSETTLED: usize = 64;

/// How long the kernel's news may take to be read.
const NEWS_DELAY: Duration = Duration::from_millis(50);

/// The applier.
#[derive(Debug)]
pub struct RouteApplier {
    pub(super) netlink: Netlink,
    monitor: Monitor,
    guard: Option<Guard>,
    /// How long this process may stand still before the guard removes the routes: the longest lifetime of an advice.
    patience: Duration,
    reconciled: Timestamp,
    pub(super) ledger: Ledger,
    settle: Micros,
    verify: Micros,
    limit: usize,
    pub(super) view: Option<View>,
    viewed: Timestamp,
    pub(super) in_force: BTreeMap<Network, InForce>,
    pub(super) obstacles: BTreeMap<Network, Obstacle>,
    unsettled: Vec<(Timestamp, Disturbance)>,
    /// Networks whose route the kernel refused, until they are tried again.
    pub(super) refused: BTreeMap<Network, Timestamp>,
    pub(super) stepped_back: StepBacks,
    counts: ApplyCounts,
}

impl RouteApplier {
    /// Opens netlink and the ledger, removes what an earlier agent left, and starts the guard.
    pub async fn start(config: &Config, now: Timestamp) -> Result<Self, Failure> {
        let netlink = Netlink::open().map_err(Failure::environment)?;
        let path = config.ledger_file();
        let unreadable = |error| Failure::Environment(format!("cannot read the ledger {}: {error}", path.display()));
        let recorded = ledger::read(&path).map_err(unreadable)?;
        // Before the ledger is opened, which starts an unreadable one afresh: a kill in between must not lose its entries.
        let done = clean_up(&netlink, &recorded).await.map_err(Failure::environment)?;
        let (mut ledger, _) = Ledger::open(&path).map_err(Failure::environment)?;
        let left: Vec<Network> = ledger.in_force().keys().copied().collect();
        ledger.forget(&left, "an earlier agent's").map_err(Failure::environment)?;
        let monitor = Monitor::start().map_err(Failure::environment)?;
        let patience = Duration::from_secs(config.policy.lifetime_s.get());
        let guard = Guard::spawn(&path, patience)
            .map_err(|error| Failure::Environment(format!("cannot start the supervising process: {error}")))?;
        let mut applier = Self {
            netlink,
            monitor,
            guard: Some(guard),
            patience,
            reconciled: now,
            ledger,
            settle: Micros::from_millis(config.route.settle_ms.get()),
            verify: Micros::from_secs(config.route.verify_s.get()),
            limit: config.limits.applied.get(),
            view: None,
            viewed: now,
            in_force: BTreeMap::new(),
            obstacles: BTreeMap::new(),
            unsettled: Vec::new(),
            refused: BTreeMap::new(),
            stepped_back: StepBacks::default(),
            counts: ApplyCounts::new(),
        };
        applier.count("cleaned_up", done.removed.len());
        Ok(applier)
    }

    pub(super) fn count(&mut self, name: &'static str, more: usize) {
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
        self.refused.retain(|network, _| !disturbance.touches(*network, None));
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
        self.step_back(&lost, now);
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

    /// Opens again what the kernel closed. News may have been missed meanwhile, so everything counts as changed.
    fn reconnect(&mut self) -> Result<(), NetlinkError> {
        if !self.netlink.is_alive() {
            self.netlink = Netlink::open()?;
            self.view = None;
        }
        if !self.monitor.is_alive() {
            self.monitor = Monitor::start()?;
            self.monitor.distrust();
        }
        Ok(())
    }

    /// After a time in which this process did not run and the guard may have removed the routes: removes all of them. Their advice has
    /// expired, or is about to.
    async fn recover_from_standstill(&mut self, now: Timestamp) {
        let last = std::mem::replace(&mut self.reconciled, now);
        if Duration::from(now.since(last)) >= self.patience / 2 {
            let all: Vec<Network> = self.in_force.keys().copied().collect();
            self.remove(&all, "the agent did not run").await;
        }
    }

    /// Starts the guard again where it ended. False where that fails: then nothing may be in force.
    fn guarded(&mut self) -> bool {
        if let Some(guard) = &mut self.guard
            && guard.is_alive()
        {
            guard.beat();
            return true;
        }
        self.count("guard_restarts", 1);
        self.guard = Guard::spawn(self.ledger.path(), self.patience)
            .inspect_err(|error| warn!(%error, "cannot start the supervising process: routes are removed"))
            .ok();
        self.guard.is_some()
    }

    /// Removes all and notes why nothing comes back.
    async fn give_up(&mut self, desired: &DesiredStarts, obstacle: Obstacle) -> bool {
        let all: Vec<Network> = self.in_force.keys().copied().collect();
        self.remove(&all, obstacle.name()).await;
        self.obstacles = desired.keys().map(|network| (*network, obstacle)).collect();
        true
    }
}

impl Applier for RouteApplier {
    fn method(&self) -> ApplyMethod {
        ApplyMethod::Route
    }

    fn limitations(&self) -> &'static [Limitation] {
        &Limitation::ROUTE
    }

    async fn reconcile(&mut self, decided: &Decided<'_>, now: Timestamp) -> bool {
        let desired = decided.desired;
        if let Err(error) = self.reconnect() {
            warn!(%error, "cannot reach the kernel's routing: routes are removed");
            return self.give_up(desired, Obstacle::Kernel).await;
        }
        self.recover_from_standstill(now).await;
        self.retreat_from(now).await;
        self.unsettled.retain(|(until, _)| *until > now);
        self.stepped_back.forget(now);
        self.refused.retain(|network, until| *until > now && desired.contains_key(network));
        if !self.guarded() {
            return self.give_up(desired, Obstacle::Unguarded).await;
        }
        if !self.look(now).await {
            return self.give_up(desired, Obstacle::Kernel).await;
        }
        let Some(view) = &self.view else { return true };
        let plan = Plan::new(&plan::Situation {
            desired,
            view,
            in_force: &self.in_force,
            stepped_back: &self.stepped_back,
            unsettled: &self.unsettled,
            refused: &self.refused,
            limit: self.limit,
            now,
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
        self.put(plan.steps, desired, now).await;
        if changes {
            // What was seen is no longer so.
            self.view = None;
        }
        changes
    }

    async fn clear(&mut self) {
        let all: Vec<Network> = self.in_force.keys().copied().collect();
        self.remove(&all, "the agent stops").await;
    }

    async fn news(&mut self) -> News {
        match &mut self.guard {
            Some(guard) => tokio::select! {
                () = self.monitor.wait() => {}
                () = guard.ended() => {}
            },
            None => self.monitor.wait().await,
        }
        News::Disturbed
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
