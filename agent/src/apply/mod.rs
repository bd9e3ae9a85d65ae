//! How a decided start gets into the kernel, behind one trait.
//!
//! Independent of estimates and modes: its input is which networks start with which window, and until when.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::opening::LossClock;
use spand_proto::start::{Limit, Mode, Shape, StartPolicy, overflow_bytes};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp};

use crate::config::{ApplyMethod, Config};
use crate::policy::{Policy, Reason};

pub mod bpf;
mod dry_run;
mod lack;
mod limitation;
pub mod route;

pub use bpf::Ended;
pub use dry_run::DryRun;
pub use lack::{Lack, Part};
pub use limitation::Limitation;

/// The start that should be in force for all connections to a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Desired {
    /// The window.
    pub window: Segments,
    /// Why, for the ledger and the log.
    pub reason: StartReason,
    /// End of the advice behind it.
    pub expires: Timestamp,
    /// When a start to this network was last announced; those go first where room is short.
    pub announced: Option<Timestamp>,
    /// What it was decided from, for a method that decides again for each connection.
    pub inputs: Inputs,
}

/// What is known of a network, for decisions about its connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Inputs {
    /// The share in half bytes, rounded down: exact for every segment size, since a share is rounded at half a segment.
    pub share_half_bytes: u64,
    /// The part of it that keeps the path busy, alike.
    pub pipe_half_bytes: u64,
    /// What the empty path holds, in bytes; 0 where that is not known, or decides nothing.
    pub bdp_bytes: u64,
    /// The slow-start threshold in bytes; 0 where no loss was measured.
    pub threshold_bytes: u64,
    /// The network's round trip, mean before smallest.
    pub rtt: Option<Micros>,
    /// Whether losses of enough connections allow a start below the host's default.
    pub proven: bool,
    /// Whether any loss backs the share.
    pub backed: bool,
    /// Whether no loss is known there, whether or not it gave a sample.
    pub lossless: bool,
    /// The administrator's own cap for the network.
    pub cap: Option<Segments>,
    /// Segments above the default that this host may have in flight there, where a budget is kept.
    pub lease: Option<Segments>,
    /// What a start there is made of.
    pub shape: Shape,
    /// The threshold by the senders under way, in half bytes; 0 where none is known.
    pub opening_half_bytes: u64,
    /// The times of their losses, where the rule is about them.
    pub losses: Option<LossClock>,
    /// Where slow start overflows the bottleneck's buffer; 0 where no loss shows it.
    pub overflow_bytes: u64,
}

impl Inputs {
    /// What decides about connections to a network.
    pub fn new(estimate: &Estimate, lease: Option<Segments>, cap: Option<Segments>, policy: &StartPolicy) -> Self {
        Self {
            share_half_bytes: estimate.share.half_bytes(),
            pipe_half_bytes: estimate.pipe_half_bytes(),
            bdp_bytes: estimate
                .bdp
                .filter(|_| policy.crowd && policy.shape == Shape::Paced)
                .map_or(0, |bdp| bdp.half_bytes() / 2),
            threshold_bytes: estimate.threshold_bytes(),
            rtt: estimate.rtt_mean.or(estimate.rtt_min),
            proven: policy.floor.is_some_and(|floor| estimate.loss_connections >= floor.loss_connections),
            backed: estimate.loss_connections > 0,
            lossless: estimate.losses == 0,
            cap,
            lease,
            shape: policy.shape,
            // What it does not need would only write the table again with every loss.
            opening_half_bytes: estimate
                .opening
                .filter(|_| policy.shape.needs_opening())
                .map_or(0, |o| o.threshold.half_bytes()),
            losses: estimate.opening.filter(|_| policy.shape == Shape::Measured).and_then(|opening| opening.losses),
            overflow_bytes: if policy.buffered { overflow_bytes(estimate).map_or(0, |bytes| bytes.0) } else { 0 },
        }
    }
}

/// What happened on the host.
#[derive(Debug)]
pub enum News {
    /// Something changed that needs [`Applier::reconcile`].
    Disturbed,
    /// Connections ended, or lost a segment of their first flight.
    Ended(Vec<Ended>),
}

/// What a desired start was derived from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StartReason {
    /// The mode.
    pub mode: Mode,
    /// The share `Wc`.
    pub share: Segments,
    /// The limit that decided, where one did.
    pub clipped_by: Option<Limit>,
}

/// Starts that should be in force.
pub type DesiredStarts = BTreeMap<Network, Desired>;

/// Networks in scope with advice that nothing is applied for, with the reason and the end of the advice.
pub type Skipped = BTreeMap<Network, (Reason, Timestamp)>;

/// All that is decided.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// Starts that should be in force.
    pub desired: &'a DesiredStarts,
    /// What is left alone and why; only a method that sees connections counts them.
    pub skipped: &'a Skipped,
    /// Networks whose decision may be another than at the last call; `None` for all.
    pub touched: Option<&'a BTreeSet<Network>>,
}

/// The state of a desired start.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Outcome {
    /// It is in force.
    InForce {
        /// With this window.
        window: Segments,
        /// How, for people.
        how: String,
    },
    /// It would be in force; nothing was changed.
    WouldBe {
        /// With this window.
        window: Segments,
    },
    /// It is not.
    NotApplied {
        /// A stable name for counters.
        reason: &'static str,
        /// One sentence for people.
        sentence: String,
    },
}

/// A number for each side that may open a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ByDirection<T> {
    /// Connections that this host accepts.
    pub accepted: T,
    /// Connections that it opens.
    pub opened: T,
}

/// What an applier did since the start, by stable name.
pub type ApplyCounts = BTreeMap<&'static str, u64>;

/// An apply method: how starts are set.
pub trait Applier: Send {
    /// The method.
    fn method(&self) -> ApplyMethod;

    /// What this method cannot do.
    fn limitations(&self) -> &'static [Limitation];

    /// Brings what is in force in line with what is decided; what is no longer desired is undone first. Returns whether
    /// anything changed that makes the next change costly.
    fn reconcile(&mut self, decided: &Decided<'_>, now: Timestamp) -> impl Future<Output = bool> + Send;

    /// Pauses advice or resumes it, for a method whose programs decide for each connection; the others withdraw and set what
    /// [`Self::reconcile`] is given. Comes before a reconciliation that pauses, and after one that resumes.
    fn set_paused(&mut self, _paused: bool) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Takes over what of the configuration may change while the agent runs, for a method whose programs decide for each connection;
    /// the others have it with the next [`Self::reconcile`].
    fn set_policy(&mut self, _config: &Config, _policy: &Policy) {}

    /// Sets the usual transfer size of a service of this host.
    fn service_size(&mut self, _service: SocketAddr, _usual: Option<Bytes>) {}

    /// Undoes everything.
    fn clear(&mut self) -> impl Future<Output = ()> + Send;

    /// Waits for news of the host.
    fn news(&mut self) -> impl Future<Output = News> + Send;

    /// The state of the desired start for `network`.
    fn outcome(&self, network: Network) -> Option<Outcome>;

    /// What is in force, by network.
    fn in_force(&self) -> Vec<(Network, Segments)>;

    /// Connections to networks with advice that it saw established since the start; `None` where it sees none.
    fn seen(&self) -> Option<ByDirection<u64>> {
        None
    }

    /// What it did.
    fn counts(&self) -> ApplyCounts;
}

impl fmt::Display for StartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: share {}", self.mode, self.share.0)?;
        self.clipped_by.map_or(Ok(()), |limit| write!(f, ", clipped by {limit}"))
    }
}
