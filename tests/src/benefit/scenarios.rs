//! What is timed: every scenario.

use super::path::{Rough, Way};
use super::scenario::{Arm, Arrivals, Event, PAIR, PAIR_LONG, Question, Scenario, Senders, Site, Work};

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
/// The same where half of them are of another kind: with five groups of senders each, as many as the emulator carries.
const FAIRNESS: [u8; 3] = [6, 14, 30];

/// The arms of one scenario beside the product and CUBIC, which are in every one, with the name of this part of its family.
type Part = (&'static str, &'static [Arm]);

/// One flow on the reference paths: as many arms as the emulator carries on three paths.
const ALONE_PARTS: [Part; 2] = [
    ("16-24-32", &[Arm::Fixed(16), Arm::Fixed(24), Arm::Fixed(32)]),
    ("48-64-bbr", &[Arm::Fixed(48), Arm::Fixed(64), Arm::Bbr]),
];
/// The grid: on four paths.
const GRID_PARTS: [Part; 3] = [
    ("16-24", &[Arm::Fixed(16), Arm::Fixed(24)]),
    ("32-48", &[Arm::Fixed(32), Arm::Fixed(48)]),
    ("64-bbr", &[Arm::Fixed(64), Arm::Bbr]),
];
/// Several senders on one path.
const TOGETHER_PARTS: [Part; 2] = [("16-32", &[Arm::Fixed(16), Arm::Fixed(32)]), ("bbr", &[Arm::Bbr])];
/// Many starts at once: all paths are full at the same time.
const BURST_PARTS: [Part; 3] = [("16", &[Arm::Fixed(16)]), ("32", &[Arm::Fixed(32)]), ("bbr", &[Arm::Bbr])];
/// Who takes the product's place beside others.
const FAIRNESS_ARMS: [Arm; 4] = [Arm::Product, Arm::Fixed(16), Arm::Fixed(32), Arm::Bbr];

/// Paths that a crowd shares, how much of each it fills, and how many clients it has.
const CROWDS: [(&str, &str, Way, Arrivals, u8); 5] = [
    ("crowd-10-61", "10 Mbit/s, 50 ms, 61 %", CROWDED_10, Arrivals::Open(61), OPEN_CLIENTS),
    ("crowd-10-81", "10 Mbit/s, 50 ms, 81 %", CROWDED_10, Arrivals::Open(81), OPEN_CLIENTS),
    ("crowd-10-closed", "10 Mbit/s, 50 ms, nine clients", CROWDED_10, Arrivals::Closed(800), 9),
    ("crowd-1.6-75", "1.6 Mbit/s, 104 ms, 75 %", Way::reference(1_600, 52), Arrivals::Open(75), OPEN_CLIENTS),
    ("crowd-20-78", "20 Mbit/s, 80 ms, 78 %", Way::new(20_000, 40, 100), Arrivals::Open(78), OPEN_CLIENTS),
];
const CROWDED_10: Way = Way::new(10_000, 25, 40);
/// Addresses that ask in turns where arrivals are open.
const OPEN_CLIENTS: u8 = 20;

/// What paths do to one flow besides queueing, and their words.
const ROUGH: [(&str, Rough); 4] = [
    ("jitter of 20 %", Rough::Jitter(20)),
    ("bunches of 10 ms", Rough::Bunched(10)),
    ("policer of 60 packets", Rough::Policed(60)),
    ("1 % random loss", Rough::Lossy(10)),
];

/// What the product's host runs by default.
const CUBIC: &str = Arm::Cubic.congestion_control();

/// Every scenario, in the order in which a campaign runs them.
pub(super) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(ALONE_PARTS.map(alone));
    all.push(alone((PAIR, &[])));
    for (family, mbit) in [("grid-20", 20), ("grid-100", 100)] {
        all.extend(GRID_PARTS.map(|part| grid(family, part, mbit)));
        all.extend([grid(family, (PAIR, &[]), mbit), long(family, mbit)]);
    }
    all.extend(TOGETHER_PARTS.map(together));
    all.extend(BURST_PARTS.map(burst));
    all.extend(CROWDS.map(crowd));
    all.extend([("crowd-10-half-cubic", Arm::Cubic), ("crowd-10-half-bbr", Arm::Bbr)].map(|of| crowd_of_halves(of, 1)));
    all.extend(
        [("crowd-1.6-half-cubic", Arm::Cubic), ("crowd-1.6-half-bbr", Arm::Bbr)].map(|of| crowd_of_halves(of, 3)),
    );
    all.extend([
        fairness("fairness-cubic", Arm::Cubic),
        fairness("fairness-reno", Arm::Reno),
        rough((PAIR, &[])),
        rough(("bbr", &[Arm::Bbr])),
        on_bbr(),
        rough_on_bbr(),
        together_on_bbr(),
        crowd_on_bbr(),
        flights("flight-passive", false),
        flights("flight-active", true),
        quick(),
    ]);
    all.extend(harm());
    all
}

