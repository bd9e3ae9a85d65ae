//! Estimates on the wire.

use crate::estimate::{Confidence, Estimate};
use crate::network::Network;
use crate::units::{Bytes, Micros, Timestamp, Window};
use crate::v1;

use super::{WireError, out_of_range, quote, rtt};

impl Estimate {
    /// The message, with the estimate's age at `now`.
    pub fn to_wire(&self, now: Timestamp) -> v1::Estimate {
        v1::Estimate {
            network: self.network.to_string(),
            share_bytes: self.share.bytes(),
            mss_bytes: self.mss.0,
            rtt_min_us: self.rtt_min.map(|rtt| rtt.0),
            rtt_mean_us: self.rtt_mean.map(|rtt| rtt.0),
            samples: self.samples,
            connections: self.connections,
            loss_connections: self.loss_connections,
            losses: self.losses,
            loss_window_bytes: self.loss_window.map(Window::bytes),
            age_us: self.age(now).0,
            confidence: self.confidence.value(),
            rule: self.rule.to_string(),
        }
    }

    /// The estimate of a message that arrived at `now` by the receiver's clock.
    pub fn from_wire(message: &v1::Estimate, now: Timestamp) -> Result<Self, WireError> {
        if message.mss_bytes == 0 {
            return Err(out_of_range(&0, "mss_bytes", "at least 1"));
        }
        if !(0.0..=1.0).contains(&message.confidence) {
            return Err(out_of_range(&message.confidence, "confidence", "0 to 1"));
        }
        let rule = quote(&message.rule).parse();
        Ok(Self {
            network: network(&message.network, "network")?,
            share: Window::try_from(message.share_bytes)
                .map_err(|source| WireError::Window { field: "share_bytes", source })?,
            mss: Bytes(message.mss_bytes),
            rtt_min: rtt(message.rtt_min_us, "rtt_min_us")?,
            rtt_mean: rtt(message.rtt_mean_us, "rtt_mean_us")?,
            samples: message.samples,
            connections: message.connections,
            loss_connections: message.loss_connections,
            losses: message.losses,
            loss_window: (message.loss_window_bytes.map(Window::try_from).transpose())
                .map_err(|source| WireError::Window { field: "loss_window_bytes", source })?,
            refreshed: now.before(Micros(message.age_us)),
            confidence: Confidence::new(message.confidence),
            rule: rule.map_err(|source| WireError::Rule { field: "rule", source })?,
        })
    }
}

/// A network as text.
pub(super) fn network(text: &str, field: &'static str) -> Result<Network, WireError> {
    quote(text).parse().map_err(|source| WireError::Network { field, source })
}
