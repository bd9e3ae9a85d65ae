//! The rules that also say how a connection may open, by the senders under way to its network (Yu & Newman 2011). Their share is that
//! of `robust`.

use std::net::IpAddr;

use spand_proto::estimate::RuleKind;
use spand_proto::opening::{LossClock, Opening, Sharing};
use spand_proto::units::{Micros, Timestamp, Window};

use super::{Admitted, Known, RobustRule, Rule};
use crate::types::WindowSample;
use crate::window::live::{LiveSender, LiveView};
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
    pub const LISS: Self = Self { kind: RuleKind::Liss, threshold: by_window, losses: |_| None };
    /// Informed Slow Start: the same by the oldest window smoothed.
    pub const ISS: Self = Self { kind: RuleKind::Iss, threshold: by_smoothed_window, losses: |_| None };
    /// More Informed Slow Start: the threshold of LISS, and the times of losses.
    pub const MISS: Self = Self { kind: RuleKind::Miss, threshold: by_window, losses: loss_clock };
    /// The threshold of another connection to the network.
    pub const CACHED: Self = Self { kind: RuleKind::Cached, threshold: cached_threshold, losses: |_| None };
    /// The average window of all connections to the network.
    pub const AVERAGED: Self = Self { kind: RuleKind::Averaged, threshold: averaged_threshold, losses: |_| None };
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

// Less Informed and Informed Slow Start (Yu & Newman, section 3): the window that one more connection has when all that share the path
// have the same (equation 2, [`Sharing::fair_share`]).
//
// Nothing where no sender is in congestion avoidance: those in slow start are on their way to a window that nobody knows yet.

/// LISS: by the congestion window of the oldest sender that is not in slow start.
pub(super) fn by_window(live: LiveView<'_>) -> Option<Window> {
    fair_share(live, |oldest| oldest.state.window)
}

/// ISS: by that window, smoothed.
pub(super) fn by_smoothed_window(live: LiveView<'_>) -> Option<Window> {
    fair_share(live, |oldest| oldest.smoothed)
}

fn fair_share(live: LiveView<'_>, window: impl Fn(&LiveSender) -> Window) -> Option<Window> {
    let oldest = live.senders().find(|sender| sender.is_steady())?;
    let (slow_starting, in_avoidance) = live.crowd();
    Sharing { slow_starting, in_avoidance, oldest: window(oldest).bytes() }.fair_share()
}

// More Informed Slow Start (Yu & Newman, section 4): how often the connections of a network lose something, and how often the oldest of
// them does. What follows for a start is computed by its host at its start ([`LossClock::window`]): it is another every round trip.

/// The clock of losses; nothing before the network and one of its senders lost something twice. The oldest: of the senders under way,
/// the first that did.
pub(super) fn loss_clock(live: LiveView<'_>) -> Option<LossClock> {
    let losses = live.losses();
    Some(LossClock {
        interval: losses.interval()?,
        oldest_interval: live.senders().find_map(|sender| sender.losses.interval())?,
        last: losses.last()?,
    })
}

// The `averaged` method that Yu & Newman compare with (section 5.4, after TCP/SPAND): the mean window of all connections to the network,
// sampled once a second over five minutes and renewed every minute.

/// That mean.
pub(super) fn averaged_threshold(live: LiveView<'_>) -> Option<Window> {
    live.mean_window()
}

// The `cached` method that Yu & Newman compare with (section 5.4, after TCP Fast Start): the slow-start threshold of a connection to the
// same network.
//
// Of an active one, the oldest that has a threshold; else the one that left last. There, the latter is only for the same destination
// address. An estimate is for a network, so here it is the last one's, whatever its address, and for five minutes: one value per network.

/// How long the threshold of a connection that ended counts: as long as its samples.
const AGE: Micros = Micros::from_secs(300);

/// That threshold.
pub(super) fn cached_threshold(live: LiveView<'_>) -> Option<Window> {
    live.senders().find_map(|sender| sender.state.ssthresh).or_else(|| live.left_with(AGE))
}