fn site(case: &str, arm: Arm, path: Way, lane: usize) -> Site {
    let lane = u8::try_from(lane).unwrap_or(u8::MAX);
    Site { case: case.to_owned(), senders: Senders::All(arm), clients: 1, path, lane, learners: 1, beside: None }
}

/// On a host with CUBIC, where the gateway learns from transfers of 30 KB to `most` bytes.
fn scenario(
    (family, part): (&'static str, &'static str),
    question: Question,
    sites: Vec<Site>,
    most: u64,
    work: Work,
) -> Scenario {
    let learn_bytes = (30_000, most);
    Scenario { family, part, question, congestion_control: CUBIC, sites, learn_bytes, learn: LEARN, work }
}

/// The arms of a part.
fn arms((_, others): Part) -> impl Iterator<Item = Arm> {
    [Arm::Product, Arm::Cubic].into_iter().chain(others.iter().copied())
}

fn alone(part: Part) -> Scenario {
    let paths = [("S1", 1_600, 52), ("S2", 1_600, 202), ("S3", 45_000, 202)];
    let mut sites = Vec::new();
    for (case, kbit, one_way_ms) in paths {
        for arm in arms(part) {
            sites.push(site(case, arm, Way::reference(kbit, one_way_ms), sites.len()));
        }
    }
    scenario(("alone", part.0), Question::Alone, sites, 2_000_000, Work::Sizes { bytes: &ALONE_BYTES, rounds: 3 })
}

fn together(part: Part) -> Scenario {
    let mut sites = Vec::new();
    for senders in TOGETHER {
        for arm in arms(part) {
            let case = format!("{senders} senders");
            let site = site(&case, arm, Way::reference(1_600, 52), sites.len());
            // Thirty transfers of 0.4 s in ten seconds are a little more than one at a time.
            sites.push(Site { clients: senders, learners: 1 + senders / 30, ..site });
        }
    }
    scenario(
        ("together", part.0),
        Question::Together,
        sites,
        2_000_000,
        Work::Rounds { bytes: 30_000, rounds: 8, warm: 2, within_ms: 10_000, every_ms: 13_000 },
    )
}

fn grid(family: &'static str, part: Part, mbit: u32) -> Scenario {
    let mut sites = Vec::new();
    for (lane, rtt_ms) in GRID_RTT_MS.into_iter().enumerate() {
        for (turn, arm) in arms(part).enumerate() {
            // Paths of 100 Mbit/s take turns, and of 20 two of a round trip: the emulator carries about 160 in all.
            let lane = if mbit > 40 { 0 } else { 2 * lane + turn % 2 };
            let case = format!("{mbit} Mbit/s, {rtt_ms} ms");
            sites.push(site(&case, arm, Way::deep(mbit, rtt_ms), lane));
        }
    }
    scenario((family, part.0), Question::Grid, sites, 10_000_000, Work::Sizes { bytes: &GRID_BYTES, rounds: 2 })
}

/// The grid's longest transfers alone, more of them.
fn long(family: &'static str, mbit: u32) -> Scenario {
    let work = Work::Sizes { bytes: &[10_000_000], rounds: 4 };
    Scenario { work, ..grid(family, (PAIR_LONG, &[]), mbit) }
}

fn fairness(family: &'static str, other: Arm) -> Scenario {
    let mut sites = Vec::new();
    for senders in FAIRNESS {
        let halves = FAIRNESS_ARMS.map(|arm| Senders::Half(arm, other));
        for group in halves.into_iter().chain([Senders::All(other)]) {
            let case = format!("{senders} senders");
            let site = site(&case, other, Way::reference(1_600, 52), sites.len());
            sites.push(Site { clients: senders, senders: group, learners: senders / 2, ..site });
        }
    }
    scenario(
        (family, ""),
        Question::Fairness,
        sites,
        1_000_000,
        Work::Rounds { bytes: 30_000, rounds: 8, warm: 4, within_ms: 100, every_ms: 13_000 },
    )
}

