//! Applications with a transport of their own, such as QUIC: what they are given, and what they report (docs/explain/applications.md).
//!
//! The agent's task writes what it decides into [`Offers`]; a thread of its own serves the applications from there, so that an answer
//! never waits for a decision about ten thousand networks.

mod desk;
mod offers;
mod reports;
mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use spand_advice::{Offer, Reason, Settings};
use spand_proto::network::Network;
use spand_proto::operator::Failure;
use spand_proto::start::TransferSize;
use spand_proto::units::{Bytes, Segments, Timestamp};
use tokio::sync::mpsc;

pub use offers::Offers;
pub use reports::report_of;
pub use server::ApplicationServer;

use crate::clock::Clock;
use crate::config::Config;
use crate::policy::{self, Advice, Policy, Question, ScopeVerdict, Verdict, decide};

/// What applications bring to the agent's task, as far as it concerns that.
#[derive(Debug)]
pub enum Heard {
    /// One more, or one less, has connections to this network.
    Watched(Network),
    /// A connection is over, or its first flight.
    Ended(Box<spand_advice::Ended>),
}

/// Capacity of the queue of what was heard. What finds no room is counted.
const QUEUE: usize = 4_096;

/// The agent's own end: what applications are offered.
#[derive(Debug)]
pub struct Applications {
    offers: Arc<Offers>,
    policy: Policy,
    heard: mpsc::Receiver<Heard>,
    /// Stops the thread when it is dropped.
    _server: ApplicationServer,
}

/// Counts of `status`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ApplicationsStatus {
    /// Applications that are connected, by the name that each gave.
    pub connected: Vec<String>,
    /// Networks that at least one of them watches.
    pub networks: usize,
    /// Connections to the socket so far.
    pub connections: u64,
    /// Connections to the socket that were refused.
    pub refused: u64,
    /// Starts that the agent computed for them.
    pub starts: u64,
    /// Those of them on advice.
    pub advised: u64,
    /// Reports of connections, or of their first flights.
    pub reports: u64,
    /// Reports for which there was no room.
    pub reports_lost: u64,
    /// Reports of no start that was given, second ones, and those beyond a user's rate.
    #[serde(default)]
    pub reports_refused: u64,
    /// Networks that were watched no more since a user's applications watched too many.
    pub evicted: u64,
    /// Networks that were watched no more since no single start was asked for a minute.
    #[serde(default)]
    pub unused: u64,
}

impl Applications {
    /// Listens where the configuration names a socket. Before the process drops the right to.
    pub fn listen(config: &Config, clock: Clock) -> Result<Option<Self>, Failure> {
        let Some(socket) = &config.applications.socket else { return Ok(None) };
        let policy = config.application_policy();
        let settings = settings(config, &policy, clock.now());
        let offers = Arc::new(Offers::new(settings, config.applications.networks));
        let (hear, heard) = mpsc::channel(QUEUE);
        let server = ApplicationServer::start(socket, &config.applications, (Arc::clone(&offers), hear), clock)?;
        Ok(Some(Self { offers, policy, heard, _server: server }))
    }

    /// Takes over what may change while the agent runs.
    pub fn set_policy(&mut self, config: &Config, now: Timestamp) {
        self.policy = config.application_policy();
        self.offers.set_settings(settings(config, &self.policy, now));
    }

    /// Waits for what applications bring.
    pub async fn hear(&mut self) -> Heard {
        match self.heard.recv().await {
            Some(heard) => heard,
            // The thread ended and logged why.
            None => std::future::pending().await,
        }
    }

    /// The host's lease of a network divided among the kernel and the users whose applications start connections there: the kernel's part.
    pub fn part_of(&self, network: Network, lease: Option<Segments>) -> Option<Segments> {
        lease.map(|lease| self.offers.kernels_part(network, lease))
    }

    /// Offers what is decided about a network.
    pub fn offer(&self, question: &Question<'_>) {
        let Some(advice) = question.advice else { return self.offers.remove(question.network) };
        self.offers.put(offer(question, advice, &self.policy));
    }

    /// Offers nothing for other networks than these, and ends what was not used for a minute.
    pub fn retain(&self, held: &BTreeSet<Network>, now: Timestamp) {
        self.offers.retain(held, now);
    }

    /// Offers nothing for a network.
    pub fn gone(&self, network: Network) {
        self.offers.remove(network);
    }

    /// What `status` shows.
    pub fn status(&self) -> ApplicationsStatus {
        self.offers.status()
    }
}

fn settings(config: &Config, policy: &Policy, now: Timestamp) -> Settings {
    let usual_bytes = match policy.service_size {
        TransferSize::Known(bytes) | TransferSize::Usual(bytes) => Some(bytes),
        TransferSize::Unknown => None,
    };
    Settings {
        now,
        control_fraction: config.bpf.control_fraction,
        seed: config.bpf.control_seed,
        initial_window: policy.initial_window,
        usual_bytes: usual_bytes.filter(|bytes| *bytes > Bytes(0)),
    }
}

/// What applications are offered about a network: everything that the decision for each of their connections needs.
fn offer(question: &Question<'_>, advice: &Advice, policy: &Policy) -> Offer {
    let decision = decide(question, policy);
    let reason = match decision.verdict {
        Verdict::Apply(_) => None,
        Verdict::Leave(reason) => match reason {
            policy::Reason::Excluded => Some(Reason::Excluded),
            policy::Reason::NotIncluded => Some(Reason::NotIncluded),
            policy::Reason::Paused => Some(Reason::Paused),
            policy::Reason::Expired => Some(Reason::Expired),
            policy::Reason::HeldOut => Some(Reason::HeldOut),
            policy::Reason::Observe => Some(Reason::Observe),
            policy::Reason::Refused(reason) => Some(Reason::Refused(reason)),
            policy::Reason::SameAsDefault => None,
        },
    };
    let cap = match decision.scope {
        ScopeVerdict::Allowed { cap } => cap,
        ScopeVerdict::Excluded | ScopeVerdict::NotIncluded => None,
    };
    Offer {
        estimate: advice.estimate.clone(),
        policy: policy.start_to(question.within.unwrap_or(question.network)),
        cap,
        lease: advice.lease,
        reason,
        expires: advice.expires,
    }
}
