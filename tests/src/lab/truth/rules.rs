//! The paper's two rules applied to the kernel's own windows: what a perfect observer would have sampled.

use std::collections::BTreeMap;

use super::record::{CongestionState, FlowId, Limit, Row, Source};

/// Why the kernel's window counted at that moment (`docs/explain/definitions.md`, "Samples").
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// The sender entered fast recovery, or reduced after a mark, from congestion avoidance: its window less one.
    Loss,
    /// A loss-free transfer that the window limited ended, in congestion avoidance.
    End,
    /// The same in slow start: a lower bound, but for rules that read it as the paper does.
    SlowStartEnd,
    /// A loss-free transfer ended that something else limited: a lower bound, never averaged in.
    LowerBound,
}

/// The initial window (RFC 6928). A flight within it shows nothing of the path.
const INITIAL: u32 = 10;

/// One sample of the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelSample {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Whose window.
    pub flow: FlowId,
    /// The window in segments. The kernel keeps whole ones.
    pub segments: f64,
    /// Bytes of a full segment.
    pub mss: u32,
    /// What gave it.
    pub reason: Reason,
    /// Its window was in slow start within the round trip before: what was lost was sent then.
    pub sent_in_slow_start: bool,
}

/// Samples of all flows in `rows` (sorted by time), in order of flow and time. Needs rows that are full
/// ([`Source::is_full`]); those of segments, or `Source::Probe`, make the windows exact to the ACK.
pub fn samples(rows: &[Row]) -> Vec<KernelSample> {
    let mut flows: BTreeMap<FlowId, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        flows.entry(row.flow()).or_default().push(row);
    }
    flows.into_iter().flat_map(|(flow, rows)| of_flow(flow, &rows)).collect()
}

fn of_flow(flow: FlowId, rows: &[&Row]) -> Vec<KernelSample> {
    let mut out = Vec::new();
    // What the counters stood at when the transfer before ended.
    let mut sent_before = 0;
    let mut retransmitted_before = 0;
    for transfer in transfers(rows) {
        let mut lost = false;
        let mut before: Option<Before> = None;
        let mut slow_start_until_ns = 0;
        for row in transfer {
            // A change of state comes between two rows: one acknowledgement may end a reduction and begin the next.
            let is_change = row.source == Source::CongestionState;
            if let Some(state) = row.ca_state.filter(|_| row.source.is_full() || is_change) {
                let entered = before.is_some_and(|b| !b.state.is_reduced()) && state.is_reduced();
                lost |= entered;
                if let Some(b) = before.filter(|b| entered && b.cwnd >= b.ssthresh && state != CongestionState::Loss) {
                    let segments = f64::from(b.cwnd.saturating_sub(1).max(1));
                    out.push(KernelSample {
                        time_ns: row.time_ns,
                        flow,
                        segments,
                        mss: b.mss,
                        reason: Reason::Loss,
                        sent_in_slow_start: row.time_ns.saturating_sub(slow_start_until_ns) < b.srtt_ns,
                    });
                }
            }
            before = Before::after(before, row);
            if before.is_some_and(|b| b.cwnd < b.ssthresh && !b.state.is_reduced()) {
                slow_start_until_ns = row.time_ns;
            }
        }
        let Some(last) = transfer.iter().rev().find(|row| row.source.is_full()) else { continue };
        let (sent, retransmitted) = (last.data_segs_out.unwrap_or(0), last.total_retrans.unwrap_or(0));
        if !lost && retransmitted == retransmitted_before && sent > sent_before {
            out.extend(end_of(flow, transfer));
        }
        (sent_before, retransmitted_before) = (sent, retransmitted);
    }
    out
}

/// What was known just before a row.
#[derive(Clone, Copy)]
struct Before {
    state: CongestionState,
    cwnd: u32,
    ssthresh: u32,
    mss: u32,
    srtt_ns: u64,
}

impl Before {
    fn after(before: Option<Self>, row: &Row) -> Option<Self> {
        match row.source {
            Source::Info | Source::SegmentIn | Source::SegmentOut => {
                let srtt_ns = u64::from(row.srtt_us.unwrap_or(0)) * 1_000;
                Some(Self { state: row.ca_state?, cwnd: row.cwnd?, ssthresh: row.ssthresh?, mss: row.mss?, srtt_ns })
            }
            // Its threshold is not the real one, and its window is that of the state before.
            Source::Probe => before.map(|b| Self { cwnd: row.cwnd.unwrap_or(b.cwnd), ..b }),
            Source::CongestionState => before.zip(row.ca_state).map(|(b, state)| {
                // What ends a reduction leaves the window at its threshold (`tcp_end_cwnd_reduction`).
                let ends =
                    matches!(b.state, CongestionState::Reduced | CongestionState::Recovery) && !state.is_reduced();
                Self { state, cwnd: if ends { b.cwnd.min(b.ssthresh) } else { b.cwnd }, ..b }
            }),
        }
    }
}

