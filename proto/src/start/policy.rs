//! How far a start may go: the modes and their limits.
//!
//! Every default is in `docs/explain/definitions.md` ("The start"); each field is one documented option of the daemons. Knows nothing
//! about how a start is applied.

use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use super::Shape;
use crate::model::LINUX_SEGMENTS_PER_ACK;
use crate::units::{Micros, Segments};

/// A host's default initial window: ten segments (RFC 6928 section 2; Linux `TCP_INIT_CWND`).
pub const DEFAULT_INITIAL_WINDOW: Segments = Segments(10);

/// The three modes of a start, from the least to the most far-reaching.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Mode {
    /// The limits of `careful`; computed, counted and explained, never applied.
    Observe,
    /// A cap, a floor, a budget, and a check of the handshake's round trip.
    #[default]
    Careful,
    /// TCP/SPAND as published: no fraction, cap, floor or budget.
    Paper,
}

impl Mode {
    /// Its name in configuration and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A name that is no mode's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a mode: choose observe, careful or paper")]
pub struct NotAMode(pub String);

impl FromStr for Mode {
    type Err = NotAMode;

    fn from_str(name: &str) -> Result<Self, NotAMode> {
        Self::VARIANTS.iter().copied().find(|mode| mode.name() == name).ok_or_else(|| NotAMode(name.to_owned()))
    }
}

/// A part of a whole: above 0, at most 1.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(f64);

impl Fraction {
    /// The part as a number, above 0 and at most 1.
    pub const fn value(self) -> f64 {
        self.0
    }

    /// The part in millionths, in which it is computed with: a kernel has no floating point.
    pub fn millionths(self) -> u32 {
        millionths(self.0)
    }

    /// This part of `segments`, rounded down, at least 1.
    pub fn of(self, segments: Segments) -> Segments {
        let part = u64::from(segments.0) * u64::from(self.millionths()) / u64::from(MILLION);
        Segments(u32::try_from(part).unwrap_or(u32::MAX).max(1))
    }
}

/// A number that is no [`Fraction`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a fraction: give a number above 0 and at most 1, such as 0.75")]
pub struct NotAFraction(pub f64);

impl TryFrom<f64> for Fraction {
    type Error = NotAFraction;

    fn try_from(value: f64) -> Result<Self, NotAFraction> {
        if value > 0.0 && value <= 1.0 { Ok(Self(value)) } else { Err(NotAFraction(value)) }
    }
}

impl From<Fraction> for f64 {
    fn from(fraction: Fraction) -> Self {
        fraction.0
    }
}

/// The smallest start: the host's default initial window, except where losses say otherwise.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Floor {
    /// The floor where losses of enough connections are behind the estimate.
    pub lowest: Segments,
    /// Connections with a loss in the window that it takes.
    pub loss_connections: u32,
}

/// How far the handshake's round trip may be from the estimate's, both ends included.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct RttBounds {
    /// Smallest ratio of the handshake's round trip to the estimate's.
    pub low: f64,
    /// Largest ratio.
    pub high: f64,
}

impl RttBounds {
    /// Those of Careful Resume (RFC 9959 section 4.2.1), whatever the policy has.
    pub const CAREFUL_RESUME: Self = Self { low: 0.5, high: 10.0 };

    /// The bounds in millionths, in which they are computed with.
    pub fn millionths(self) -> (u32, u32) {
        (millionths(self.low), millionths(self.high))
    }

    /// Whether a handshake's round trip fits the estimate's.
    pub fn hold(self, handshake: Micros, estimate: Micros) -> bool {
        let (low, high) = self.millionths();
        let own = u128::from(handshake.0) * u128::from(MILLION);
        let at = |bound: u32| u128::from(estimate.0) * u128::from(bound);
        (at(low)..=at(high)).contains(&own)
    }
}

const MILLION: u32 = 1_000_000;

/// A ratio in millionths, at least one; `u32::MAX` is kept free for "none".
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn millionths(ratio: f64) -> u32 {
    (ratio * f64::from(MILLION)).round().clamp(1.0, f64::from(u32::MAX - 1)) as u32
}

