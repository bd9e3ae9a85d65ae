//! What a rule for an opening keeps of a network's senders under way. The rules are not the engine's own: it only reports to them.

use std::fmt::Debug;

use spand_proto::estimate::RuleKind;
use spand_proto::opening::Opening;
use spand_proto::units::{Micros, Timestamp};

use crate::types::{SenderId, SenderState};

/// The senders under way to one network.
pub trait Openings: Debug + Send + Sync {
    /// The same of another network, of which nothing is known yet.
    fn of_network(&self) -> Box<dyn Openings>;

    /// Takes the state of a sender in the middle of a transfer, about once a round trip. Returns whether there is no place for a sender of
    /// its own.
    fn report(&mut self, at: Timestamp, sender: SenderId, state: &SenderState) -> bool;

    /// A sender whose round trip is `rtt` lost something.
    fn lose(&mut self, at: Timestamp, sender: SenderId, rtt: Micros);

    /// A sender's transfer ended.
    fn end(&mut self, at: Timestamp, sender: SenderId);

    /// What one more connection may open with, by the rule in force.
    fn opening(&self, now: Timestamp) -> Option<Opening>;

    /// The same by a rule that is compared with it.
    fn compared(&self, rule: RuleKind, now: Timestamp) -> Option<Opening>;

    /// Heap memory, its own included.
    fn held_bytes(&self) -> usize;
}
