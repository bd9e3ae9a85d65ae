//! The shapes of a start: what window and threshold it aims at before the limits.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use super::policy::StartPolicy;
use super::{NO_THRESHOLD, Refusal, StartRequest, TransferSize};
use crate::estimate::Estimate;
use crate::growth::MOST_SEGMENTS;
use crate::opening::Opening;
use crate::units::{Bytes, Micros, Segments};

/// What a start is made of.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Shape {
    /// The share's window at once, paced, in congestion avoidance (TCP/SPAND).
    #[default]
    Paced,
    /// The host's own window, and slow start up to the opening's threshold (LISS, ISS, cached, averaged).
    Threshold,
    /// The opening's threshold as the window, paced (JS).
    Jump,
    /// The window by the times of losses, paced (MISS).
    Measured,
    /// The host's own window; the connection measures its threshold by its acknowledgements (Aron & Druschel).
    OwnThreshold,
    /// The same, and half of that threshold is then sent paced.
    OwnPaced,
    /// The host's own window, and a paced jump to half of the share once the path is confirmed (RFC 9959, [`crate::resume`]).
    #[serde(rename = "rfc9959")]
    #[strum(serialize = "rfc9959")]
    CarefulResume,
}

impl Shape {
    /// Its name in configuration and output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it rests on an [`Opening`], which not every rule gives.
    pub const fn needs_opening(self) -> bool {
        matches!(self, Self::Threshold | Self::Jump | Self::Measured)
    }

    /// Whether it is there to be compared, in [`super::Mode::Paper`] only: its window rests on what one host has measured, or on
    /// times of losses that are stale within seconds.
    pub const fn is_compared_only(self) -> bool {
        matches!(self, Self::Measured | Self::OwnThreshold | Self::OwnPaced)
    }

    /// Whether its window is the host's own, so that only the threshold or the growth differs from standard TCP.
    pub const fn keeps_window(self) -> bool {
        matches!(self, Self::Threshold | Self::OwnThreshold | Self::OwnPaced | Self::CarefulResume)
    }
}

/// A name that is no shape's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{0}` is not a shape of a start: choose paced, threshold, jump, measured, own_threshold, own_paced or rfc9959"
)]
pub struct NotAShape(pub String);

impl FromStr for Shape {
    type Err = NotAShape;

    fn from_str(name: &str) -> Result<Self, NotAShape> {
        Self::VARIANTS.iter().copied().find(|shape| shape.name() == name).ok_or_else(|| NotAShape(name.to_owned()))
    }
}

/// What a shape aims at, before any limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Aim {
    pub(super) window: Segments,
    pub(super) threshold: Segments,
    /// Whose rate a paced window leaves at.
    pub(super) share: Segments,
    /// The next loss is overdue, so that the times of losses give no window.
    pub(super) overdue: bool,
}

/// The aim of a shape other than [`Shape::Paced`].
pub(super) fn aim(
    shape: Shape,
    estimate: &Estimate,
    request: &StartRequest<'_>,
    rtt: Option<Micros>,
) -> Result<Aim, Refusal> {
    let initial = request.initial_window;
    let opening = || {
        let opening = estimate.opening.filter(|opening| opening.threshold.half_bytes() > 0);
        opening.ok_or(Refusal::NoOpening { shape })
    };
    let threshold = |opening: &Opening| at_least_one(opening.threshold.segments(request.mss));
    Ok(match shape {
        Shape::Paced | Shape::OwnThreshold | Shape::OwnPaced | Shape::CarefulResume => {
            Aim { window: initial, threshold: NO_THRESHOLD, share: initial, overdue: false }
        }
        Shape::Threshold => Aim { window: initial, threshold: threshold(&opening()?), share: initial, overdue: false },
        Shape::Jump => {
            let threshold = threshold(&opening()?);
            Aim { window: threshold, threshold, share: threshold, overdue: false }
        }
        Shape::Measured => {
            let opening = opening()?;
            let measured = opening.losses.zip(rtt).and_then(|(losses, rtt)| losses.segments(request.now, rtt));
            let window = measured.unwrap_or(initial).max(initial);
            let threshold = threshold(&opening).max(window);
            Aim { window, threshold, share: window, overdue: measured.is_none() }
        }
    })
}

fn at_least_one(segments: Segments) -> Segments {
    Segments(segments.0.clamp(1, MOST_SEGMENTS))
}

/// The window at which slow start first overflows the bottleneck's buffer (Barakat & Altman with d = 1): twice the buffer, at most what
/// was there at losses. `None` where no loss shows the buffer.
pub(super) fn overflow(estimate: &Estimate, mss: Bytes) -> Option<Segments> {
    let bytes = overflow_bytes(estimate)?;
    Some(Segments(bytes.segments_floor(mss).0.clamp(1, MOST_SEGMENTS)))
}

/// The same in bytes.
pub fn overflow_bytes(estimate: &Estimate) -> Option<Bytes> {
    let (buffer, most) = (estimate.buffer?, estimate.loss_window?);
    if estimate.loss_connections == 0 {
        return None;
    }
    Some(Bytes(buffer.half_bytes().saturating_mul(2).min(most.half_bytes()) / 2))
}

// A start where many share the path (`docs/explain/decisions/starts.md`): the share is then small, and short transfers do best from twice the
// default window.

/// The least that a short transfer takes for its share.
pub const CROWD_WINDOW: Segments = Segments(20);
/// The most segments of a short transfer.
pub const CROWD_LONGEST: Segments = Segments(100);
/// The least threshold.
pub const CROWD_THRESHOLD: Segments = Segments(25);

/// What is raised, within what the empty path holds; zero: not at all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Crowd {
    /// What a short transfer takes for its share.
    pub(super) share: Segments,
    /// The smallest window that takes no more flights than it.
    pub(super) window: Segments,
    /// The least threshold.
    pub(super) threshold: Segments,
}

impl Crowd {
    pub(super) fn of(
        request: &StartRequest<'_>,
        (estimate, share): (&Estimate, Segments),
        policy: &StartPolicy,
    ) -> Self {
        if !policy.crowd || policy.shape != Shape::Paced {
            return Self::default();
        }
        let bdp = estimate.bdp.map(|bdp| Bytes(bdp.half_bytes() / 2).segments_floor(request.mss));
        let Some(bdp) = bdp.filter(|bdp| bdp.0 > 0) else {
            return Self { threshold: CROWD_THRESHOLD, ..Self::default() };
        };
        let size = match request.size {
            TransferSize::Known(bytes) | TransferSize::Usual(bytes) => bytes.segments_ceil(request.mss),
            TransferSize::Unknown => Segments(u32::MAX),
        };
        let threshold = CROWD_THRESHOLD.min(bdp);
        let raised = CROWD_WINDOW.min(bdp);
        if size > CROWD_LONGEST || raised <= share {
            return Self { threshold, ..Self::default() };
        }
        let flights = size.0.div_ceil(raised.0).max(1);
        Self { share: raised, window: Segments(size.0.div_ceil(flights)), threshold }
    }
}