impl CongestionState {
    fn is_reduced(self) -> bool {
        matches!(self, Self::Reduced | Self::Recovery | Self::Loss)
    }
}

/// Cuts a flow into transfers: a new one begins with data after everything was acknowledged for a timeout.
fn transfers<'a, 'b>(rows: &'b [&'a Row]) -> Vec<&'b [&'a Row]> {
    let mut cuts = vec![0];
    let mut quiet_since_ns: Option<u64> = None;
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.source.is_full()) {
        let quiet = row.unacked == Some(0) && row.notsent_bytes == Some(0);
        // Linux: the timeout is at least 200 ms above the smoothed round trip.
        let timeout_ns = 200_000_000 + u64::from(row.srtt_us.unwrap_or(0)) * 1_000;
        match quiet_since_ns {
            Some(since_ns) if !quiet => {
                if row.time_ns.saturating_sub(since_ns) > timeout_ns {
                    cuts.push(at);
                }
                quiet_since_ns = None;
            }
            None if quiet => quiet_since_ns = Some(row.time_ns),
            _ => {}
        }
    }
    cuts.push(rows.len());
    cuts.windows(2).filter_map(|pair| rows.get(*pair.first()?..*pair.last()?)).collect()
}

fn end_of(flow: FlowId, transfer: &[&Row]) -> Option<KernelSample> {
    let info: Vec<&Row> = transfer.iter().copied().filter(|row| row.source.is_full()).collect();
    let last = info.last()?;
    let total = last.data_segs_out?;
    let last_sent = info.iter().find(|row| row.data_segs_out == Some(total) && row.notsent_bytes == Some(0))?;
    let round_ns = u64::from(last_sent.srtt_us.unwrap_or(0)) * 1_000;
    let begin_ns = last_sent.time_ns.saturating_sub(round_ns);
    let in_last_round: Vec<&&Row> =
        info.iter().filter(|row| (begin_ns..=last_sent.time_ns).contains(&row.time_ns)).collect();
    let by_window = in_last_round.iter().any(|row| row.in_flight() >= row.cwnd);
    let receiver_us = || in_last_round.iter().filter_map(|row| row.rwnd_limited_us);
    let by_receiver = receiver_us().next() != receiver_us().next_back()
        || in_last_round.iter().any(|row| row.limit == Some(Limit::Receiver));
    // The last acknowledgements of a slow start open the window to twice what was ever in flight: that is no sample.
    let avoidance = last_sent.cwnd? >= last_sent.ssthresh?;
    // What was in the network at most: the path carried that much, whatever the window allowed.
    let in_flight_most = info.iter().filter_map(|row| row.in_flight()).max()?;
    let (reason, segments) = match (by_window && !by_receiver, avoidance) {
        (true, true) => (Reason::End, last.cwnd?),
        (true, false) if in_flight_most > INITIAL => (Reason::SlowStartEnd, last_sent.cwnd?.min(in_flight_most)),
        (true, false) => (Reason::SlowStartEnd, last_sent.cwnd?),
        (false, _) => (Reason::LowerBound, in_flight_most),
    };
    // The last row may be that of the next request.
    let done = info.iter().find(|row| row.data_segs_out == Some(total) && row.unacked == Some(0)).unwrap_or(last);
    Some(KernelSample {
        time_ns: done.time_ns,
        flow,
        segments: f64::from(segments),
        mss: last.mss?,
        reason,
        sent_in_slow_start: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ms: u64, state: CongestionState, cwnd: u32, unacked: u32, sent: u32) -> Row {
        let flow = FlowId { local: "192.0.2.2:80".parse().unwrap(), remote: "198.51.100.1:9".parse().unwrap() };
        Row {
            ca_state: Some(state),
            cwnd: Some(cwnd),
            ssthresh: Some(20),
            mss: Some(1_448),
            unacked: Some(unacked),
            sacked: Some(0),
            lost: Some(0),
            retrans: Some(0),
            total_retrans: Some(0),
            srtt_us: Some(100_000),
            notsent_bytes: Some(0),
            data_segs_out: Some(sent),
            rwnd_limited_us: Some(0),
            ..Row::new(ms * 1_000_000, Source::Info, flow)
        }
    }

    #[test]
    fn a_loss_in_avoidance_gives_one_less_and_ends_give_nothing_after_it() {
        use CongestionState::{Disorder, Open, Recovery};
        let rows = [row(1, Open, 30, 30, 30), row(2, Disorder, 31, 31, 31), row(3, Recovery, 21, 31, 32)];
        let samples = samples(&rows);
        assert_eq!(samples.iter().map(|s| (s.segments, s.reason)).collect::<Vec<_>>(), [(30.0, Reason::Loss)]);
    }

    #[test]
    fn a_reduction_that_begins_where_a_loss_ends_gives_a_sample_of_its_own() {
        use CongestionState::{Loss, Open, Reduced};
        let change = |ms: u64, state| Row {
            ca_state: Some(state),
            ..Row::new(ms * 1_000_000, Source::CongestionState, row(1, Open, 1, 1, 1).flow())
        };
        let low = |row: Row| Row { ssthresh: Some(2), ..row };
        let rows = [
            low(row(1, Loss, 4, 4, 30)),
            change(2, Open),
            change(2, Reduced),
            low(row(2, Reduced, 4, 3, 31)),
            change(3, Open),
            change(3, Reduced),
            low(row(3, Reduced, 2, 2, 32)),
        ];
        let found = samples(&rows);
        assert_eq!(
            found.iter().map(|s| (s.segments, s.reason)).collect::<Vec<_>>(),
            [(3.0, Reason::Loss), (1.0, Reason::Loss)]
        );
    }

    #[test]
    fn an_end_below_the_threshold_is_the_end_of_a_slow_start() {
        use CongestionState::Open;
        let ended = samples(&[row(1, Open, 16, 0, 0), row(2, Open, 16, 16, 16), row(90, Open, 31, 0, 16)]);
        assert_eq!(ended.iter().map(|s| (s.segments, s.reason)).collect::<Vec<_>>(), [(16.0, Reason::SlowStartEnd)]);
    }

    #[test]
    fn what_is_lost_within_a_round_trip_of_slow_start_was_sent_in_it() {
        use CongestionState::{Open, Recovery};
        let lost_after = |ms: u64| {
            let rows = [row(1, Open, 15, 15, 15), row(2, Open, 20, 20, 20), row(2 + ms, Recovery, 14, 20, 21)];
            samples(&rows).first().map(|sample| sample.sent_in_slow_start)
        };
        assert_eq!([lost_after(90), lost_after(110)], [Some(true), Some(false)]);
    }

    #[test]
    fn a_loss_in_slow_start_and_a_timeout_give_nothing() {
        use CongestionState::{Loss, Open, Recovery};
        assert!(samples(&[row(1, Open, 15, 15, 15), row(2, Recovery, 10, 15, 15)]).is_empty());
        assert!(samples(&[row(1, Open, 30, 30, 30), row(2, Loss, 1, 30, 31)]).is_empty());
    }

    #[test]
    fn an_end_in_avoidance_counts_growth_and_an_unfilled_one_is_a_lower_bound() {
        use CongestionState::Open;
        let filled = samples(&[row(1, Open, 25, 0, 0), row(2, Open, 25, 25, 25), row(90, Open, 26, 0, 25)]);
        assert_eq!(filled.iter().map(|s| (s.segments, s.reason)).collect::<Vec<_>>(), [(26.0, Reason::End)]);
        let unfilled = samples(&[row(1, Open, 25, 0, 0), row(2, Open, 25, 9, 9), row(90, Open, 25, 0, 9)]);
        assert_eq!(unfilled.iter().map(|s| s.reason).collect::<Vec<_>>(), [Reason::LowerBound]);
    }

    /// The poll sees the second transfer only when it is on its way; what goes out belongs to it all the same.
    #[test]
    fn a_transfer_begins_with_its_first_segment() {
        use CongestionState::Open;
        let out = |row: Row| Row { source: Source::SegmentOut, notsent_bytes: Some(9_000), ..row };
        let rows = [
            out(row(1, Open, 25, 0, 0)),
            row(2, Open, 25, 25, 25),
            row(90, Open, 26, 0, 25),
            out(row(900, Open, 26, 0, 25)),
            out(row(901, Open, 26, 20, 45)),
            row(905, Open, 26, 26, 51),
            row(990, Open, 27, 0, 51),
        ];
        assert_eq!(samples(&rows).iter().map(|s| s.segments).collect::<Vec<_>>(), [26.0, 27.0]);
    }

    #[test]
    fn a_pause_longer_than_a_timeout_makes_two_transfers() {
        use CongestionState::Open;
        let rows = [
            row(1, Open, 25, 0, 0),
            row(2, Open, 25, 25, 25),
            row(90, Open, 26, 0, 25),
            row(900, Open, 26, 26, 51),
            row(990, Open, 27, 0, 51),
        ];
        assert_eq!(samples(&rows).iter().map(|s| s.segments).collect::<Vec<_>>(), [26.0, 27.0]);
    }
}
