//! Whether the kernel's windows follow the contract's function of growth.

use spand_proto::growth::{GrownWindow, Growth};
use spand_proto::units::Segments;

use crate::lab::truth::{CongestionState, Row, Source};

/// What came of following a connection's slow start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Followed {
    /// Acknowledgements that moved the window just as the function says.
    pub acknowledgements: usize,
    /// The first that did not, where one did not: nothing after it was followed.
    pub difference: Option<String>,
}

/// Follows a connection that started with `first` segments from acknowledgement to acknowledgement, up to the end of its slow start. A
/// segment that came while the socket was in use is processed with the next: then each way to divide what they acknowledged
/// is possible, and the window may have stayed at some of them, since what used the socket may have found the window not full.
pub fn follow(rows: &[Row], first: u32, growth: Growth) -> Followed {
    let mut followed = Followed::default();
    let rows: Vec<&Row> = rows.iter().filter(|row| row.source == Source::SegmentIn).collect();
    let Some(begin) = rows.iter().position(|row| row.cwnd == Some(first)) else {
        followed.difference = Some(format!("no start with {first} segments"));
        return followed;
    };
    let mut possible = vec![GrownWindow::of(Segments(first))];
    let mut waiting = 0;
    for pair in rows.get(begin..).unwrap_or_default().windows(2) {
        let [row, next] = pair else { break };
        let Some(step) = Step::between(row, next) else { break };
        waiting += 1;
        if step.acked == 0 {
            continue;
        }
        let before = std::mem::take(&mut possible);
        possible = step.windows(&before, waiting, growth);
        if possible.is_empty() {
            let Step { acked, cwnd, ssthresh, then, .. } = step;
            followed.difference = Some(format!(
                "{growth:?}: {acked} acknowledged by {waiting} at {cwnd} of {ssthresh}, {before:?}: {then}"
            ));
            break;
        }
        followed.acknowledgements += waiting;
        waiting = 0;
    }
    followed
}

/// From one acknowledgement in slow start to the next.
struct Step {
    acked: u32,
    cwnd: u32,
    ssthresh: u32,
    then: u32,
    cwnd_limited: bool,
}

impl Step {
    /// `None` where slow start ends: at the threshold, with a loss, or since the kernel's `HyStart` set a threshold.
    fn between(row: &Row, next: &Row) -> Option<Self> {
        let (cwnd, ssthresh) = (row.cwnd?, row.ssthresh?);
        let goes_on = cwnd < ssthresh && next.ssthresh == row.ssthresh && next.ca_state == Some(CongestionState::Open);
        goes_on.then_some(Self {
            acked: next.delivered?.wrapping_sub(row.delivered?),
            cwnd,
            ssthresh,
            then: next.cwnd?,
            cwnd_limited: row.cwnd_limited == Some(true),
        })
    }

    /// Those of the windows possible after it that the kernel may have had, with the window that it reports.
    fn windows(&self, before: &[GrownWindow], parts: usize, growth: Growth) -> Vec<GrownWindow> {
        let grow = |window: GrownWindow, acked: u32| {
            let kernels = GrownWindow::of(Segments((window.whole + acked).min(self.ssthresh)));
            growth.grow(window, Segments(self.ssthresh), Segments(acked)).unwrap_or(kernels)
        };
        let one = parts == 1;
        let mut after = if one && self.cwnd_limited { Vec::new() } else { before.to_vec() };
        for acked in if one { self.acked } else { 1 }..=self.acked {
            after.extend(divided(before, acked, parts, &grow));
        }
        after.retain(|window| window.whole == self.then);
        after.sort_unstable();
        after.dedup();
        after
    }
}

/// The windows after `acked` segments in up to `parts` acknowledgements.
fn divided(
    from: &[GrownWindow],
    acked: u32,
    parts: usize,
    grow: &impl Fn(GrownWindow, u32) -> GrownWindow,
) -> Vec<GrownWindow> {
    let mut all: Vec<GrownWindow> = from.iter().map(|window| grow(*window, acked)).collect();
    if parts > 1 {
        for first in 1..acked {
            let after: Vec<GrownWindow> = from.iter().map(|window| grow(*window, first)).collect();
            all.extend(divided(&after, acked - first, parts - 1, grow));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}
