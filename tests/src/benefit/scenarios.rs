//! What is timed: every scenario.

use super::path::Way;
use super::scenario::{Arm, Question, Scenario, Senders, Site, Work};

/// Transfers from which the gateway learns before anything is timed.
const LEARN: u32 = 20;
/// Sizes of one flow on the reference paths.
const ALONE_BYTES: [u64; 5] = [10_000, 30_000, 50_000, 70_000, 100_000];
/// Sizes of the grid.
const GRID_BYTES: [u64; 5] = [30_000, 100_000, 200_000, 1_000_000, 10_000_000];
/// Round trips of the grid in milliseconds.
const GRID_RTT_MS: [u32; 4] = [20, 50, 100, 200];
/// Sizes of the transfers whose first flight is looked at: none is longer than what a receiver offers at first.
const FLIGHT_BYTES: [u64; 3] = [18_000, 30_000, 60_000];
/// Senders that share a path.
const TOGETHER: [u8; 4] = [1, 6, 15, 30];
/// The same where half of them is left alone.
const FAIRNESS: [u8; 6] = [2, 6, 10, 14, 20, 30];

/// Every scenario.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        alone(),
        together(),
        grid("grid-20", 20),
        grid("grid-100", 100),
        fairness("fairness-cubic", Arm::Cubic),
        fairness("fairness-reno", Arm::Reno),
        burst(),
        flights("flight-passive", false),
        flights("flight-active", true),
        quick(),
    ]
}

fn site(case: &str, arm: Arm, path: Way, lane: usize) -> Site {
    let lane = u8::try_from(lane).unwrap_or(u8::MAX);
    Site { case: case.to_owned(), senders: Senders::All(arm), clients: 1, path, lane, learners: 1 }
}

fn alone() -> Scenario {
    let paths = [("S1", 1_600, 52), ("S2", 1_600, 202), ("S3", 45_000, 202)];
    let mut sites = Vec::new();
    for (case, kbit, one_way_ms) in paths {
        for arm in [Arm::Product, Arm::Cubic] {
            sites.push(site(case, arm, Way::reference(kbit, one_way_ms), sites.len()));
        }
    }
    let work = Work::Sizes { bytes: &ALONE_BYTES, rounds: 4 };
    Scenario { name: "alone", question: Question::Alone, sites, learn_bytes: (30_000, 4_000_000), learn: LEARN, work }
}

fn together() -> Scenario {
    let mut sites = Vec::new();
    for senders in TOGETHER {
        for arm in [Arm::Product, Arm::Cubic, Arm::Bbr] {
            let case = format!("{senders} senders");
            let site = site(&case, arm, Way::reference(1_600, 52), sites.len());
            // Thirty transfers of 0.4 s in ten seconds are a little more than one at a time.
            sites.push(Site { clients: senders, learners: 1 + senders / 30, ..site });
        }
    }
    let work = Work::Rounds { bytes: 30_000, rounds: 10, warm: 2, within_ms: 10_000, every_ms: 13_000 };
    let learn_bytes = (30_000, 2_000_000);
    Scenario { name: "together", question: Question::Together, sites, learn_bytes, learn: LEARN, work }
}

fn grid(name: &'static str, mbit: u32) -> Scenario {
    let mut sites = Vec::new();
    for (lane, rtt_ms) in GRID_RTT_MS.into_iter().enumerate() {
        for arm in [Arm::Product, Arm::Cubic, Arm::Static24] {
            // Paths of 100 Mbit/s take turns: the emulator carries about 160 in all.
            let lane = if mbit > 40 { 0 } else { lane };
            let case = format!("{mbit} Mbit/s, {rtt_ms} ms");
            sites.push(site(&case, arm, Way::deep(mbit, rtt_ms), lane));
        }
    }
    let work = Work::Sizes { bytes: &GRID_BYTES, rounds: 2 };
    Scenario { name, question: Question::Grid, sites, learn_bytes: (30_000, 10_000_000), learn: LEARN, work }
}

fn fairness(name: &'static str, other: Arm) -> Scenario {
    let mut sites = Vec::new();
    for senders in FAIRNESS {
        for group in [Senders::Half(other), Senders::All(other)] {
            let case = format!("{senders} senders");
            let site = site(&case, other, Way::reference(1_600, 52), sites.len());
            sites.push(Site { clients: senders, senders: group, learners: senders / 2, ..site });
        }
    }
    let work = Work::Rounds { bytes: 30_000, rounds: 10, warm: 4, within_ms: 100, every_ms: 13_000 };
    let learn_bytes = (30_000, 1_000_000);
    Scenario { name, question: Question::Fairness, sites, learn_bytes, learn: LEARN, work }
}

fn burst() -> Scenario {
    let mut sites = Vec::new();
    for rtt_ms in [40, 100] {
        for arm in [Arm::Product, Arm::Cubic] {
            let case = format!("200 starts, 20 Mbit/s, {rtt_ms} ms");
            let site = site(&case, arm, Way::deep(20, rtt_ms), sites.len());
            sites.push(Site { clients: 200, learners: 2, ..site });
        }
    }
    let work = Work::Rounds { bytes: 30_000, rounds: 3, warm: 0, within_ms: 1, every_ms: 15_000 };
    let learn_bytes = (30_000, 4_000_000);
    Scenario { name: "burst", question: Question::Burst, sites, learn_bytes, learn: LEARN, work }
}

fn flights(name: &'static str, active: bool) -> Scenario {
    // Shares from some ten to a hundred segments, so that starts fill a part of a round trip, all of it, or several.
    let paths = [
        ("S1", Way::reference(1_600, 52)),
        ("5 Mbit/s, 40 ms", Way::deep(5, 40)),
        ("10 Mbit/s, 40 ms", Way::deep(10, 40)),
        ("10 Mbit/s, 100 ms", Way::deep(10, 100)),
        ("20 Mbit/s, 20 ms", Way::deep(20, 20)),
        ("20 Mbit/s, 60 ms", Way::deep(20, 60)),
    ];
    let sites = paths.iter().enumerate().map(|(n, (case, path))| site(case, Arm::Product, *path, n)).collect();
    let work = Work::Flights { bytes: &FLIGHT_BYTES, connections: 1_000, active };
    let learn_bytes = (30_000, 2_000_000);
    Scenario { name, question: Question::FirstFlight, sites, learn_bytes, learn: LEARN, work }
}

/// A few seconds of the whole: whether the harness works.
fn quick() -> Scenario {
    let path = Way { kbit: 20_000, one_way_ms: 10, queue_packets: 40, access_kbit: None, mss: 1_448 };
    let sites = vec![site("quick", Arm::Product, path, 0), site("quick", Arm::Cubic, path, 1)];
    let work = Work::Sizes { bytes: &[10_000, 100_000], rounds: 3 };
    Scenario { name: "quick", question: Question::Alone, sites, learn_bytes: (30_000, 1_000_000), learn: LEARN, work }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_scenario_asks_too_much_of_the_emulator() {
        for scenario in all() {
            let mut lanes = std::collections::BTreeMap::new();
            for site in &scenario.sites {
                let kbit = site.path.access_kbit.unwrap_or(site.path.kbit).min(site.path.kbit);
                let widest: &mut u64 = lanes.entry(site.lane).or_default();
                *widest = (*widest).max(kbit);
            }
            let sum: u64 = lanes.values().sum();
            assert!(sum <= 160_000 && scenario.sites.len() <= 16, "{}: {sum} kbit/s", scenario.name);
        }
    }
}
