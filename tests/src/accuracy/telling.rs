//! Whether anyone outside could tell a flow's congestion control, by the kernel's own account; and where not, why not.

use super::truth::{FlowTruth, Kind};
use crate::lab::truth::{CongestionState, Limit, Row, Source};

/// From this many segments on, Reno and CUBIC back off to different windows: 2 and 3.
const TELLING_WINDOW: u32 = 5;

/// Why a flow does not show its congestion control.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Silent {
    /// No loss or mark, and its receiver held it at most acknowledgements.
    NeverLostReceiver,
    /// The same, and at most its application, or one of both, had no more.
    NeverLostApplication,
    /// No loss or mark, though at most acknowledgements there was more to send.
    NeverLost,
    /// Timeouts alone: after them each begins with one segment.
    OnlyTimeouts,
    /// Each loss or mark met a window below five segments.
    SmallWindows,
    /// After each one there was nothing more to send, or room in the receiver's window, before the next.
    NothingMore,
}

impl Silent {
    /// All, in the order of the page.
    pub const ALL: [Self; 6] = [
        Self::NeverLostReceiver,
        Self::NeverLostApplication,
        Self::NeverLost,
        Self::OnlyTimeouts,
        Self::SmallWindows,
        Self::NothingMore,
    ];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeverLostReceiver => "no loss or mark; its receiver held it",
            Self::NeverLostApplication => "no loss or mark; its application held it",
            Self::NeverLost => "no loss or mark; it had more to send",
            Self::OnlyTimeouts => "timeouts alone",
            Self::SmallWindows => "fewer than five segments at every loss and mark",
            Self::NothingMore => "nothing more to send after any of them, or no room at its receiver",
        }
    }
}

impl FlowTruth {
    /// Whether an observer can tell its congestion control: a loss or mark met a window from which Reno and CUBIC back off to
    /// different ones, and in the open state after it the sender had more to send. Without that, Reno and CUBIC hardly
    /// differ: the answer says what was lacking.
    pub fn silent(&self) -> Option<Silent> {
        let events = self.events();
        if events.is_empty() {
            let came_in = |row: &&Row| row.source == Source::SegmentIn && row.unacked > Some(0);
            let (mut all, mut receiver, mut dry) = (0_usize, 0_usize, 0_usize);
            for row in self.rows.iter().filter(came_in) {
                all += 1;
                if row.limit == Some(Limit::Receiver) {
                    receiver += 1;
                } else if row.notsent_bytes <= Some(1) {
                    dry += 1;
                }
            }
            return Some(if receiver * 2 >= all {
                Silent::NeverLostReceiver
            } else if (receiver + dry) * 2 >= all {
                Silent::NeverLostApplication
            } else {
                Silent::NeverLost
            });
        }
        let mut lacks = Silent::OnlyTimeouts;
        for (index, (at_ns, _)) in events.iter().enumerate().filter(|(_, (_, kind))| *kind != Kind::Timeout) {
            if self.window_before(*at_ns) < Some(TELLING_WINDOW) {
                lacks = lacks.max(Silent::SmallWindows);
                continue;
            }
            lacks = Silent::NothingMore;
            let until_ns = events.get(index + 1).map_or(u64::MAX, |(next_ns, _)| *next_ns);
            let from = self.rows.partition_point(|row| row.time_ns <= *at_ns);
            let mut after = self.rows.get(from..).unwrap_or_default().iter().take_while(|row| row.time_ns < until_ns);
            let tried = |row: &Row| {
                row.ca_state == Some(CongestionState::Open)
                    && row.source == Source::SegmentIn
                    && row.notsent_bytes > Some(1)
                    && row.limit != Some(Limit::Receiver)
            };
            if after.any(tried) {
                return None;
            }
        }
        Some(lacks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::truth::FlowId;

    fn row(ms: u64, cwnd: u32, notsent: u32, limit: Limit) -> Row {
        let flow = FlowId { local: "192.0.2.2:80".parse().unwrap(), remote: "198.51.100.1:9".parse().unwrap() };
        Row {
            cwnd: Some(cwnd),
            unacked: Some(1),
            notsent_bytes: Some(notsent),
            ca_state: Some(CongestionState::Open),
            limit: Some(limit),
            ..Row::new(ms * 1_000_000, Source::SegmentIn, flow)
        }
    }

    fn flow(rows: Vec<Row>, states: &[(u64, CongestionState)]) -> FlowTruth {
        let states = states.iter().map(|(ms, state)| (ms * 1_000_000, *state)).collect();
        let mut truth = FlowTruth::default();
        (truth.rows, truth.states) = (rows, states);
        truth
    }

    #[test]
    fn what_a_flow_without_a_loss_lacked_is_what_held_it() {
        let busy = |ms, notsent| row(ms, 10, notsent, Limit::Busy);
        let full = |ms| row(ms, 10, 9_000, Limit::Receiver);
        assert_eq!(flow(vec![full(1), busy(2, 9_000)], &[]).silent(), Some(Silent::NeverLostReceiver));
        assert_eq!(flow(vec![busy(1, 0), full(2), busy(3, 9_000)], &[]).silent(), Some(Silent::NeverLostApplication));
        assert_eq!(flow(vec![busy(1, 0), busy(2, 9_000), busy(3, 9_000)], &[]).silent(), Some(Silent::NeverLost));
    }

    #[test]
    fn a_loss_tells_where_the_window_was_large_enough_and_more_was_sent_after_it() {
        let lost = [(15, CongestionState::Recovery), (19, CongestionState::Open)];
        let after =
            |cwnd, notsent, limit| flow(vec![row(10, cwnd, 9_000, Limit::Busy), row(20, 3, notsent, limit)], &lost);
        assert_eq!(after(5, 9_000, Limit::Busy).silent(), None);
        assert_eq!(after(4, 9_000, Limit::Busy).silent(), Some(Silent::SmallWindows));
        assert_eq!(after(5, 0, Limit::Busy).silent(), Some(Silent::NothingMore));
        assert_eq!(after(5, 9_000, Limit::Receiver).silent(), Some(Silent::NothingMore));
        let timeout = flow(vec![row(10, 9, 9_000, Limit::Busy)], &[(15, CongestionState::Loss)]);
        assert_eq!(timeout.silent(), Some(Silent::OnlyTimeouts));
    }
}
