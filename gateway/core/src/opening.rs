//! The hook by which the engine reports the senders under way to rules for an opening. It has no such rule itself.

use std::fmt::Debug;

use spand_proto::estimate::RuleKind;
use spand_proto::opening::Opening;
use spand_proto::units::{Micros, Timestamp};

use crate::types::{SenderId, SenderState};

/// The senders under way to one network.
pub trait Openings: Debug + Send + Sync {
    /// Returns an empty state for another network.
    fn of_network(&self) -> Box<dyn Openings>;

    /// Takes the state of a sender in the middle of a transfer, about once a round trip. Returns whether there is no place for a sender of
    /// its own.
    fn report(&mut self, at: Timestamp, sender: SenderId, state: &SenderState) -> bool;

    /// A sender whose round trip is `rtt` lost something.
    fn lose(&mut self, at: Timestamp, sender: SenderId, rtt: Micros);

    /// A sender's transfer ended.
    fn end(&mut self, at: Timestamp, sender: SenderId);

    /// Returns the opening of one more connection by the rule in force.
    fn opening(&self, now: Timestamp) -> Option<Opening>;

    /// Returns its opening by a rule that is compared with the one in force.
    fn compared(&self, rule: RuleKind, now: Timestamp) -> Option<Opening>;

    /// Bytes of its entries and its own.
    fn held_bytes(&self) -> usize;
}
