//! Whether and how a network's connections are started differently: one pure function.
//!
//! Knows no clock, no socket and no kernel. What may prevent an applier from applying (a route that is not ours, several next
//! hops) comes after this and is counted there.

mod growth;
mod scope;
#[cfg(test)]
mod tests;

pub use growth::{GrowthSource, Growths, Shapes, growth_words};
pub use scope::{Holdout, Scope, ScopeVerdict};
use serde::{Serialize, Serializer};
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::report::Arm;
use spand_proto::start::{Mode, Refusal, RefusalReason, Start, StartPolicy, StartRequest, TransferSize, start_within};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp};
use strum::{Display, IntoStaticStr};

/// Everything that bounds a decision; made from the configuration.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Limits of the start function.
    pub start: StartPolicy,
    /// What starts are made of, by network.
    pub shapes: Shapes,
    /// Destinations that may be advised.
    pub scope: Scope,
    /// The part left alone for comparison.
    pub holdout: Holdout,
    /// The host's own initial window.
    pub initial_window: Segments,
    /// Size of a transfer that stated none.
    pub service_size: TransferSize,
    /// Whether the apply method sets threshold and rate too, so that a start of the default window is still one.
    pub sets_threshold: bool,
    /// How windows grow in slow start.
    pub growths: Growths,
}

impl Policy {
    /// The limits of starts to a network, with its shape.
    pub fn start_to(&self, network: Network) -> StartPolicy {
        StartPolicy { shape: self.shapes.of(network), ..self.start }
    }
}

/// What is known about a network from the gateway, and until when it may be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The estimate.
    pub estimate: Estimate,
    /// Segments above the default that this host may have in the network at one time, where a budget is kept.
    pub lease: Option<Segments>,
    /// End of its lifetime.
    pub expires: Timestamp,
}

/// What is to be decided.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The network.
    pub network: Network,
    /// The network around it, where it is one remote address that has advice of its own: without a start of its own it has that
    /// network's, and it is held out with it.
    pub within: Option<Network>,
    /// The gateway's advice for it.
    pub advice: Option<&'a Advice>,
    /// Now, by the agent's clock.
    pub now: Timestamp,
    /// Seconds since 1970 by the wall clock, for time slots only.
    pub wall_unix_s: u64,
    /// Whether advice is paused on this host.
    pub paused: bool,
    /// The connection in question; the whole network where nothing is known about it.
    pub connection: Connection,
}

/// What is known about one connection before it starts; empty where a whole network is meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connection {
    /// Size of the transfer.
    pub size: Option<Bytes>,
    /// Segment size less options; that of the estimate where not known.
    pub mss: Option<Bytes>,
    /// The peer's receive window, scaled.
    pub snd_wnd: Option<Bytes>,
    /// Round trip of its handshake.
    pub handshake_rtt: Option<Micros>,
}

/// A decision, with all that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Where the destination lies in the configured scope.
    pub scope: ScopeVerdict,
    /// The arm of the comparison, drawn before anything was refused. `None` outside the scope.
    pub arm: Option<Arm>,
    /// The result of the start function.
    pub start: Result<Start, Refusal>,
    /// What is to be done.
    pub verdict: Verdict,
}

/// What is to be done about a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Start with this window.
    Apply(Segments),
    /// Leave it as plain TCP.
    Leave(Reason),
}

/// Decides.
pub fn decide(question: &Question<'_>, policy: &Policy) -> Decision {
    let scope = policy.scope.verdict(question.network);
    let (allowed, cap) = match scope {
        ScopeVerdict::Allowed { cap } => (None, cap),
        ScopeVerdict::Excluded => (Some(Reason::Excluded), None),
        ScopeVerdict::NotIncluded => (Some(Reason::NotIncluded), None),
    };
    let arm = allowed
        .is_none()
        .then(|| policy.holdout.arm(question.within.unwrap_or(question.network), question.wall_unix_s));
    let start = bounded_start(question, policy, cap);
    let leave = |reason| Decision { scope, arm, start: start.clone(), verdict: Verdict::Leave(reason) };

    if let Some(reason) = allowed {
        return leave(reason);
    }
    if question.paused {
        return leave(Reason::Paused);
    }
    if question.advice.is_some_and(|advice| advice.expires <= question.now) {
        return leave(Reason::Expired);
    }
    let window = match &start {
        Err(refusal) => return leave(Reason::Refused(refusal.reason())),
        Ok(start) => start.cwnd,
    };
    if arm == Some(Arm::Control) {
        return leave(Reason::HeldOut);
    }
    if policy.start.mode == Mode::Observe {
        return leave(Reason::Observe);
    }
    if window == policy.initial_window && !policy.sets_threshold && question.within.is_none() {
        return leave(Reason::SameAsDefault);
    }
    Decision { scope, arm, start, verdict: Verdict::Apply(window) }
}

/// The start function under this policy, with a destination's own cap.
fn bounded_start(question: &Question<'_>, policy: &Policy, cap: Option<Segments>) -> Result<Start, Refusal> {
    let connection = question.connection;
    let estimate = question.advice.map(|advice| &advice.estimate);
    let request = StartRequest {
        estimate,
        now: question.now,
        size: connection.size.map_or(policy.service_size, TransferSize::Known),
        mss: connection.mss.or(estimate.map(|estimate| estimate.mss)).unwrap_or(USUAL_MSS),
        snd_wnd: connection.snd_wnd,
        handshake_rtt: connection.handshake_rtt,
        initial_window: policy.initial_window,
        budget: question.advice.and_then(|advice| advice.lease),
    };
    start_within(cap, &request, &policy.start_to(question.within.unwrap_or(question.network)))
}

/// Ethernet's 1500 bytes less headers and timestamps; used only without an estimate, and then there is no start.
const USUAL_MSS: Bytes = Bytes(1_448);

// Why a network is left as plain TCP: a closed list with stable names.

/// Why the policy leaves a network alone.
#[derive(Clone, Copy, Debug, Display, Eq, IntoStaticStr, PartialEq)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// It overlaps an excluded prefix.
    Excluded,
    /// It is not inside any included prefix.
    NotIncluded,
    /// Advice is paused on this host.
    Paused,
    /// The lifetime of the advice is over.
    Expired,
    /// The start function gave no start.
    #[strum(transparent)]
    Refused(RefusalReason),
    /// It is held out in this time slot, to be compared with.
    HeldOut,
    /// The mode is `observe`: nothing is applied.
    Observe,
    /// The start is what the host does anyway.
    SameAsDefault,
}

impl Reason {
    /// Its stable name in counters and output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// One sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Excluded => "the network overlaps a prefix in destinations.exclude",
            Self::NotIncluded => "the network is not inside any prefix in destinations.include",
            Self::Paused => "advice is paused on this host: `spand-agent resume` takes it up again",
            Self::Expired => "the lifetime of the advice is over and the gateway did not renew it",
            Self::Refused(_) => "the start function gave no start",
            Self::HeldOut => "the network is held out in this time slot, so that advised ones can be compared with it",
            Self::Observe => "the mode is observe: everything is computed and nothing applied",
            Self::SameAsDefault => "the start is the window this host begins with anyway",
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
