//! A start where many share the path (`docs/decisions/whole-share.md`): the share is then small, and short transfers do best from twice the
//! default window.

use super::policy::StartPolicy;
use super::shape::Shape;
use super::{StartRequest, TransferSize};
use crate::estimate::Estimate;
use crate::units::{Bytes, Segments};

/// The least that a short transfer takes for its share.
pub const CROWD_WINDOW: Segments = Segments(20);
/// The most segments of a short transfer.
pub const CROWD_LONGEST: Segments = Segments(100);
/// The least threshold of one that is longer, or of unknown size.
pub const CROWD_THRESHOLD: Segments = Segments(25);

/// What is raised, within what the empty path holds; zero: not at all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Crowd {
    /// What a short transfer takes for its share.
    pub(super) share: Segments,
    /// The smallest window that takes no more flights than it.
    pub(super) window: Segments,
    /// The threshold of a transfer that is not short.
    pub(super) threshold: Segments,
}

impl Crowd {
    pub(super) fn of(
        request: &StartRequest<'_>,
        (estimate, share): (&Estimate, Segments),
        policy: &StartPolicy,
    ) -> Self {
        let Some(bdp) = estimate.bdp.filter(|_| policy.crowd && policy.shape == Shape::Paced) else {
            return Self::default();
        };
        let bdp = Bytes(bdp.half_bytes() / 2).segments_floor(request.mss);
        let size = match request.size {
            TransferSize::Known(bytes) | TransferSize::Usual(bytes) => bytes.segments_ceil(request.mss),
            TransferSize::Unknown => Segments(u32::MAX),
        };
        if size > CROWD_LONGEST {
            return Self { threshold: CROWD_THRESHOLD.min(bdp), ..Self::default() };
        }
        let raised = CROWD_WINDOW.min(bdp);
        if raised <= share {
            return Self::default();
        }
        let flights = size.0.div_ceil(raised.0).max(1);
        Self { share: raised, window: Segments(size.0.div_ceil(flights)), threshold: Segments(0) }
    }
}
