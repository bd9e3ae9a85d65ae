//! The kernel's account of each flow, made ready to be asked: what was the window at this moment, what held the sender, when
//! did it see congestion?

use std::collections::BTreeMap;

use strum::IntoStaticStr;

use crate::lab::truth::{CongestionState, FlowId, Limit, Row, Source};

/// The threshold of a sender that never left slow start (`TCP_INFINITE_SSTHRESH`).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// BBR's pace while it starts, by its delivery rate: 2 / ln 2, less the hundredth that it stays below (`bbr_rate_bytes_per_sec`).
const BBR_START_PACE: f64 = 739.0 / 256.0 * 0.99;

/// What held a sender, by the kernel's own clocks and flags.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "snake_case")]
pub enum Held {
    /// Its congestion window was full.
    Window,
    /// The receiver's window was.
    Receiver,
    /// The application had nothing more, or the send buffer took no more.
    Application,
    /// Its pacing: unsent data, a window with room.
    Pacing,
}

impl Held {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A kind of congestion event.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Entry into fast recovery.
    Recovery,
    /// A retransmission timeout.
    Timeout,
    /// A reduction after a mark, or after a tail loss probe that repaired a loss.
    Reduction,
}

impl Kind {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One flow.
#[derive(Debug, Default)]
pub struct FlowTruth {
    /// A row for every segment, by time.
    pub(super) rows: Vec<Row>,
    /// States entered, by time.
    pub(super) states: Vec<(u64, CongestionState)>,
    /// Rows of `TCP_INFO`, by time.
    infos: Vec<Row>,
    /// It began before the view. Nothing before that is compared.
    pub(super) began_before: bool,
    /// Retransmissions before the view.
    retransmissions_before: u32,
    /// Nagle's algorithm holds what is less than a segment.
    pub(super) nagle: bool,
}

/// All flows of `rows`, which are sorted by time, from `since_ns` on.
pub fn flows(rows: &[Row], since_ns: u64) -> BTreeMap<FlowId, FlowTruth> {
    let mut flows: BTreeMap<FlowId, FlowTruth> = BTreeMap::new();
    let (before, rows) = rows.split_at(rows.partition_point(|row| row.time_ns < since_ns));
    for row in before {
        let flow = flows.entry(row.flow()).or_default();
        flow.began_before = true;
        flow.retransmissions_before = flow.retransmissions_before.max(row.total_retrans.unwrap_or(0));
    }
    for row in rows {
        let flow = flows.entry(row.flow()).or_default();
        match row.source {
            Source::SegmentIn | Source::SegmentOut => flow.rows.push(*row),
            Source::Info => flow.infos.push(*row),
            Source::CongestionState => flow.states.extend(row.ca_state.map(|state| (row.time_ns, state))),
            Source::Probe => {}
        }
    }
    // A connection that never sent is no sender.
    flows.retain(|_, flow| !flow.rows.is_empty() && !flow.infos.is_empty());
    flows
}

impl FlowTruth {
    /// First and last segment.
    pub fn span_ns(&self) -> (u64, u64) {
        let first = self.rows.first().map_or(0, |row| row.time_ns);
        (first, self.rows.last().map_or(first, |row| row.time_ns))
    }

    /// The state at `time_ns`, with data outstanding: the first row after it, whose values are those before its segment.
    /// `None` where nothing is outstanding, or a timer changed the state in between.
    pub fn at(&self, time_ns: u64) -> Option<&Row> {
        let row = self.rows.get(self.rows.partition_point(|row| row.time_ns < time_ns))?;
        let next_state = self.states.get(self.states.partition_point(|(at_ns, _)| *at_ns < time_ns));
        let moved = next_state.is_some_and(|(at_ns, _)| *at_ns <= row.time_ns);
        (row.unacked? > 0 && !moved).then_some(row)
    }

