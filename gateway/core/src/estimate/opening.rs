//! The rules that also say how a connection may open, by the senders under way to its network (Yu & Newman 2011). Their share is that
//! of `robust`.

use std::net::IpAddr;

use spand_proto::estimate::RuleKind;
use spand_proto::opening::{LossClock, Opening};
use spand_proto::units::{Timestamp, Window};

use super::{Admitted, Known, RobustRule, Rule, averaged, cached, liss, miss};
use crate::flow::sample::WindowSample;
use crate::window::live::LiveView;
use crate::window::record::WindowSlice;

/// A rule for the slow-start threshold of one more connection.
#[derive(Clone, Copy, Debug)]
pub struct OpeningRule {
    kind: RuleKind,
    threshold: fn(LiveView<'_>) -> Option<Window>,
    losses: fn(LiveView<'_>) -> Option<LossClock>,
}

impl OpeningRule {
    /// Less Informed Slow Start: the fair share by the oldest window.
    pub const LISS: Self = Self { kind: RuleKind::Liss, threshold: liss::by_window, losses: |_| None };
    /// Informed Slow Start: the same by the oldest window smoothed.
    pub const ISS: Self = Self { kind: RuleKind::Iss, threshold: liss::by_smoothed_window, losses: |_| None };
    /// More Informed Slow Start: the threshold of LISS, and the times of losses.
    pub const MISS: Self = Self { kind: RuleKind::Miss, threshold: liss::by_window, losses: miss::loss_clock };
    /// The threshold of another connection to the network.
    pub const CACHED: Self = Self { kind: RuleKind::Cached, threshold: cached::threshold, losses: |_| None };
    /// The average window of all connections to the network.
    pub const AVERAGED: Self = Self { kind: RuleKind::Averaged, threshold: averaged::threshold, losses: |_| None };
}

impl Rule for OpeningRule {
    fn kind(&self) -> RuleKind {
        self.kind
    }

    fn admit(&self, sample: &WindowSample, known: &Known) -> Admitted {
        RobustRule::DEFAULT.admit(sample, known)
    }

    fn share(&self, slice: WindowSlice<'_>) -> Option<Window> {
        RobustRule::DEFAULT.share(slice)
    }

    fn carried(&self, slice: WindowSlice<'_>, of: IpAddr) -> Option<Window> {
        RobustRule::DEFAULT.carried(slice, of)
    }

    fn needs_live(&self) -> bool {
        true
    }

    fn opening(&self, _slice: WindowSlice<'_>, live: LiveView<'_>, _now: Timestamp) -> Option<Opening> {
        let threshold = (self.threshold)(live).filter(|threshold| threshold.bytes() > 0.0)?;
        Some(Opening { rule: self.kind, threshold, losses: (self.losses)(live) })
    }
}
