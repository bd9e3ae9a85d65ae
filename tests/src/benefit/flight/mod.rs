//! First flights held against the plan: as many segments before the first acknowledgement as the agent says, evenly spaced
//! after the tenth.

mod connect;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) use self::connect::connect;
use super::stage::Recorded;
use super::timeline::Timeline;
use crate::campaign::statistics::quantile;
use crate::lab::truth::FlowId;

/// Segments that every host sends at once.
const UNPACED: usize = 10;
/// Packets closer than this part of the planned distance are a burst.
const BURST_PART: f64 = 0.25;
/// Most packets of a burst after the tenth.
const BURST_MOST: usize = 2;
/// How far the median distance may be from the planned one.
const SPACING_OFF_MOST: f64 = 0.1;
/// Flights kept that were not as planned.
const EXAMPLES_MOST: usize = 20;

/// A connection and the agent's report of it.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// The connection.
    flow: FlowId,
    /// Its transfer.
    bytes: u64,
    /// Payload of a full segment.
    mss: u64,
    /// The agent's window before the connection and after it.
    window: (u32, u32),
    /// Its rate in bytes per second, where it paces.
    rate: Option<u32>,
}

/// What became of them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Flights {
    /// Connections that were seen whole.
    pub connections: u32,
    /// Those among them whose plan changed meanwhile: they count for nothing else.
    pub moved: u32,
    /// As many segments before the first acknowledgement as planned.
    pub exact: u32,
    /// Those among them whose last segment, with no second one of the window beside it, waited for the first acknowledgement.
    #[serde(default)]
    pub held: u32,
    /// Segments more (or fewer) than planned: how often.
    pub off: BTreeMap<i64, u32>,
    /// Flights long enough for a spacing.
    pub paced: u32,
    /// Those whose median distance is the planned one.
    pub spaced: u32,
    /// Those without a burst after the tenth segment.
    pub smooth: u32,
    /// As planned in everything.
    pub right: u32,
    /// Planned windows: how often.
    pub windows: BTreeMap<u32, u32>,
    /// Some that were not right, in words.
    pub examples: Vec<String>,
}

impl Flights {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.moved += other.moved;
        self.exact += other.exact;
        self.held += other.held;
        self.paced += other.paced;
        self.spaced += other.spaced;
        self.smooth += other.smooth;
        self.right += other.right;
        for (off, times) in &other.off {
            *self.off.entry(*off).or_default() += times;
        }
        for (window, times) in &other.windows {
            *self.windows.entry(*window).or_default() += times;
        }
        let room = EXAMPLES_MOST.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.iter().take(room).cloned());
    }

    fn count(&mut self, planned: &Planned, timeline: &Timeline) {
        self.connections += 1;
        let (before, after) = planned.window;
        if before != after {
            self.moved += 1;
            return;
        }
        *self.windows.entry(before).or_default() += 1;
        let segments = u64::from(before).min(planned.bytes.div_ceil(planned.mss));
        let Some(flight) = timeline.first_flight() else { return };
        let sent = u64::try_from(flight.len()).unwrap_or(u64::MAX);
        let off = sent.cast_signed().saturating_sub(segments.cast_signed());
        let handshake_ns = timeline.handshake_ns().unwrap_or(0) as f64;
        // Without a rate nothing is promised, and evenly over a round trip is what is missing.
        let unpaced_ns = handshake_ns / f64::from(before.saturating_sub(10).max(1));
        let planned_ns = planned.rate.map_or(unpaced_ns, |rate| planned.mss as f64 * 1e9 / f64::from(rate.max(1)));
        // What by its rate leaves after a round trip is no part of what leaves before the first acknowledgement.
        let off = if off < 0 && leaves_after(handshake_ns, flight.len(), planned_ns) { 0 } else { off };
        let held = off == -1 && waits_for_its_pair(flight.len(), segments, planned.bytes.div_ceil(planned.mss));
        self.held += u32::from(held);
        let off = if held { 0 } else { off };
        *self.off.entry(off).or_default() += 1;
        self.exact += u32::from(off == 0);
        let (mut spaced, mut smooth) = (true, true);
        if let Some(paced) = flight.get(UNPACED - 1..).filter(|paced| paced.len() > 2) {
            (spaced, smooth) = spacing(paced, planned_ns);
            self.paced += 1;
            self.spaced += u32::from(spaced);
            self.smooth += u32::from(smooth);
        }
        if off == 0 && spaced && smooth {
            self.right += 1;
        } else if self.examples.len() < EXAMPLES_MOST {
            let times: Vec<String> = flight.iter().map(|at| format!("{:.1}", (at - flight[0]) as f64 / 1e6)).collect();
            self.examples.push(format!(
                "{} bytes, planned {segments}, {:.2} ms apart, round trip {:.1} ms: {}",
                planned.bytes,
                planned_ns / 1e6,
                handshake_ns / 1e6,
                times.join(" ")
            ));
        }
    }
}

