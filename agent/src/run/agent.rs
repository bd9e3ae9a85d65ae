//! The agent's state, and what each thing that happens does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spand_confine::Confined;
use spand_proto::comparison::Comparison;
use spand_proto::contract::HostName;
use spand_proto::network::Network;
use spand_proto::operator::Failure;
use spand_proto::push::{ResyncReason, UpdateEvent};
use spand_proto::start::Mode;
use spand_proto::units::{Micros, Timestamp};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::explain::with_gateways_reason;
use super::gateway::GatewayWatch;
use super::in_force::ForceWatch;
use super::pushes::PushWatch;
use super::seen::SeenWatch;
use super::{Own, Taken};
use crate::applications::{Applications, Heard, report_of};
use crate::apply::{Applier, Decided, Desired, DesiredStarts, Ended, Inputs, Lack, Outcome, Skipped, StartReason};
use crate::clock::{self, Clock};
use crate::config::{ApplyMethod, Config};
use crate::control::{NotInForce, Pending, Reloads, Reply, Request};
use crate::pause::{Pause, Pausing};
use crate::policy::{Advice, Connection, Policy, Question, Reason, ScopeVerdict, Verdict, decide};
use crate::subscriber::{self, Dialer, Holdings};

/// Everything an agent knows.
#[derive(Debug)]
pub(super) struct Agent<A> {
    pub(super) config: Config,
    pub(super) policy: Policy,
    pub(super) clock: Clock,
    pub(super) dialer: Arc<Dialer>,
    pub(super) confined: Confined,
    pub(super) file: PathBuf,
    pub(super) hangup: Signal,
    pub(super) taken: Taken,
    pub(super) reloads: Reloads,
    pub(super) change_mode: watch::Sender<Mode>,
    pub(super) host_name: HostName,
    pub(super) addresses: watch::Receiver<Vec<IpAddr>>,
    pub(super) applier: A,
    pub(super) applications: Option<Applications>,
    /// Why there is none although one is configured.
    pub(super) applications_error: Option<String>,
    pub(super) holdings: Holdings,
    pub(super) gateway: GatewayWatch,
    pub(super) decisions: BTreeMap<&'static str, u64>,
    pub(super) pushes: PushWatch,
    pub(super) seen: SeenWatch,
    pub(super) force: ForceWatch,
    room: RoomWatch,
    pub(super) comparison: Comparison,
    pub(super) pause: Pause,
    pausing: watch::Sender<Pausing>,
    verdicts: BTreeMap<Network, Verdict>,
    desired: DesiredStarts,
    skipped: Skipped,
    announced: BTreeMap<Network, Timestamp>,
    stale: Stale,
}

/// What is to be decided again.
#[derive(Debug, Default)]
struct Stale {
    everything: bool,
    networks: BTreeSet<Network>,
}

impl<A: Applier> Agent<A> {
    pub(super) fn new(
        config: &Config,
        Own { clock, dialer, confined, file, hangup, taken, .. }: Own,
        host_name: HostName,
        addresses: watch::Receiver<Vec<IpAddr>>,
        (pause, pausing): (Pause, watch::Sender<Pausing>),
        change_mode: watch::Sender<Mode>,
        applier: A,
    ) -> Self {
        let longest = Micros::from_secs(config.policy.lifetime_s.get());
        let gateway = GatewayWatch::new(dialer.urls(), clock.now());
        Self {
            config: config.clone(),
            policy: config.policy(),
            clock,
            dialer,
            confined,
            file,
            hangup,
            taken,
            reloads: Reloads::default(),
            change_mode,
            host_name,
            addresses,
            applier,
            applications: None,
            applications_error: None,
            holdings: Holdings::new(config.limits.networks, longest),
            gateway,
            decisions: BTreeMap::new(),
            pushes: PushWatch::default(),
            seen: SeenWatch::default(),
            force: ForceWatch::default(),
            room: RoomWatch::default(),
            comparison: Comparison::default(),
            pause,
            pausing,
            verdicts: BTreeMap::new(),
            desired: DesiredStarts::new(),
            skipped: Skipped::new(),
            announced: BTreeMap::new(),
            stale: Stale::default(),
        }
    }

    /// Whether something changed that may call for another start.
    pub(super) fn is_stale(&self) -> bool {
        self.stale.everything || !self.stale.networks.is_empty()
    }

