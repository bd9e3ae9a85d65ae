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
/// Another CPU may process the segment before while a row is taken: then the row has the new `delivered` and the old window. The next row
/// must show the growth by both acknowledgements.
pub fn follow(rows: &[Row], first: u32, growth: Growth) -> Followed {
    let mut followed = Followed::default();
    let rows: Vec<&Row> = rows.iter().filter(|row| row.source == Source::SegmentIn).collect();
    let Some(begin) = rows.iter().position(|row| row.cwnd == Some(first)) else {
        followed.difference = Some(format!("no start with {first} segments"));
        return followed;
    };
    let mut possible = vec![GrownWindow::of(Segments(first))];
    let mut waiting = 0;
    // What the last acknowledgement acknowledged, if its row was taken before the window grew; else 0.
    let mut halfway = 0;
    for pair in rows.get(begin..).unwrap_or_default().windows(2) {
        let [row, next] = pair else { break };
        let Some(mut step) = Step::between(row, next) else { break };
        waiting += 1;
        if step.acked == 0 {
            continue;
        }
        let late = std::mem::take(&mut halfway);
        let must_grow = step.cwnd_limited && (waiting == 1 || late > 0);
        let least = late + if must_grow { step.acked } else { 0 };
        step.acked += late;
        let before = std::mem::take(&mut possible);
        possible = step.windows(&before, waiting, least, growth);
        if possible.is_empty() && late == 0 && step.then == step.cwnd {
            halfway = step.acked;
            possible = before;
            continue;
        }
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

    /// Possible windows after it that agree with the reported one. At least `least` of the acknowledged segments moved the window.
    fn windows(&self, before: &[GrownWindow], parts: usize, least: u32, growth: Growth) -> Vec<GrownWindow> {
        let grow = |window: GrownWindow, acked: u32| {
            let kernels = GrownWindow::of(Segments((window.whole + acked).min(self.ssthresh)));
            growth.grow(window, Segments(self.ssthresh), Segments(acked)).unwrap_or(kernels)
        };
        let mut after = if least == 0 { before.to_vec() } else { Vec::new() };
        let first = if parts == 1 { self.acked } else { least.max(1) };
        for acked in first..=self.acked {
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::lab::truth::FlowId;

    const FIRST: u32 = 2;

    /// Rows of a slow start: each pair is a window and the segments delivered by then.
    fn rows(states: &[(u32, u32)]) -> Vec<Row> {
        let end = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let flow = FlowId { local: end(80), remote: end(50_000) };
        states
            .iter()
            .map(|&(cwnd, delivered)| Row {
                ca_state: Some(CongestionState::Open),
                cwnd: Some(cwnd),
                ssthresh: Some(100),
                delivered: Some(delivered),
                cwnd_limited: Some(true),
                ..Row::new(0, Source::SegmentIn, flow)
            })
            .collect()
    }

    #[test]
    fn a_row_may_have_the_new_delivered_and_the_old_window() {
        let followed = follow(&rows(&[(2, 0), (3, 1), (3, 2), (5, 3), (6, 4)]), FIRST, Growth::Standard);
        assert_eq!(followed, Followed { acknowledgements: 4, difference: None });
    }

    #[test]
    fn an_acknowledgement_that_never_moves_the_window_is_a_difference() {
        let followed = follow(&rows(&[(2, 0), (3, 1), (3, 2), (4, 3), (5, 4)]), FIRST, Growth::Standard);
        assert_eq!(followed.acknowledgements, 1);
        assert!(followed.difference.is_some_and(|sentence| sentence.contains("2 acknowledged by 2 at 3 of 100")));
        let stays = follow(&rows(&[(2, 0), (2, 1), (2, 2)]), FIRST, Growth::Standard);
        assert!(stays.difference.is_some());
    }
}