/// Whether the segment behind the first `sent` ones is planned for later than a round trip after the first. Linux lets pairs
/// leave, each when both its segments are due (`tcp_tso_autosize`: at least two).
fn leaves_after(round_trip_ns: f64, sent: usize, planned_ns: f64) -> bool {
    let Some(paced) = sent.checked_sub(UNPACED) else { return false };
    (paced / 2 * 2 + 2) as f64 * planned_ns >= round_trip_ns
}

/// Whether the segment behind the first `sent` ones is the last of its window, alone where pairs leave, and more of the transfer
/// follows: Linux keeps it for the acknowledgement that lets a second one go with it (`tcp_tso_should_defer`).
fn waits_for_its_pair(sent: usize, window: u64, transfer: u64) -> bool {
    sent.checked_sub(UNPACED).is_some_and(|paced| paced.is_multiple_of(2)) && window < transfer
}

/// Whether packets lie as far apart as planned, and without bursts.
fn spacing(at_ns: &[u64], planned_ns: f64) -> (bool, bool) {
    let distances = |over: usize| {
        at_ns.iter().zip(at_ns.iter().skip(over)).map(move |(a, b)| b.saturating_sub(*a) as f64 / over as f64)
    };
    let mut run = 1;
    let mut longest = 1;
    // The first of these packets is the tenth, which nothing delays.
    for gap in distances(1).skip(1) {
        run = if gap < planned_ns * BURST_PART { run + 1 } else { 1 };
        longest = longest.max(run);
    }
    // Pairs are allowed: every second packet is looked at.
    let median = quantile(distances(2), 0.5).unwrap_or(planned_ns);
    ((median / planned_ns - 1.0).abs() <= SPACING_OFF_MOST, longest <= BURST_MOST)
}

/// Holds every connection against its plan.
pub(super) fn judge(planned: &[Planned], recorded: &Recorded) -> Flights {
    let mut flights = Flights::default();
    for one in planned {
        let timeline = recorded.timelines.get(&one.flow).and_then(|connections| connections.first());
        if let Some(timeline) = timeline.filter(|timeline| timeline.transfer(0, one.bytes).is_some()) {
            flights.count(one, timeline);
        }
    }
    flights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_rate_holds_back_for_a_round_trip_may_be_missing() {
        // 41 segments, 1.33 ms apart after the tenth: the last is due with a 42nd, after 42.6 ms.
        assert!(leaves_after(40.1e6, 40, 1.33e6));
        assert!(!leaves_after(40.1e6, 38, 1.33e6) && !leaves_after(43e6, 40, 1.33e6));
        assert!(!leaves_after(0.0, 9, 1e6), "the first ten are not held back");
    }

    #[test]
    fn an_odd_last_segment_waits_where_more_follows() {
        assert!(waits_for_its_pair(34, 35, 42));
        assert!(!waits_for_its_pair(34, 35, 35), "the transfer's last waits for nothing");
        assert!(!waits_for_its_pair(33, 34, 42) && !waits_for_its_pair(8, 9, 42), "it has its pair, or is not paced");
    }

    #[test]
    fn spacing_is_held_against_the_plan() {
        let even: Vec<u64> = (0..20).map(|n| n * 1_000_000).collect();
        assert_eq!(spacing(&even, 1e6), (true, true));
        assert_eq!(spacing(&even, 1.2e6), (false, true));
        // Pairs are as far apart as planned on average.
        let pairs: Vec<u64> = (0..20).map(|n| n / 2 * 2_000_000).collect();
        assert_eq!(spacing(&pairs, 1e6), (true, true));
        let mut burst = even;
        for at in burst.iter_mut().skip(5).take(3) {
            *at = 5_000_000;
        }
        assert_eq!(spacing(&burst, 1e6), (true, false));
    }
}