    pub(super) fn on_signal(&mut self, signal: subscriber::Signal) {
        match signal {
            subscriber::Signal::Connected(url) => {
                self.holdings.on_new_stream();
                self.gateway.on_connected(url, self.clock.now());
            }
            subscriber::Signal::Event(event, arrived) => self.on_event(&event, arrived),
            subscriber::Signal::Gap => self.gateway.on_gap(),
            subscriber::Signal::Unreadable(network) => {
                self.gateway.on_unreadable();
                if let Some(network) = network {
                    self.holdings.forget(network);
                    self.stale.networks.insert(network);
                }
            }
            subscriber::Signal::Lost { gateway, why, next_retry } => {
                self.holdings.on_lost(self.clock.now());
                self.gateway.on_lost(&gateway, why, next_retry, self.holdings.last_expiry(), self.clock.now());
            }
            subscriber::Signal::NotBack { gateway, why } => self.gateway.on_failed(&gateway, &why),
            subscriber::Signal::Restarted(why) => self.gateway.on_restarted(why, self.clock.now()),
        }
    }

    fn on_event(&mut self, event: &UpdateEvent, arrived: Timestamp) {
        self.stale.networks.extend(self.holdings.on_event(event, arrived));
        if self.stale.networks.len() > self.config.limits.networks.get() {
            self.stale = Stale { everything: true, networks: BTreeSet::new() };
        }
        match event {
            UpdateEvent::ImminentStart(start) => {
                let network = start.estimate.estimate.network;
                self.announced.insert(network, arrived);
                // Else the programs may not know the network yet when the connection is established.
                if self.desired.contains_key(&network) || self.skipped.contains_key(&network) {
                    self.seen.on_announced(start.trigger, arrived);
                }
                let in_force = self.is_in_force(network) && !self.stale.networks.contains(&network);
                self.pushes.on_push(start, arrived, in_force);
                self.stale.networks.insert(network);
            }
            UpdateEvent::Resync { reason: ResyncReason::SlowReader, dropped_updates } => {
                info!(dropped_updates, "this host read updates too slowly; resynchronising");
            }
            UpdateEvent::Resync { reason: ResyncReason::StateReplaced, .. } => {
                info!("the gateway replaced its state; resynchronising");
            }
            UpdateEvent::Estimate(update) => {
                self.stale.networks.insert(update.estimate.network);
            }
            UpdateEvent::Withdrawal { network, .. } => {
                self.stale.networks.insert(*network);
            }
            UpdateEvent::SnapshotEnd { .. } => {
                self.gateway.on_snapshot(self.holdings.len(), self.addresses.borrow().len(), arrived);
                self.stale.everything = true;
            }
            UpdateEvent::ServiceSize(size) => {
                self.applier.service_size(size.service, self.holdings.size(size.service));
            }
            UpdateEvent::Adopted { .. } => {
                info!(
                    networks = self.holdings.len(),
                    "the gateway adopts the advice held: it lives on until its snapshot"
                );
            }
            // Neither changes what is to be done before the snapshot is whole, or at all.
            UpdateEvent::SnapshotBegin { .. } | UpdateEvent::Renewal { .. } => {}
        }
    }

    /// Hands on what became of connections.
    pub(super) fn on_ended(&mut self, connections: Vec<Ended>, to: &mpsc::Sender<Ended>) {
        for ended in connections {
            self.comparison.take(&ended.report);
            if to.try_send(ended).is_err() {
                *self.decisions.entry("report_no_room").or_default() += 1;
            }
        }
    }

    /// What an application brought.
    pub(super) fn on_application(&mut self, heard: &Heard, to: &mpsc::Sender<Ended>) {
        match heard {
            // Its part of the lease, and the kernel's, is another one now.
            Heard::Watched(network) => {
                let around = self.holdings.lookup(network.prefix().addr()).map(|(around, _)| around);
                self.stale.networks.extend(around);
            }
            Heard::Ended(ended) => {
                let report = report_of(ended, &self.addresses.borrow());
                match report {
                    Some(report) => self.on_ended(vec![report], to),
                    None => *self.decisions.entry("report_without_ends").or_default() += 1,
                }
            }
        }
    }

    /// Lifetimes, time slots and the kernel are looked at.
    pub(super) fn on_tick(&mut self) {
        self.pause.expire();
        self.decide_everything();
        self.report_room();
        let nothing = self.applies() && !self.desired.is_empty() && self.applier.in_force().is_empty();
        if self.force.on_tick(nothing, self.clock.now())
            && let Some(lasting) = self.not_in_force()
        {
            warn!("{}", lasting.sentence());
        }
    }

    /// Whether the configuration asks for more than a dry run.
    fn applies(&self) -> bool {
        self.taken.configured.0 != ApplyMethod::DryRun
    }

