//! What gateways have each other know beside what they saw.

use spand_proto::network::Network;
use spand_proto::units::{Timestamp, Window};

/// One thing that another gateway has to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Advice is held back. Lost, hosts of other gateways go on with the full advice until they lose by themselves.
    HeldBack(HeldBack),
}

/// Advice about a network that is held back, because hosts of one gateway reported losses in first flights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldBack {
    /// Which network.
    pub network: Network,
    /// Its share is not more than this.
    pub cap: Window,
    /// When it was halved.
    pub halved: Timestamp,
    /// Until then there is no advice, where it was withdrawn.
    pub withdrawn: Option<Timestamp>,
}