fn burst(part: Part) -> Scenario {
    let mut sites = Vec::new();
    for rtt_ms in [40, 100] {
        for arm in arms(part) {
            let case = format!("200 starts, 20 Mbit/s, {rtt_ms} ms");
            let site = site(&case, arm, Way::deep(20, rtt_ms), sites.len());
            sites.push(Site { clients: 200, learners: 2, ..site });
        }
    }
    scenario(
        ("burst", part.0),
        Question::Burst,
        sites,
        4_000_000,
        Work::Rounds { bytes: 30_000, rounds: 3, warm: 0, within_ms: 1, every_ms: 15_000 },
    )
}

fn crowd((family, case, path, arrivals, clients): (&'static str, &str, Way, Arrivals, u8)) -> Scenario {
    let arms = [Arm::Product, Arm::Cubic, Arm::Fixed(16)];
    let sites = (0..).zip(arms).map(|(n, arm)| Site { clients, ..site(case, arm, path, n) }).collect();
    scenario((family, ""), Question::Crowd, sites, 2_000_000, Work::Crowd { arrivals, warm_s: 30, seconds: 300 })
}

/// A crowd of which half is on advice, and beside it an equal crowd without advice.
fn crowd_of_halves((family, other): (&'static str, Arm), like: usize) -> Scenario {
    let (_, case, path, arrivals, clients) = CROWDS[like];
    let case = &format!("{case}, half and half");
    let groups = [Senders::Half(Arm::Product, other), Senders::All(other)];
    let sites = (0..).zip(groups).map(|(n, senders)| Site { senders, clients, ..site(case, other, path, n) }).collect();
    Scenario { family, sites, ..crowd((family, case, path, arrivals, clients)) }
}

/// One flow on paths that deliver unevenly, police or lose.
fn rough(part: Part) -> Scenario {
    let mut sites = Vec::new();
    for (what, rough) in ROUGH {
        for arm in arms(part) {
            let path = Way { rough: Some(rough), ..Way::new(20_000, 25, 100) };
            sites.push(site(&format!("20 Mbit/s, 50 ms, {what}"), arm, path, sites.len() % 4));
        }
    }
    scenario(
        ("rough", part.0),
        Question::Rough,
        sites,
        2_000_000,
        Work::Sizes { bytes: &[30_000, 100_000, 1_000_000], rounds: 6 },
    )
}

/// One flow of a host on BBR, beside plain BBR.
fn on_bbr() -> Scenario {
    let paths = [
        ("20 Mbit/s, 50 ms", Way::deep(20, 50)),
        ("100 Mbit/s, 100 ms", Way::deep(100, 100)),
        ("45 Mbit/s, 404 ms", Way::reference(45_000, 202)),
        ("1.6 Mbit/s, 104 ms", Way::reference(1_600, 52)),
    ];
    let of_path = |(case, path): (&'static str, Way)| [Arm::Product, Arm::Bbr].map(|arm| (case, arm, path));
    let sites = (0..).zip(paths.into_iter().flat_map(of_path));
    Scenario {
        congestion_control: Arm::Bbr.congestion_control(),
        ..scenario(
            ("bbr-alone", ""),
            Question::OnBbr,
            sites.map(|(n, (case, arm, path))| site(case, arm, path, if n < 4 { 0 } else { n })).collect(),
            4_000_000,
            Work::Sizes { bytes: &[30_000, 100_000, 1_000_000], rounds: 6 },
        )
    }
}

/// The same on paths that deliver unevenly, police or lose.
fn rough_on_bbr() -> Scenario {
    let mut scenario = rough(("", &[]));
    let plain = |site: Site| Site { senders: Senders::All(Arm::Bbr), ..site };
    for site in scenario.sites.iter_mut().filter(|site| site.senders == Senders::All(Arm::Cubic)) {
        *site = plain(site.clone());
    }
    Scenario {
        family: "bbr-rough",
        question: Question::OnBbr,
        congestion_control: Arm::Bbr.congestion_control(),
        ..scenario
    }
}

/// Several senders of hosts on BBR on one path.
fn together_on_bbr() -> Scenario {
    let scenario = together(("", &[Arm::Bbr]));
    let sites = scenario.sites.iter().filter(|site| site.senders != Senders::All(Arm::Cubic)).cloned().collect();
    let congestion_control = Arm::Bbr.congestion_control();
    Scenario { family: "bbr-together", question: Question::OnBbr, congestion_control, sites, ..scenario }
}

/// A crowd of hosts on BBR.
fn crowd_on_bbr() -> Scenario {
    let (_, case, path, arrivals, clients) = CROWDS[1];
    let scenario = crowd(("bbr-crowd-10-81", case, path, arrivals, clients));
    let sites =
        (0..).zip([Arm::Product, Arm::Bbr]).map(|(n, arm)| Site { clients, ..site(case, arm, path, n) }).collect();
    Scenario { congestion_control: Arm::Bbr.congestion_control(), sites, ..scenario }
}

fn flights(family: &'static str, active: bool) -> Scenario {
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
    let work = Work::Flights { bytes: &FLIGHT_BYTES, connections: 400, active };
    scenario((family, ""), Question::FirstFlight, sites, 2_000_000, work)
}

/// Sizes of lone transfers where advice might harm, from those that fit into the first window on.
const HARM_BYTES: [u64; 5] = [10_000, 30_000, 100_000, 300_000, 1_000_000];
/// Rounds of those: three seeds have 30 pairs.
const HARM_ROUNDS: u32 = 10;
/// Random losses in percent, the part's name, and in thousandths.
const LOSSES: [(&str, u32); 3] = [("0.3", 3), ("1", 10), ("3", 30)];
/// Transfers from which the gateway learns there: most of them on advice.
const HARM_LEARN: u32 = 40;
/// Rates of two customers of one network in Mbit/s, with the part's name.
const CUSTOMERS: [(&str, u32, u32); 3] = [("50-4", 50, 4), ("50-6", 50, 6), ("100-16", 100, 16)];
/// Families, parts, and rates in Mbit/s before and after a change.
const CHANGES: [([&str; 3], &str, u32, u32); 4] = [
    (["fall", "reno-fall", "bbr-fall"], "20-4", 20, 4),
    (["fall", "reno-fall", "bbr-fall"], "20-8", 20, 8),
    (["fall", "reno-fall", "bbr-fall"], "80-20", 80, 20),
    (["rise", "reno-rise", "bbr-rise"], "4-20", 4, 20),
];

/// Where advice might harm, each on hosts with CUBIC, Reno and BBR.
fn harm() -> Vec<Scenario> {
    let on_each = |families: [&'static str; 3], scenario: &Scenario| {
        let hosts = [Arm::Cubic, Arm::RenoFrom(10), Arm::Bbr];
        let on = |(family, host): (&'static str, Arm)| {
            let mut sites = scenario.sites.clone();
            for site in sites.iter_mut().filter(|site| site.senders == Senders::All(Arm::Cubic)) {
                site.senders = Senders::All(host);
            }
            Scenario { family, sites, congestion_control: host.congestion_control(), ..scenario.clone() }
        };
        families.into_iter().zip(hosts).map(on).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    for loss in LOSSES {
        all.extend(on_each(["lossy", "reno-lossy", "bbr-lossy"], &lossy(loss)));
    }
    for customers in CUSTOMERS {
        all.extend(on_each(["customers", "reno-customers", "bbr-customers"], &self::customers(customers)));
    }
    for (families, part, before, after) in CHANGES {
        all.extend(on_each(families, &changing(part, before, after)));
    }
    all.extend(on_each(["after-burst", "reno-after-burst", "bbr-after-burst"], &after_burst()));
    all.extend(on_each(["policed", "reno-policed", "bbr-policed"], &policed()));
    // Families stay together, whatever their parts are.
    all.sort_by_key(|scenario| scenario.family);
    all
}

fn harm_with(part: &'static str, sites: Vec<Site>, work: Work) -> Scenario {
    let learn_bytes = (10_000, 1_000_000);
    Scenario { learn_bytes, learn: HARM_LEARN, ..scenario(("", part), Question::Harm, sites, 1_000_000, work) }
}

/// Random loss without a queue, as on wireless links.
fn lossy((part, thousandths): (&'static str, u32)) -> Scenario {
    let path = Way { rough: Some(Rough::Lossy(thousandths)), ..Way::new(20_000, 25, 100) };
    let site = |(lane, arm)| site(&format!("20 Mbit/s, 50 ms, loss of {part} %"), arm, path, lane);
    let sites = arms(("", &[])).enumerate().map(site).collect();
    harm_with(part, sites, Work::Sizes { bytes: &HARM_BYTES, rounds: HARM_ROUNDS })
}

/// Two customers of one /24, of different speed. Those of the same speed take turns.
fn customers((part, fast, slow): (&'static str, u32, u32)) -> Scenario {
    let mut sites = Vec::new();
    for arm in arms(("", &[])) {
        let first = sites.len();
        for (lane, (mbit, other)) in [(fast, slow), (slow, fast)].into_iter().enumerate() {
            let beside = (lane > 0).then_some(first);
            let case = format!("{mbit} Mbit/s, 40 ms, beside one of {other}");
            sites.push(Site { beside, ..site(&case, arm, Way::deep(mbit, 40), lane) });
        }
    }
    harm_with(part, sites, Work::Sizes { bytes: &HARM_BYTES[1..], rounds: HARM_ROUNDS })
}

/// A path that becomes slower or faster after the gateway learnt.
fn changing(part: &'static str, before: u32, after: u32) -> Scenario {
    let site = |(lane, arm)| site(&format!("{before} to {after} Mbit/s, 40 ms"), arm, Way::deep(before, 40), lane);
    let sites = arms(("", &[])).enumerate().map(site).collect();
    let event = Event::Rate(u64::from(after) * 1_000);
    harm_with(part, sites, Work::After { event, bytes: &HARM_BYTES[..3], seconds: 240 })
}

/// Many starts at once, and then one at a time.
fn after_burst() -> Scenario {
    let site = |(lane, arm)| {
        let site = site("20 Mbit/s, 40 ms, after 200 starts", arm, Way::deep(20, 40), lane);
        Site { clients: 200, learners: 2, ..site }
    };
    let sites = arms(("", &[])).enumerate().map(site).collect();
    let bytes = &[10_000, 30_000, 100_000, 1_000_000];
    harm_with("", sites, Work::After { event: Event::Burst(30_000), bytes, seconds: 150 })
}

fn policed() -> Scenario {
    let mut sites = Vec::new();
    for packets in [60, 20] {
        for arm in arms(("", &[])) {
            let path = Way { rough: Some(Rough::Policed(packets)), ..Way::new(20_000, 25, 100) };
            let case = format!("20 Mbit/s, 50 ms, policer of {packets} packets");
            sites.push(site(&case, arm, path, sites.len()));
        }
    }
    harm_with("", sites, Work::Sizes { bytes: &HARM_BYTES[1..], rounds: HARM_ROUNDS })
}

/// A few seconds of the whole: whether the harness works.
fn quick() -> Scenario {
    let path = Way { queue_packets: 40, ..Way::deep(20, 20) };
    let sites = vec![site("quick", Arm::Product, path, 0), site("quick", Arm::Cubic, path, 1)];
    let work = Work::Sizes { bytes: &[10_000, 100_000], rounds: 3 };
    scenario(("quick", ""), Question::Alone, sites, 1_000_000, work)
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
                // Transfers of rounds do not take turns.
                let at_once = matches!(scenario.work, Work::Rounds { .. } | Work::Crowd { .. } | Work::After { .. });
                *widest = if at_once { *widest + kbit } else { (*widest).max(kbit) };
            }
            let sum: u64 = lanes.values().sum();
            assert!(sum <= 160_000 && scenario.sites.len() <= 16, "{}: {sum} kbit/s", scenario.name());
        }
    }

    #[test]
    fn the_product_and_cubic_are_in_every_comparison_and_each_arm_is_once() {
        let mut families: std::collections::BTreeMap<&str, Vec<Arm>> = std::collections::BTreeMap::new();
        let mut names = Vec::new();
        for scenario in all() {
            names.push(scenario.name());
            if matches!(
                scenario.question,
                Question::Fairness | Question::FirstFlight | Question::Crowd | Question::OnBbr | Question::Harm
            ) {
                continue;
            }
            for case in scenario.sites.iter().map(|site| &site.case) {
                let mut here = scenario.sites.iter().filter(|site| site.case == *case).map(|site| site.senders);
                let has = |arm| here.clone().filter(|senders| *senders == Senders::All(arm)).count() == 1;
                assert!(has(Arm::Product) && has(Arm::Cubic) && here.next().is_some(), "{}: {case}", scenario.name());
            }
            let others = families.entry(scenario.family).or_default();
            let first = scenario.sites.first().unwrap();
            let here = scenario.sites.iter().filter(|site| site.case == first.case);
            others.extend(here.map(|site| site.senders.to(0)).filter(|arm| !matches!(arm, Arm::Product | Arm::Cubic)));
        }
        let fixed = [16, 24, 32, 48, 64].map(Arm::Fixed);
        for family in ["alone", "grid-20", "grid-100"] {
            let mut arms = families[family].clone();
            arms.sort_unstable();
            let mut wanted = fixed.to_vec();
            wanted.push(Arm::Bbr);
            wanted.sort_unstable();
            assert_eq!(arms, wanted, "{family}");
        }
        for family in ["together", "burst"] {
            assert_eq!(families[family], [Arm::Fixed(16), Arm::Fixed(32), Arm::Bbr], "{family}");
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "names are unique: {names:?}");
    }
}