    /// What is not in force although it should be, where that has lasted too long.
    pub(super) fn not_in_force(&self) -> Option<NotInForce> {
        let lasting = self.force.lasting(self.clock.now())?;
        let prefix = *self.desired.keys().next()?;
        let why = match self.applier.outcome(prefix) {
            Some(Outcome::NotApplied { sentence, .. }) => sentence,
            // The kernel takes no program, so that the agent runs dry; or the applier has not tried yet.
            _ => self.taken.lacks.first().map_or_else(|| "see the log".to_owned(), Lack::sentence),
        };
        Some(NotInForce { networks: self.desired.len(), for_s: lasting.0 / 1_000_000, example: prefix, why })
    }

    fn report_room(&mut self) {
        let counts = self.holdings.counts();
        if self.holdings.is_full()
            && let Some(estimates) = self.room.on_tick(counts.no_room + counts.evicted, self.clock.now())
        {
            warn!(
                estimates,
                "the table of networks is full (limits.networks = {}): what changes nothing and what is not used went first; raise the \
                 limit, or set publish.to_hosts = \"in_use\" at the gateway",
                self.config.limits.networks
            );
        }
    }

    pub(super) const fn decide_everything(&mut self) {
        self.stale.everything = true;
    }

    /// Decides where something changed and brings what is in force in line. Whether that changed anything on the host.
    pub(super) async fn reconcile(&mut self) -> bool {
        let now = self.clock.now();
        let pausing = self.pause.pausing();
        self.pausing.send_if_modified(|known| std::mem::replace(known, pausing) != pausing);
        if pausing.is_paused() {
            self.applier.set_paused(true).await;
        }
        for service in self.holdings.expire_sizes(now) {
            self.applier.service_size(service, None);
        }
        if self.holdings.expire(now) {
            self.stale.everything = true;
        }
        let stale = std::mem::take(&mut self.stale);
        if stale.everything {
            self.decide_all(now);
        } else {
            for network in &stale.networks {
                self.decide_one(*network, now);
            }
        }
        let touched = (!stale.everything).then_some(&stale.networks);
        let decided = Decided { desired: &self.desired, skipped: &self.skipped, touched };
        let changed = self.applier.reconcile(&decided, now).await;
        if !pausing.is_paused() {
            self.applier.set_paused(false).await;
        }
        let applier = &self.applier;
        self.pushes.on_applied(self.clock.now(), |network| is_in_force(applier, network));
        changed
    }

    fn decide_all(&mut self, now: Timestamp) {
        let held: BTreeSet<Network> = self.holdings.iter().map(|(network, _)| network).collect();
        if let Some(applications) = &self.applications {
            applications.retain(&held, now);
        }
        self.verdicts.retain(|network, _| held.contains(network));
        self.desired.retain(|network, _| held.contains(network));
        self.skipped.retain(|network, _| held.contains(network));
        self.announced.retain(|network, _| held.contains(network));
        for network in held {
            self.decide_one(network, now);
        }
    }

    /// Decides for one network; without advice nothing is desired.
    fn decide_one(&mut self, network: Network, now: Timestamp) {
        let Some(held) = self.holdings.get(network) else {
            self.verdicts.remove(&network);
            self.desired.remove(&network);
            self.skipped.remove(&network);
            self.announced.remove(&network);
            if let Some(applications) = &self.applications {
                applications.gone(network);
            }
            return;
        };
        let connection = Connection::default();
        let kernels = self.kernels_advice(network, held);
        let wall_unix_s = clock::wall_unix_s();
        let paused = self.pause.pausing().is_paused();
        let (within, advice) = (self.holdings.around_client(network), Some(held));
        let question = Question { network, within, advice, now, wall_unix_s, paused, connection };
        if let Some(applications) = &self.applications {
            applications.offer(&question);
        }
        let decision = decide(&Question { advice: Some(&kernels), ..question }, &self.policy);
        self.desired.remove(&network);
        self.skipped.remove(&network);
        match (decision.verdict, &decision.start) {
            (Verdict::Apply(window), Ok(start)) => {
                let reason = StartReason { mode: start.mode, share: start.account.share, clipped_by: start.clipped_by };
                let announced = self.announced.get(&network).copied();
                let cap = match decision.scope {
                    ScopeVerdict::Allowed { cap } => cap,
                    ScopeVerdict::Excluded | ScopeVerdict::NotIncluded => None,
                };
                let policy = self.policy.start_to(within.unwrap_or(network));
                let inputs = Inputs::new(&held.estimate, kernels.lease, cap, &policy);
                self.desired.insert(network, Desired { window, reason, expires: held.expires, announced, inputs });
            }
            (Verdict::Leave(reason), _) => {
                if counts_as_left(reason) {
                    self.skipped.insert(network, (reason, held.expires));
                }
            }
            (Verdict::Apply(_), Err(_)) => {}
        }
        self.holdings.set_matters(network, matters(decision.verdict));
        if self.verdicts.insert(network, decision.verdict) == Some(decision.verdict) {
            return;
        }
        let name = match decision.verdict {
            Verdict::Apply(_) => "apply",
            Verdict::Leave(reason) => reason.name(),
        };
        *self.decisions.entry(name).or_default() += 1;
        debug!(%network, decision = name, "decided");
    }