    /// What held the sender in the round trip before `time_ns`. A full window beats an application without data, as in the
    /// kernel (`tcp_cwnd_validate`); the receiver counts where it was the limit at half of the segments or more.
    pub fn held(&self, time_ns: u64) -> Option<Held> {
        let round_ns = u64::from(self.at(time_ns)?.srtt_us?) * 1_000;
        let from = self.rows.partition_point(|row| row.time_ns < time_ns.saturating_sub(round_ns));
        // The next row shows how things stood at the moment; where little is sent it may be the only one to do so.
        let to = self.rows.partition_point(|row| row.time_ns < time_ns) + 1;
        let round = self.rows.get(from..to).filter(|round| !round.is_empty())?;
        let count = |what: fn(&Row) -> bool| round.iter().filter(|row| what(row)).count();
        // What came in found everything sent that could be.
        // The kernel also calls it full where the rest of it is too small for a packet worth sending (`tcp_tso_should_defer`).
        let full = |row: &Row| {
            let flagged = row.cwnd_limited == Some(true) && row.notsent_bytes > Some(1);
            row.in_flight() >= row.cwnd || (row.source == Source::SegmentIn && flagged)
        };
        if count(|row| row.limit == Some(Limit::Receiver)) * 2 >= round.len() {
            Some(Held::Receiver)
        } else if count(full) > 0 {
            Some(Held::Window)
        } else if count(|row| row.limit == Some(Limit::Receiver)) > 0 {
            Some(Held::Receiver)
        } else if round.iter().any(|row| row.source == Source::SegmentIn && self.is_dry(row)) {
            Some(Held::Application)
        } else if count(|row| row.source == Source::SegmentIn) > 0 {
            Some(Held::Pacing)
        } else {
            // Only timers were at work.
            None
        }
    }

    /// Whether the application left nothing that may be sent now.
    fn is_dry(&self, row: &Row) -> bool {
        let kept = if self.nagle { row.mss.unwrap_or(0).saturating_sub(1) } else { 0 };
        row.notsent_bytes.is_some_and(|unsent| unsent <= kept)
    }

    /// Congestion events by time.
    pub fn events(&self) -> Vec<(u64, Kind)> {
        let mut events = Vec::new();
        let mut before = CongestionState::Open;
        for (at_ns, state) in &self.states {
            let kind = match state {
                CongestionState::Recovery => Some(Kind::Recovery),
                // What an MTU that drops makes the kernel cut up and send again is none (`tcp_simple_retransmit`).
                CongestionState::Loss => (!self.cut_up(*at_ns)).then_some(Kind::Timeout),
                CongestionState::Reduced => Some(Kind::Reduction),
                CongestionState::Open | CongestionState::Disorder => None,
            };
            // Each timeout is reported, consecutive ones too.
            if *state != before || *state == CongestionState::Loss {
                events.extend(kind.map(|kind| (*at_ns, kind)));
            }
            before = *state;
        }
        events
    }

    /// Whether segments became smaller at `time_ns`.
    fn cut_up(&self, time_ns: u64) -> bool {
        let next = self.rows.partition_point(|row| row.time_ns < time_ns);
        let mss = |at: usize| self.rows.get(at)?.mss;
        next.checked_sub(1).and_then(mss).zip(mss(next)).is_some_and(|(before, after)| after < before)
    }

    /// BBR's share in segments at `time_ns`: the highest delivery rate of the last ten round trips that the application did
    /// not limit, times the smallest round trip. `TCP_INFO` tells a rate every few milliseconds and so misses the highest of a short
    /// transfer; while BBR starts, the pace at every segment tells that too.
    pub fn share(&self, time_ns: u64) -> Option<f64> {
        let to = self.infos.partition_point(|row| row.time_ns <= time_ns);
        let last = self.infos.get(..to)?.last()?;
        let (min_rtt_us, mss) = (last.min_rtt_us?, last.mss?);
        let since_ns = time_ns.saturating_sub(u64::from(last.srtt_us?) * 10_000);
        let from = self.infos.partition_point(|row| row.time_ns < since_ns);
        let recent = self.infos.get(from..to)?.iter().filter(|row| row.app_limited != Some(true));
        let rate = recent.filter_map(|row| row.delivery_rate).max().filter(|rate| *rate > 0)?;
        let rate = (rate as f64).max(self.rate_of_start(time_ns).unwrap_or_default());
        Some(rate * f64::from(min_rtt_us) / 1e6 / f64::from(mss.max(1)))
    }

