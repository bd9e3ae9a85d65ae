//! What was seen of the traffic in a while, wherever the numbers come from.

use std::collections::BTreeMap;

use spand_core::counters::OtherProtocol;
use spand_proto::network::Network;

/// Numbers of a while of traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// How long the while was, in seconds.
    pub(super) span_s: f64,
    /// Packets that came.
    pub(super) packets: u64,
    /// Age of the newest packet in seconds; `None` where no gateway runs, or where it received none.
    pub(super) newest_age_s: Option<f64>,
    /// Packets that were lost before they could be looked at, wherever.
    pub(super) dropped: u64,
    /// TCP segments among what came.
    pub(super) segments: u64,
    /// Frames and segments that were not used, by the stable names of the engine's reasons.
    pub(super) ignored: BTreeMap<String, u64>,
    /// Frames without IP or TCP by the well-known protocol that they held.
    pub(super) other_protocols: Vec<(&'static OtherProtocol, u64)>,
    /// Connections that say whether both directions are seen.
    pub(super) connections: u64,
    /// Of them, those that showed one direction.
    pub(super) one_sided: u64,
    /// Segments of connections of which neither end lies inside.
    pub(super) outside: u64,
    /// Packets longer than the interface's longest, merged by someone; `None` where lengths were not looked at.
    pub(super) merged: Option<u64>,
    /// Networks of senders, by connections; empty where they were not looked at.
    pub(super) senders: BTreeMap<Network, u64>,
}

impl Seen {
    /// How often something was not used for this reason.
    pub(super) fn ignored(&self, reason: &str) -> u64 {
        self.ignored.get(reason).copied().unwrap_or(0)
    }
}
