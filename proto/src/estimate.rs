//! What is known about a network: the answer of an estimation rule.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::network::Network;
use crate::opening::Opening;
use crate::units::{Bytes, Micros, Segments, Timestamp, Window};

/// One network's share of the path and round-trip time at one moment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Estimate {
    /// The network.
    pub network: Network,
    /// The share `Wc`: the largest window that the path carries without loss (TCP/SPAND section 4).
    pub share: Window,
    /// No sample shows the share: it is what transfers carried that ended without loss before they tried more. In no case it is less.
    pub is_lower_bound: bool,
    /// The segment size (less options) of the samples behind it, in bytes; their median where they differ.
    pub mss: Bytes,
    /// Smallest round-trip time in the window.
    pub rtt_min: Option<Micros>,
    /// Mean round-trip time in the window.
    pub rtt_mean: Option<Micros>,
    /// Window samples behind the share, or lower bounds where it is one.
    pub samples: u32,
    /// Connections that gave them.
    pub connections: u32,
    /// Connections among them that gave a sample by a loss: a start below the host's default needs three.
    pub loss_connections: u32,
    /// Loss events in the window, whether or not they gave a sample.
    pub losses: u64,
    /// Mean window at the losses that gave a sample. The share also holds windows at which short transfers just ended, far below what the path
    /// carries.
    pub loss_window: Option<Window>,
    /// What one more connection may open with, by the senders under way; only of rules that watch them.
    pub opening: Option<Opening>,
    /// The bottleneck's buffer, by the round trips at losses.
    pub buffer: Option<Window>,
    /// What the empty path holds: the largest rate at which all connections together delivered lately, times the smallest round trip. No less
    /// than that; of one gateway's tap alone.
    pub bdp: Option<Window>,
    /// When the newest sample came.
    pub refreshed: Timestamp,
    /// How far the number can be trusted.
    pub confidence: Confidence,
    /// The rule that made it.
    pub rule: RuleKind,
    /// Why no loss backs it although some were seen.
    pub mark: Option<Mark>,
}

/// Why no loss backs an estimate although losses gave samples: such losses do not show where slow start should end.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Mark {
    /// Losses come at any window and without a queue: the share is a lower bound.
    RandomLoss,
    /// The addresses have shares far apart: the share is that of the lower part.
    AddressesDiffer,
    /// Several times as many senders as now gave the samples.
    PastLoad,
}

impl Mark {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// A sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::RandomLoss => "loss: random (at any window, without a queue); the share is a lower bound",
            Self::AddressesDiffer => "addresses: differ; the share is that of the lower part",
            Self::PastLoad => "load: past (several times as many senders as now gave the samples)",
        }
    }
}

impl Estimate {
    /// The share in whole segments of the asker's size, rounded to nearest.
    pub fn share_segments(&self, mss: Bytes) -> Segments {
        self.share.segments(mss)
    }

    /// The part of the share that keeps the path busy for an empty round trip, in half bytes: `Wc * RTTmin / RTTmean`. What is
    /// beyond it stands in a queue. The whole share where a round trip is not known.
    pub fn pipe_half_bytes(&self) -> u64 {
        let share = self.share.half_bytes();
        let (Some(Micros(least)), Some(Micros(mean @ 1..))) = (self.rtt_min, self.rtt_mean) else { return share };
        let part = u128::from(share) * u128::from(least.min(mean)) / u128::from(mean);
        u64::try_from(part).unwrap_or(share)
    }

    /// Where slow start ends that began below it, in bytes: half of what was in flight at a loss (RFC 5681, equation 4), where one
    /// is known.
    pub fn threshold_bytes(&self) -> u64 {
        self.loss_window.map_or(0, |window| window.half_bytes() / 4)
    }

    /// Time since the newest sample.
    pub fn age(&self, now: Timestamp) -> Micros {
        now.since(self.refreshed)
    }
}

/// Trust in an estimate from 0 (none) to 1.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Confidence(f64);

impl Confidence {
    /// Confidence of `value`, clamped into 0 to 1; not a number counts as 0.
    pub fn new(value: f64) -> Self {
        Self(if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) })
    }

    /// The value, 0 to 1.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// The estimation rules by name, in the order of their introduction.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RuleKind {
    /// The paper's plain average of all samples of the window (TCP/SPAND section 5).
    Spand,
    /// The average with end samples `max(end window, Wc + 1)`, so that advice does not ratchet down on its own output.
    Probe,
    /// A bounded average of the newest samples in which no source, no single value and no own advice decides.
    #[default]
    Robust,
    /// Share of `robust`; a connection opens with the fair share by the oldest window (Less Informed Slow Start, Yu & Newman 2011).
    Liss,
    /// The same by the oldest window smoothed (Informed Slow Start).
    Iss,
    /// As `liss`, with the times of losses (More Informed Slow Start).
    Miss,
    /// Share of `robust`; a connection opens with the slow-start threshold of another one.
    Cached,
    /// Share of `robust`; a connection opens with the mean window of all of five minutes.
    Averaged,
}

impl RuleKind {
    /// Its name in configuration and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A name that is no rule's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not an estimation rule: choose spand, probe, robust, liss, iss, miss, cached or averaged")]
pub struct NotARule(pub String);

impl FromStr for RuleKind {
    type Err = NotARule;

    fn from_str(name: &str) -> Result<Self, NotARule> {
        Self::VARIANTS.iter().copied().find(|rule| rule.name() == name).ok_or_else(|| NotARule(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_by_the_name_it_prints() {
        for &rule in RuleKind::VARIANTS {
            assert_eq!(rule.to_string().parse(), Ok(rule));
            assert_eq!(serde_json::to_string(&rule).unwrap(), format!("\"{rule}\""));
        }
        assert!("median".parse::<RuleKind>().is_err());
    }

    #[test]
    fn confidence_stays_in_its_range() {
        assert_eq!(Confidence::new(f64::NAN).value().to_bits(), 0.0f64.to_bits());
        assert_eq!(Confidence::new(7.0).value().to_bits(), 1.0f64.to_bits());
    }
}