    /// The highest delivery rate so far of a BBR that still starts, in bytes per second: it paces at a fixed multiple of it, or at what the
    /// handshake's round trip gave while that is more, and sets its threshold as it ends its start (`bbr_check_drain`).
    fn rate_of_start(&self, time_ns: u64) -> Option<f64> {
        let rows = self.rows.get(..self.rows.partition_point(|row| row.time_ns <= time_ns))?;
        let (first, last) = (rows.first()?.pacing_rate?, rows.last()?);
        let pace = last.pacing_rate.filter(|pace| *pace > first && last.ssthresh == Some(INFINITE_SSTHRESH))?;
        Some(pace as f64 / BBR_START_PACE)
    }

    /// Mean of the smoothed round trips, one for every segment that came in, in microseconds.
    pub fn mean_srtt_us(&self) -> Option<f64> {
        let times: Vec<f64> = self
            .rows
            .iter()
            .filter(|row| row.source == Source::SegmentIn)
            .filter_map(|row| row.srtt_us.map(f64::from))
            .collect();
        (times.len() >= 5).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }

    /// Smallest round trip in microseconds; `None` where it may be one of those out of view.
    pub fn min_rtt_us(&self) -> Option<u32> {
        if self.began_before {
            return None;
        }
        self.infos.iter().filter_map(|row| row.min_rtt_us).min()
    }

    /// Payload of a full segment.
    pub fn mss(&self) -> Option<u32> {
        self.rows.last()?.mss
    }

    /// Retransmissions in view. The socket may close after its last `tcp_info`, and its FIN be sent again after that: each segment
    /// tells the count too.
    pub fn retransmissions(&self) -> Option<u32> {
        let all = self.rows.iter().chain(&self.infos).filter_map(|row| row.total_retrans).max();
        all.map(|all| all.saturating_sub(self.retransmissions_before))
    }

    /// The window just before `time_ns`.
    pub fn window_before(&self, time_ns: u64) -> Option<u32> {
        let to = self.rows.partition_point(|row| row.time_ns < time_ns);
        self.rows.get(..to)?.last()?.cwnd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ms: u64, source: Source, cwnd: u32, unacked: u32, notsent: u32) -> Row {
        let flow = FlowId { local: "192.0.2.2:80".parse().unwrap(), remote: "198.51.100.1:9".parse().unwrap() };
        Row {
            cwnd: Some(cwnd),
            unacked: Some(unacked),
            sacked: Some(0),
            lost: Some(0),
            retrans: Some(0),
            notsent_bytes: Some(notsent),
            srtt_us: Some(10_000),
            limit: Some(Limit::Busy),
            ..Row::new(ms * 1_000_000, source, flow)
        }
    }

    #[test]
    fn a_fin_sent_again_after_the_socket_closed_is_counted() {
        let counted = |ms, source, total| Row { total_retrans: Some(total), ..row(ms, source, 10, 1, 0) };
        let flow = FlowTruth {
            rows: vec![counted(10, Source::SegmentIn, 3), counted(300, Source::SegmentOut, 4)],
            infos: vec![counted(50, Source::Info, 3)],
            ..FlowTruth::default()
        };
        assert_eq!(flow.retransmissions(), Some(4));
    }

    #[test]
    fn a_view_that_begins_late_knows_nothing_of_what_was_before() {
        let counted = |ms, source, total| Row { total_retrans: Some(total), ..row(ms, source, 10, 1, 0) };
        let rows = [counted(10, Source::SegmentIn, 3), counted(20, Source::Info, 3), counted(30, Source::SegmentIn, 5)];
        let all =
            |since_ms: u64| flows(&[rows[0], rows[1], rows[2], counted(40, Source::Info, 5)], since_ms * 1_000_000);
        let whole = all(0).into_values().next().unwrap();
        assert_eq!(
            (whole.retransmissions(), whole.span_ns(), whole.began_before),
            (Some(5), (10_000_000, 30_000_000), false)
        );
        let late = all(25).into_values().next().unwrap();
        assert_eq!(
            (late.retransmissions(), late.span_ns(), late.began_before),
            (Some(2), (30_000_000, 30_000_000), true)
        );
        assert!(all(50).is_empty());
    }

