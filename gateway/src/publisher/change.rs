//! Changes of the published state on their way to subscribers, and the engine's words in those of the contract.

use std::sync::Arc;

use spand_core::estimate::NoEstimate;
use spand_core::networks::Withdrawal;
use spand_core::service::ServiceSize;
use spand_core::types::Trigger;
use spand_proto::network::Network;
use spand_proto::push;
use spand_proto::push::WithdrawalReason;

/// A change of the published state, for every subscriber that it concerns.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// An estimate changed; it is read when it is sent.
    Estimate(Network),
    /// The end of an estimate.
    Withdrawn(Network),
    /// Of a service, for its host.
    Service(ServiceSize),
}

/// What the ring of changes carries: shared by all subscribers, never copied.
#[derive(Clone, Debug)]
pub(super) enum Broadcast {
    /// Changes number `first`, `first + 1`, … counted from the first one ever sent.
    Changes { first: u64, changes: Arc<[Change]> },
    /// The state was replaced as a whole.
    Replaced,
}

pub(super) const fn withdrawal_reason(reason: Withdrawal) -> WithdrawalReason {
    match reason {
        Withdrawal::Expired => WithdrawalReason::Expired,
        Withdrawal::TooFew => WithdrawalReason::TooFew,
        Withdrawal::Evicted => WithdrawalReason::Evicted,
        Withdrawal::Administrator => WithdrawalReason::Administrator,
    }
}

pub(super) const fn not_published(why_not: NoEstimate) -> WithdrawalReason {
    match why_not {
        NoEstimate::Expired => WithdrawalReason::Expired,
        NoEstimate::TooFewSamples | NoEstimate::TooFewConnections => WithdrawalReason::TooFew,
    }
}

pub(super) const fn trigger(trigger: Trigger) -> push::Trigger {
    match trigger {
        Trigger::PassiveOpen => push::Trigger::PassiveOpen,
        Trigger::ActiveOpen => push::Trigger::ActiveOpen,
        Trigger::Idle => push::Trigger::Idle,
    }
}
