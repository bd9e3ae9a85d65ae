//! Whether anyone outside could tell a flow's congestion control, by the kernel's own account.

use super::truth::{FlowTruth, Kind};
use crate::lab::truth::{CongestionState, Limit, Source};

/// From this many segments on, Reno and CUBIC back off to different windows: 2 and 3.
const TELLING_WINDOW: u32 = 5;

impl FlowTruth {
    /// Whether an observer can tell its congestion control: a loss or mark met a window from which Reno and CUBIC back off to
    /// different ones, and in the open state after it the sender had more to send. Without that, Reno and CUBIC hardly
    /// differ.
    pub fn is_telling(&self) -> bool {
        let events = self.events();
        let tells = |(index, (at_ns, kind)): (usize, &(u64, Kind))| {
            // After a timeout each begins with one segment.
            if *kind == Kind::Timeout || self.window_before(*at_ns) < Some(TELLING_WINDOW) {
                return false;
            }
            let until_ns = events.get(index + 1).map_or(u64::MAX, |(next_ns, _)| *next_ns);
            let from = self.rows.partition_point(|row| row.time_ns <= *at_ns);
            let mut after = self.rows.get(from..).unwrap_or_default().iter().take_while(|row| row.time_ns < until_ns);
            after.any(|row| {
                row.ca_state == Some(CongestionState::Open)
                    && row.source == Source::SegmentIn
                    && row.notsent_bytes > Some(1)
                    && row.limit != Some(Limit::Receiver)
            })
        };
        events.iter().enumerate().any(tells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::truth::{FlowId, Row};

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
    fn a_loss_tells_where_the_window_was_large_enough_and_more_was_sent_after_it() {
        let lost = [(15, CongestionState::Recovery), (19, CongestionState::Open)];
        let after =
            |cwnd, notsent, limit| flow(vec![row(10, cwnd, 9_000, Limit::Busy), row(20, 3, notsent, limit)], &lost);
        assert!(after(5, 9_000, Limit::Busy).is_telling());
        let silent = [
            after(4, 9_000, Limit::Busy),
            after(5, 0, Limit::Busy),
            after(5, 9_000, Limit::Receiver),
            flow(vec![row(10, 9, 9_000, Limit::Busy)], &[(15, CongestionState::Loss)]),
            flow(vec![row(1, 10, 9_000, Limit::Busy), row(2, 10, 9_000, Limit::Busy)], &[]),
        ];
        assert!(silent.iter().all(|flow| !flow.is_telling()));
    }
}
