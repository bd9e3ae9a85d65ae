//! Estimates on the wire.

use crate::estimate::{Confidence, Estimate};
use crate::network::Network;
use crate::opening::{LossClock, Opening};
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
            is_lower_bound: self.is_lower_bound,
            losses: self.losses,
            loss_window_bytes: self.loss_window.map(Window::bytes),
            age_us: self.age(now).0,
            confidence: self.confidence.value(),
            rule: self.rule.to_string(),
            opening: self.opening.map(|opening| opening.to_wire(now)),
            buffer_bytes: self.buffer.map(Window::bytes),
            bdp_bytes: self.bdp.map(Window::bytes),
            mark: self.mark.map(|mark| mark.to_string()),
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
            is_lower_bound: message.is_lower_bound,
            losses: message.losses,
            loss_window: window(message.loss_window_bytes, "loss_window_bytes")?,
            opening: message.opening.as_ref().map(|opening| Opening::from_wire(opening, now)).transpose()?,
            buffer: window(message.buffer_bytes, "buffer_bytes")?,
            bdp: window(message.bdp_bytes, "bdp_bytes")?,
            refreshed: now.before(Micros(message.age_us)),
            confidence: Confidence::new(message.confidence),
            rule: rule.map_err(|source| WireError::Rule { field: "rule", source })?,
            // One of a newer gateway has the same effect: no loss backs the estimate.
            mark: message.mark.as_deref().and_then(|mark| mark.parse().ok()),
        })
    }
}

impl Opening {
    /// The message: times as ages at `now`, since the clocks of gateway and host need not agree.
    fn to_wire(self, now: Timestamp) -> v1::Opening {
        v1::Opening {
            rule: self.rule.to_string(),
            threshold_bytes: self.threshold.bytes(),
            losses: self.losses.map(|losses| v1::LossClock {
                interval_us: losses.interval.0,
                oldest_interval_us: losses.oldest_interval.0,
                age_us: now.since(losses.last).0,
            }),
        }
    }

    fn from_wire(message: &v1::Opening, now: Timestamp) -> Result<Self, WireError> {
        let rule = quote(&message.rule).parse();
        Ok(Self {
            rule: rule.map_err(|source| WireError::Rule { field: "opening.rule", source })?,
            threshold: Window::try_from(message.threshold_bytes)
                .map_err(|source| WireError::Window { field: "opening.threshold_bytes", source })?,
            losses: message.losses.as_ref().map(|losses| LossClock {
                interval: Micros(losses.interval_us),
                oldest_interval: Micros(losses.oldest_interval_us),
                last: now.before(Micros(losses.age_us)),
            }),
        })
    }
}

/// A window that need not be there.
fn window(bytes: Option<f64>, field: &'static str) -> Result<Option<Window>, WireError> {
    bytes.map(Window::try_from).transpose().map_err(|source| WireError::Window { field, source })
}

/// A network as text.
pub(super) fn network(text: &str, field: &'static str) -> Result<Network, WireError> {
    quote(text).parse().map_err(|source| WireError::Network { field, source })
}
