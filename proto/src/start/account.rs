//! How a start came about: every step with its numbers, so that `explain` can print them.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use super::Shape;
use crate::units::Segments;

/// The steps from the share to the window.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Account {
    /// The share `Wc` in whole segments of the asker's size, at least 1.
    pub share: Segments,
    /// What a short transfer takes for its share in place of a smaller one, where many share the path.
    pub raised: Option<Segments>,
    /// What the start model made of the transfer's size; `None` where that was not known, which counts as long.
    pub transfer: Option<TransferSteps>,
    /// `W'`: what the start would be without limits. The share itself where the size was not known.
    pub shifted: Segments,
    /// Every limit that was considered, in the order of [`Limit`], whether or not it changed anything.
    pub bounds: Vec<Bound>,
    /// Whether the handshake's round trip was compared with the estimate's.
    pub rtt_check: RttCheck,
    /// What the start is made of; a gateway's answers have the default.
    pub shape: Shape,
    /// The next loss is overdue, so that [`Shape::Measured`] keeps the host's window.
    pub overdue: bool,
    /// What [`Shape::CarefulResume`] may jump to; `None` for the others.
    pub jump: Option<Segments>,
}

/// The start model's steps for a transfer of known size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransferSteps {
    /// `F`: the transfer in segments.
    pub size: Segments,
    /// `S`: segments in one epoch.
    pub epoch_segments: u64,
    /// `f`: segments in the transfer's last epoch.
    pub remainder: Segments,
    /// `W` of equation 3.
    pub optimal: Segments,
    /// Round trips that `f` takes without loss, from `W` and from `W'`.
    pub rounds: u64,
}

/// One limit and what it did to the window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bound {
    /// Which limit.
    pub limit: Limit,
    /// Its value.
    pub value: Segments,
    /// The window before it.
    pub before: Segments,
    /// The window after it.
    pub after: Segments,
}

/// The limits of a start, in the order in which they are considered.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Limit {
    /// The fraction of the share that one start may take.
    Fraction,
    /// The largest start whatever the share.
    Cap,
    /// The peer's receive window.
    PeerWindow,
    /// What is left of the network's budget, on top of the host's default.
    Budget,
    /// What an unpaced start may send before the bottleneck's buffer overflows.
    Buffer,
    /// The smallest start; the only limit that raises a window.
    Floor,
}

impl Limit {
    /// Its stable name in metrics and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Whether the handshake's round trip was compared with the estimate's.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RttCheck {
    /// The mode does not ask for it.
    Off,
    /// There was no handshake round trip to compare.
    NoHandshake,
    /// It was within the bounds.
    Passed,
}
