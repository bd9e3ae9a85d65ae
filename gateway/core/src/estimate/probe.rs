//! The average with probing end samples, so that advice does not ratchet down on its own output.
//!
//! A loss-free transfer that starts at the advised window ends at about the share that gave it: the shift of the start
//! model arranges that. Averaged in as it is, it never raises the share, while every loss lowers it. So the end of such a
//! transfer counts as one segment above the share in force, within limits that keep the rule from running ahead of what
//! the path was seen to carry.

use spand_proto::estimate::RuleKind;
use spand_proto::units::Window;

use super::{Admitted, Known, Rule, remotes};
use crate::types::{SampleReason, WindowSample};
use crate::window::record::WindowSlice;

/// `max(end window, Wc + 1 segment)` for a transfer that
/// - started on our advice,
/// - was limited by its window and lost nothing ([`SampleReason::End`]),
/// - was long enough to fill the window it started with (`F >= W'`),
///
/// at most once per mean round-trip time and network, and never above the largest window in the window that was carried
/// without loss, plus one segment. All other samples count as measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProbeRule;

impl Rule for ProbeRule {
    fn kind(&self) -> RuleKind {
        RuleKind::Probe
    }

    fn admit(&self, sample: &WindowSample, known: &Known) -> Admitted {
        let probe = probe(sample, known).filter(|probe| *probe > sample.window);
        Admitted { window: probe.unwrap_or(sample.window), raised: probe.is_some() }
    }

    fn reads_slow_start_ends(&self) -> bool {
        true
    }

    fn share(&self, slice: WindowSlice<'_>) -> Option<Window> {
        SpandRule.share(slice)
    }
}

/// The value that a sample may be raised to; `None` if it does not probe.
fn probe(sample: &WindowSample, known: &Known) -> Option<Window> {
    let share = known.share?;
    let step = sample.mss.0 as f64;
    if sample.reason != SampleReason::End || !sample.advised || !fills_its_start(sample, share) {
        return None;
    }
    let rtt = known.rtt?;
    if known.raised.is_some_and(|raised| sample.at.since(raised) < rtt) {
        return None;
    }
    let carried = known.carried.map_or(sample.window.bytes(), |carried| carried.bytes().max(sample.window.bytes()));
    Window::from_bytes((share.bytes() + step).min(carried + step))
}

/// Whether the transfer was at least as long as the window `W'` it started with. `W'` itself is not in the sample, but
/// bounded: it is at most the share, and a loss-free transfer of `F < W'` segments ends at `W' + F / W'`, which is above
/// `F + 1`.
fn fills_its_start(sample: &WindowSample, share: Window) -> bool {
    let end_less_growth = sample.window.bytes() - sample.mss.0 as f64;
    sample.transfer.0 as f64 >= share.bytes().min(end_less_growth)
}

// The paper's rule (TCP/SPAND section 5.2): the plain average of all samples of the window.

/// Averages samples as they were measured. One addition to the paper: no remote address gives more than half. Lower bounds
/// are no windows that were reached, so they do not count (docs/explain/decisions/estimate.md).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SpandRule;

impl Rule for SpandRule {
    fn kind(&self) -> RuleKind {
        RuleKind::Spand
    }

    fn admit(&self, sample: &WindowSample, _known: &Known) -> Admitted {
        Admitted { window: sample.window, raised: false }
    }

    fn reads_slow_start_ends(&self) -> bool {
        true
    }

    fn share(&self, slice: WindowSlice<'_>) -> Option<Window> {
        remotes::average(slice)
    }
}