    /// What is held of a network, with the part of its lease that connections of the kernel have.
    pub(super) fn kernels_advice(&self, network: Network, held: &Advice) -> Advice {
        let lease = match &self.applications {
            Some(applications) => applications.part_of(network, held.lease),
            None => held.lease,
        };
        Advice { lease, ..held.clone() }
    }

    fn is_in_force(&self, network: Network) -> bool {
        is_in_force(&self.applier, network)
    }

    pub(super) async fn answer(&mut self, pending: Pending) {
        let reply = match pending.request {
            Request::Status => Reply::Status(Box::new(self.status())),
            Request::Explain { destination, bytes, mss } => {
                let explained = self.explain(destination, bytes, mss);
                if explained.prefix.is_none() {
                    // The gateway has the reason, and may be slow: nothing else waits for it.
                    let (dialer, mode, window) =
                        (Arc::clone(&self.dialer), self.config.mode, self.policy.initial_window);
                    let full = self.holdings.is_full();
                    tokio::spawn(async move {
                        let explained = with_gateways_reason(&dialer, mode, window, (explained, full)).await;
                        _ = pending.reply.send(Reply::Explained(Box::new(explained)));
                    });
                    return;
                }
                Reply::Explained(Box::new(explained))
            }
            Request::Pause { length_s } => self.pause(length_s, pending.peer).await,
            Request::Resume => self.resume(pending.peer).await,
        };
        // A client that disconnected gets no reply.
        _ = pending.reply.send(reply);
    }

    /// Removes what is in force.
    pub(super) async fn stop(mut self, patience: Duration) -> Result<(), Failure> {
        if tokio::time::timeout(patience, self.applier.clear()).await.is_err() {
            warn!("the kernel takes too long");
        }
        match self.applier.in_force().len() {
            0 => Ok(()),
            left => Err(Failure::Environment(format!(
                "{left} changes could not be undone: run `spand-agent undo --run` and see the log for the reason"
            ))),
        }
    }
}

/// Whether a network's advice changes anything on this host.
fn matters(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Apply(_) => true,
        Verdict::Leave(reason) => counts_as_left(reason),
    }
}

/// Whether connections to a network that is left for this reason are part of the comparison.
fn counts_as_left(reason: Reason) -> bool {
    match reason {
        Reason::Refused(_) | Reason::HeldOut | Reason::Observe | Reason::Paused => true,
        Reason::Excluded | Reason::NotIncluded | Reason::Expired | Reason::SameAsDefault => false,
    }
}

fn is_in_force(applier: &impl Applier, network: Network) -> bool {
    matches!(applier.outcome(network), Some(Outcome::InForce { .. }))
}

/// Time between two lines about a table of networks that is full.
const ROOM_REMINDER: Micros = Micros::from_secs(600);

/// When the log has such a line, and what was logged.
#[derive(Debug, Default)]
struct RoomWatch {
    counted: u64,
    logged: Option<Timestamp>,
}

impl RoomWatch {
    /// Takes the number of networks so far that had no room, where the table is full. Gives how many are new, when that is worth a line.
    fn on_tick(&mut self, without_room: u64, now: Timestamp) -> Option<u64> {
        let new = without_room.saturating_sub(self.counted);
        if new == 0 || self.logged.is_some_and(|logged| now.since(logged) < ROOM_REMINDER) {
            return None;
        }
        (self.counted, self.logged) = (without_room, Some(now));
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_is_a_line_at_once_and_every_ten_minutes_while_it_lasts() {
        let mut room = RoomWatch::default();
        let at = |second: u64| Timestamp::from_micros(1_000_000 * (1 + second));
        let lines: Vec<_> = (0..1_300).filter_map(|second| room.on_tick(5 * (second + 1), at(second))).collect();
        assert_eq!(lines, [5, 3_000, 3_000]);
        assert_eq!(room.on_tick(6_500, at(2_000)), Some(495));
        assert_eq!(room.on_tick(6_500, at(9_000)), None, "nothing new");
    }
}
