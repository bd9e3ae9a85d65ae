//! The agent's state, and what each thing that happens does to it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use spand_proto::contract::HostName;
use spand_proto::network::Network;
use spand_proto::push::UpdateEvent;
use spand_proto::units::{Micros, Timestamp};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::pushes::PushWatch;
use crate::apply::{Applier, Grounds, Outcome, Wish, Wishes};
use crate::clock::{self, Clock};
use crate::config::Config;
use crate::control::{GatewayStatus, Pending, Reply, Request};
use crate::exit::Failure;
use crate::policy::{Connection, Policy, Question, Verdict, decide};
use crate::subscriber::{Holdings, Signal};

/// Everything an agent knows.
#[derive(Debug)]
pub(super) struct Agent<A> {
    pub(super) config: Config,
    pub(super) policy: Policy,
    pub(super) clock: Clock,
    pub(super) host_name: HostName,
    pub(super) addresses: watch::Receiver<Vec<IpAddr>>,
    pub(super) applier: A,
    pub(super) holdings: Holdings,
    pub(super) gateway: GatewayStatus,
    pub(super) gateway_since: Timestamp,
    pub(super) decisions: BTreeMap<&'static str, u64>,
    pub(super) pushes: PushWatch,
    verdicts: BTreeMap<Network, Verdict>,
    announced: BTreeMap<Network, Timestamp>,
    dirty: bool,
}

impl<A: Applier> Agent<A> {
    pub(super) fn new(
        config: &Config,
        clock: Clock,
        host_name: HostName,
        addresses: watch::Receiver<Vec<IpAddr>>,
        applier: A,
    ) -> Self {
        let longest = Micros::from_secs(config.policy.lifetime_s.get());
        Self {
            config: config.clone(),
            policy: config.policy(),
            clock,
            host_name,
            addresses,
            applier,
            holdings: Holdings::new(config.limits.networks, longest),
            gateway: GatewayStatus { url: config.gateway.url.clone(), ..GatewayStatus::default() },
            gateway_since: clock.now(),
            decisions: BTreeMap::new(),
            pushes: PushWatch::default(),
            verdicts: BTreeMap::new(),
            announced: BTreeMap::new(),
            dirty: false,
        }
    }

    /// Whether something changed that may call for another start.
    pub(super) const fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(super) fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Connected => {
                self.holdings.on_new_stream();
                self.gateway.connections += 1;
                self.gateway.connected = true;
                self.gateway_since = self.clock.now();
            }
            Signal::Event(event, arrived) => self.on_event(&event, arrived),
            Signal::Gap => self.gateway.gaps += 1,
            Signal::Unreadable(network) => {
                self.gateway.unreadable += 1;
                if let Some(network) = network {
                    self.holdings.forget(network);
                    self.dirty = true;
                }
            }
            Signal::Lost(why) => {
                if self.gateway.connected {
                    self.gateway_since = self.clock.now();
                }
                self.gateway.connected = false;
                self.gateway.last_error = Some(why);
            }
        }
    }

    fn on_event(&mut self, event: &UpdateEvent, arrived: Timestamp) {
        self.holdings.on_event(event, arrived);
        match event {
            UpdateEvent::ImminentStart(start) => {
                let network = start.estimate.estimate.network;
                self.announced.insert(network, arrived);
                let in_force = self.is_in_force(network) && !self.dirty;
                self.pushes.on_push(start, arrived, in_force);
                self.dirty = true;
            }
            UpdateEvent::Resync { reason, dropped_updates } => {
                info!(reason = reason.name(), dropped_updates, "the gateway starts over");
            }
            // Neither changes what is to be done before the snapshot is whole, or at all.
            UpdateEvent::SnapshotBegin { .. } | UpdateEvent::Renewal { .. } => {}
            UpdateEvent::SnapshotEnd { .. } | UpdateEvent::Estimate(_) | UpdateEvent::Withdrawal { .. } => {
                self.dirty = true;
            }
        }
    }

    /// Lifetimes, time slots and the kernel are looked at.
    pub(super) fn on_tick(&mut self) {
        self.dirty = true;
    }

    /// Decides for every network and brings what is in force in line.
    pub(super) async fn reconcile(&mut self) {
        self.dirty = false;
        let now = self.clock.now();
        self.holdings.expire(now);
        let wishes = self.decide_all(now);
        self.applier.reconcile(&wishes, now).await;
        let applier = &self.applier;
        self.pushes.on_applied(self.clock.now(), |network| is_in_force(applier, network));
    }

    fn decide_all(&mut self, now: Timestamp) -> Wishes {
        let wall_unix_s = clock::wall_unix_s();
        let mut verdicts = BTreeMap::new();
        let mut wishes = Wishes::new();
        for (network, advice) in self.holdings.iter() {
            let connection = Connection::default();
            let question = Question { network, advice: Some(advice), now, wall_unix_s, connection };
            let decision = decide(&question, &self.policy);
            verdicts.insert(network, decision.verdict);
            if let (Verdict::Apply(window), Ok(start)) = (decision.verdict, &decision.start) {
                let reason = Grounds { mode: start.mode, share: start.account.share, clipped_by: start.clipped_by };
                let announced = self.announced.get(&network).copied();
                wishes.insert(network, Wish { window, reason, expires: advice.expires, announced });
            }
        }
        for (network, verdict) in &verdicts {
            if self.verdicts.get(network) == Some(verdict) {
                continue;
            }
            let name = match verdict {
                Verdict::Apply(_) => "apply",
                Verdict::Leave(reason) => reason.name(),
            };
            *self.decisions.entry(name).or_default() += 1;
            debug!(%network, decision = name, "decided");
        }
        self.verdicts = verdicts;
        self.announced.retain(|network, _| self.verdicts.contains_key(network));
        wishes
    }

    fn is_in_force(&self, network: Network) -> bool {
        is_in_force(&self.applier, network)
    }

    pub(super) fn answer(&self, pending: Pending) {
        let reply = match pending.request {
            Request::Status => Reply::Status(Box::new(self.status())),
            Request::Explain { destination, bytes, mss } => {
                Reply::Explained(Box::new(self.explain(destination, bytes, mss)))
            }
        };
        // A client that gave up gets no reply.
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

fn is_in_force(applier: &impl Applier, network: Network) -> bool {
    matches!(applier.outcome(network), Some(Outcome::InForce { .. }))
}
