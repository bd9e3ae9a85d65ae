//! What a subscriber is told, before it is put into the words of an API.

use std::sync::Arc;

use spand_core::event::{StartImminent, Withdrawal};
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::units::Micros;

/// One message of a subscription. The order is: `SnapshotBegin`, estimates, `SnapshotEnd`, then changes; after a
/// `Resync` all of it comes again. `Start` overtakes everything else and may come at any place.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The estimates in force follow.
    SnapshotBegin {
        /// How many there were when the snapshot began.
        networks: usize,
    },
    /// The snapshot is complete: what was held and did not come again is no longer in force.
    SnapshotEnd {
        /// How many estimates were sent.
        networks: usize,
    },
    /// An estimate appeared or moved.
    Estimate(Arc<Estimate>),
    /// All that this subscription gave and did not withdraw lives on.
    Renewal,
    /// A connection of the subscriber is about to send.
    Start(Start),
    /// An estimate is no longer in force.
    Withdrawn(Network, Withdrawal),
    /// Changes were lost; a new snapshot follows.
    Resync {
        /// Why.
        reason: ResyncReason,
        /// How many changes were lost.
        dropped: u64,
    },
}

/// A message with its place in the subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbered {
    /// Counts from 1; a gap is what was dropped before a resync.
    pub sequence: u64,
    /// The message.
    pub message: Message,
}

/// An imminent start with what is known about the remote's network.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// What the engine saw.
    pub event: StartImminent,
    /// The estimate in force.
    pub estimate: Arc<Estimate>,
    /// Time from the packet's capture to the handing out of this message.
    pub delay: Micros,
}

/// Why a subscription starts over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResyncReason {
    /// The subscriber read too slowly.
    SlowReader,
    /// The published state was replaced as a whole.
    StateReplaced,
}

/// A change of the published state, told to every subscriber.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Estimate(Arc<Estimate>),
    Withdrawn(Network, Withdrawal),
}

impl Change {
    pub(super) fn message(&self) -> Message {
        match self {
            Self::Estimate(estimate) => Message::Estimate(Arc::clone(estimate)),
            Self::Withdrawn(network, reason) => Message::Withdrawn(*network, *reason),
        }
    }
}

/// What the ring of changes carries: shared by all subscribers, never copied.
#[derive(Clone, Debug)]
pub(super) enum Broadcast {
    /// Changes number `first`, `first + 1`, … of all changes ever told.
    Changes { first: u64, changes: Arc<[Change]> },
    /// The state was replaced as a whole.
    Replaced,
}