    #[test]
    fn the_pace_of_a_start_tells_of_a_rate_between_two_readings() {
        let paced = |ms, pacing_rate, ssthresh| Row {
            pacing_rate: Some(pacing_rate),
            ssthresh: Some(ssthresh),
            ..row(ms, Source::SegmentIn, 10, 1, 0)
        };
        let info = Row {
            min_rtt_us: Some(10_000),
            mss: Some(1_000),
            delivery_rate: Some(800_000),
            app_limited: Some(false),
            ..row(20, Source::Info, 10, 1, 0)
        };
        let share = |then: Row| {
            let rows = vec![paced(1, 2_000_000, INFINITE_SSTHRESH), then];
            FlowTruth { rows, infos: vec![info], ..FlowTruth::default() }.share(30_000_000).map(f64::round)
        };
        assert_eq!(share(paced(21, 2_857_852, INFINITE_SSTHRESH)), Some(10.0), "a million bytes a second");
        assert_eq!(share(paced(21, 2_000_000, INFINITE_SSTHRESH)), Some(8.0), "the first pace is the handshake's");
        assert_eq!(share(paced(21, 2_857_852, 14)), Some(8.0), "its start is over");
    }

    #[test]
    fn the_state_at_a_moment_is_that_before_the_next_segment() {
        let rows = vec![row(10, Source::SegmentIn, 10, 10, 5_000), row(20, Source::SegmentIn, 11, 11, 5_000)];
        let mut flow = FlowTruth { rows, ..FlowTruth::default() };
        assert_eq!(flow.at(11_000_000).and_then(|row| row.cwnd), Some(11));
        assert_eq!(flow.held(20_000_000), Some(Held::Window));
        // A timeout fires before it.
        flow.states = vec![(15_000_000, CongestionState::Loss)];
        assert!(flow.at(11_000_000).is_none());
        assert_eq!(flow.events(), [(15_000_000, Kind::Timeout)]);
        let sized = |mut row: Row, mss| {
            row.mss = Some(mss);
            row
        };
        flow.rows = vec![
            sized(row(10, Source::SegmentIn, 10, 10, 5_000), 1_448),
            sized(row(20, Source::SegmentIn, 11, 11, 5_000), 1_228),
        ];
        assert_eq!(flow.events(), [], "an MTU that drops");
        flow.rows.clear();
        flow.states.push((35_000_000, CongestionState::Loss));
        flow.states.push((45_000_000, CongestionState::Open));
        assert_eq!(flow.events(), [(15_000_000, Kind::Timeout), (35_000_000, Kind::Timeout)]);
    }

    #[test]
    fn what_limits_a_sender_is_distinguished() {
        let mut flow = FlowTruth::default();
        let held = |rows: Vec<Row>, flow: &mut FlowTruth| {
            flow.rows = rows;
            flow.held(20_000_000)
        };
        let end = row(20, Source::SegmentOut, 20, 3, 9_000);
        let receiver = Row { limit: Some(Limit::Receiver), ..row(15, Source::SegmentIn, 20, 3, 9_000) };
        assert_eq!(held(vec![receiver, end], &mut flow), Some(Held::Receiver));
        assert_eq!(held(vec![row(15, Source::SegmentIn, 20, 3, 0), end], &mut flow), Some(Held::Application));
        assert_eq!(held(vec![row(15, Source::SegmentIn, 20, 3, 9_000), end], &mut flow), Some(Held::Pacing));
        let part = Row { mss: Some(1_000), ..row(15, Source::SegmentIn, 20, 3, 999) };
        assert_eq!(held(vec![part, end], &mut flow), Some(Held::Pacing));
        flow.nagle = true;
        assert_eq!(held(vec![part, end], &mut flow), Some(Held::Application));
        assert_eq!(held(vec![row(15, Source::SegmentIn, 20, 20, 0), end], &mut flow), Some(Held::Window));
    }
}
