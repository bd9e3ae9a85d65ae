//! Made-up values that tests of several crates publish: what stands in them matters to none.

use crate::estimate::{Confidence, Estimate, RuleKind};
use crate::network::Network;
use crate::units::{Bytes, Micros, Timestamp, Window};

/// A sound estimate: thirty samples of twelve connections over a path of 40 ms.
pub fn estimate(network: Network, share: Window, refreshed: Timestamp) -> Estimate {
    Estimate {
        network,
        share,
        mss: Bytes(1_448),
        rtt_min: Some(Micros(38_000)),
        rtt_mean: Some(Micros(40_000)),
        samples: 30,
        connections: 12,
        loss_connections: 4,
        losses: 5,
        loss_window: Some(share),
        is_lower_bound: false,
        opening: None,
        buffer: None,
        bdp: None,
        refreshed,
        confidence: Confidence::new(0.9),
        rule: RuleKind::Robust,
        mark: None,
    }
}