/// How a first window is spread over its round trip.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PacingRule {
    /// `burst` segments at once, the rest so that the last one leaves when the paper's bucket would let it, and no faster than
    /// the share: what Linux allows (`tcp_update_skb_after_send` never paces the first ten data segments).
    AfterBurst {
        /// Segments that leave at once.
        burst: Segments,
    },
    /// The same with the rest at the share's own rate, `(Wc - burst) / RTT`: a window below the share then leaves as fast as
    /// the path carries it, and not stretched over a whole round trip. Faster where no loss bounds the share.
    ShareAfterBurst {
        /// Segments that leave at once.
        burst: Segments,
    },
    /// A token bucket of `depth` segments filled at `W / RTT` (TCP/SPAND section 4). Linux cannot apply it to a
    /// connection's first ten segments without help from outside the stack.
    TokenBucket {
        /// Segments that leave at once.
        depth: Segments,
    },
}

impl PacingRule {
    /// Segments that leave at once; a window up to this is not paced.
    pub const fn at_once(self) -> Segments {
        let (Self::AfterBurst { burst: at_once }
        | Self::ShareAfterBurst { burst: at_once }
        | Self::TokenBucket { depth: at_once }) = self;
        at_once
    }
}

/// The limits of a start.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each documented")]
pub struct StartPolicy {
    /// The mode these limits began as.
    pub mode: Mode,
    /// Samples an estimate needs.
    pub min_samples: u32,
    /// Connections that they must come from.
    pub min_connections: u32,
    /// Oldest newest-sample an estimate may have.
    pub max_age: Micros,
    /// `k` of the start model.
    pub segments_per_ack: NonZeroU32,
    /// Largest part of the share that one start may take.
    pub fraction: Option<Fraction>,
    /// Largest start whatever the share.
    pub cap: Option<Segments>,
    /// Smallest start.
    pub floor: Option<Floor>,
    /// Whether the budget of the request counts.
    pub budgeted: bool,
    /// Check of the handshake's round trip.
    pub rtt_bounds: Option<RttBounds>,
    /// Whether a start that the model shifts down stays large enough to keep the path busy until its first acknowledgement,
    /// and one of a transfer longer than an epoch counts as long.
    pub fills_pipe: bool,
    /// Whether the threshold is set only where losses back the share.
    pub threshold_needs_loss: bool,
    /// Spreading of the first window.
    pub pacing: PacingRule,
    /// What the start is made of.
    pub shape: Shape,
    /// Whether the bottleneck's buffer bounds unpaced starts and the slow start after them.
    pub buffered: bool,
    /// Whether a share that is small since many share the path gives way to what the empty path holds, as the shape of a start bounds it.
    pub crowd: bool,
}

impl StartPolicy {
    /// Defaults of [`Mode::Careful`] (`docs/explain/definitions.md`, "The start"). The lessons are those of RFC 9959; its bounds of the
    /// round trip (0.5x to 10x) are narrower here because a start here skips its validation phase.
    pub const CAREFUL: Self = Self {
        mode: Mode::Careful,
        min_samples: 3,
        min_connections: 2,
        max_age: Micros::from_secs(300),
        segments_per_ack: LINUX_SEGMENTS_PER_ACK,
        fraction: Some(Fraction(1.0)),
        cap: Some(Segments(100)),
        floor: Some(Floor { lowest: DEFAULT_INITIAL_WINDOW, loss_connections: 3 }),
        budgeted: true,
        rtt_bounds: Some(RttBounds { low: 0.5, high: 2.0 }),
        fills_pipe: true,
        threshold_needs_loss: true,
        pacing: PacingRule::ShareAfterBurst { burst: DEFAULT_INITIAL_WINDOW },
        shape: Shape::Paced,
        buffered: false,
        crowd: true,
    };

    /// Defaults of [`Mode::Observe`]: what `careful` would do.
    pub const OBSERVE: Self = Self { mode: Mode::Observe, ..Self::CAREFUL };

    /// Defaults of [`Mode::Paper`]: TCP/SPAND section 4 with its bucket of four segments. The minimum of samples and
    /// the age limit stay: the paper advises nothing either where its window holds too little.
    pub const PAPER: Self = Self {
        mode: Mode::Paper,
        fraction: None,
        cap: None,
        floor: None,
        budgeted: false,
        rtt_bounds: None,
        fills_pipe: false,
        threshold_needs_loss: false,
        pacing: PacingRule::TokenBucket { depth: Segments(4) },
        crowd: false,
        ..Self::CAREFUL
    };

    /// The defaults of a mode.
    pub const fn of(mode: Mode) -> Self {
        match mode {
            Mode::Observe => Self::OBSERVE,
            Mode::Careful => Self::CAREFUL,
            Mode::Paper => Self::PAPER,
        }
    }
}

impl Default for StartPolicy {
    fn default() -> Self {
        Self::CAREFUL
    }
}
