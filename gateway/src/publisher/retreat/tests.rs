//! When advice is taken back, when not, and how it returns.

use spand_core::networks::traffic::NetworkTraffic;
use spand_core::types::{LimitCounts, SampleRate};
use spand_proto::estimate::{Confidence, RuleKind};
use spand_proto::no_estimate::Outcomes;
use spand_proto::opening::Opening;
use spand_proto::start::{StartPolicy, StartRequest, TransferSize, start};

use super::*;

const MSS: f64 = 1_000.0;

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::default().after(Micros::from_millis(1_000_000 + ms))
}

pub(super) fn view(share_segments: f64) -> NetworkView {
    let network = "192.0.2.0/24".parse().unwrap();
    let estimate = Estimate {
        network,
        share: Window::from_bytes(share_segments * MSS).unwrap(),
        mss: Bytes(1_000),
        rtt_min: None,
        rtt_mean: Some(Micros::from_millis(50)),
        samples: 10,
        connections: 5,
        loss_connections: 3,
        loss_window: None,
        is_lower_bound: false,
        opening: None,
        buffer: None,
        bdp: None,
        losses: 4,
        refreshed: at(0),
        confidence: Confidence::new(0.8),
        rule: RuleKind::Robust,
        mark: None,
    };
    NetworkView {
        network,
        estimate: Some(estimate),
        why_not: None,
        rtt_min: None,
        rtt_mean: None,
        samples: 10,
        lower_bounds: 0,
        connections: 5,
        losses: 4,
        limits: LimitCounts::default(),
        parallel: 1,
        parallel_at_samples: 1,
        parallel_here: 0,
        reported: None,
        followed: SampleRate::ALL,
        outcomes: Outcomes::default(),
        traffic: NetworkTraffic::default(),
        needed: (3, 2),
        compared: Vec::new(),
        addresses: Vec::new(),
        newest: None,
    }
}

struct Rig {
    retreat: Retreat,
    published: NetworkView,
    port: u16,
}

impl Rig {
    /// A network with a share of 40 segments, and this many advised starts without loss.
    fn new(clean: u32) -> Self {
        let mut retreat = Retreat::default();
        let published = retreat.hold(view(40.0));
        let mut rig = Self { retreat, published, port: 0 };
        (0..clean).for_each(|_| assert_eq!(rig.flight(false, 0, 0), Verdict::Clean));
        rig
    }

    /// The same after all but one of the losses that it takes.
    fn losing() -> Self {
        let mut rig = Self::new(0);
        rig.nearly(0);
        rig
    }

    /// One loss short of a retreat.
    fn nearly(&mut self, ms: u64) {
        (0..RUN - 1).for_each(|_| assert_eq!(self.flight(true, ms, ms), Verdict::Random));
    }

    fn of_port(&self, lost: bool, began: u64) -> FirstFlight {
        let ends = [([10, 0, 0, 1], 443).into(), ([192, 0, 2, 1], self.port).into()];
        FirstFlight {
            ends,
            lost,
            began: Some(at(began)),
            advised: Segments(20),
            acknowledged: Bytes(100_000),
            application_of: None,
        }
    }

    /// A transfer of a new connection that started at `began` is reported at `ms`.
    fn flight(&mut self, lost: bool, began: u64, ms: u64) -> Verdict {
        self.port = self.port.wrapping_add(1);
        let verdict = self.retreat.report(&self.of_port(lost, began), at(ms));
        self.published = self.retreat.renew(&self.published);
        verdict
    }

    fn share(&self) -> Option<f64> {
        self.published.estimate.as_ref().map(|estimate| estimate.share.bytes() / MSS)
    }

    /// Window and threshold that a host starts with.
    fn start(&self) -> (Option<u32>, Option<u32>) {
        let request = StartRequest {
            estimate: self.published.estimate.as_ref(),
            now: at(0),
            size: TransferSize::Unknown,
            mss: Bytes(1_000),
            snd_wnd: None,
            handshake_rtt: None,
            initial_window: DEFAULT_INITIAL_WINDOW,
            budget: None,
        };
        let start = start(&request, &StartPolicy::CAREFUL).ok();
        (start.as_ref().map(|start| start.cwnd.0), start.map(|start| start.ssthresh.0))
    }

    fn pass(&mut self, ms: u64) -> bool {
        let passed = self.retreat.pass(at(ms));
        self.published = self.retreat.renew(&self.published);
        passed
    }
}

#[test]
fn a_retreat_leads_to_the_default_window_and_a_second_one_within_a_minute_keeps_it_there_for_a_minute() {
    let mut rig = Rig::losing();
    assert_eq!(rig.flight(true, 9_900, 10_000), Verdict::Halved);
    assert_eq!(rig.start(), (Some(10), Some(25)));
    assert_eq!(rig.flight(true, 10_900, 11_500), Verdict::Known, "it started before the retreat arrived");
    rig.nearly(15_000);
    assert_eq!(rig.flight(true, 20_000, 20_100), Verdict::Withdrawn);
    assert_eq!(rig.start(), (Some(10), Some(25)), "never without a threshold");
    assert_eq!(rig.flight(true, 20_050, 20_200), Verdict::Known);
    assert_eq!(rig.flight(false, 21_500, 21_600), Verdict::Clean);
    assert_eq!(rig.share(), Some(10.0), "it does not grow");
    assert_eq!(rig.retreat.due(), Some(at(80_100)));
    assert!(!rig.pass(80_099) && rig.pass(80_100));
    assert_eq!(rig.flight(false, 81_000, 81_500), Verdict::Clean);
    assert_eq!((rig.share(), rig.start()), (Some(11.0), (Some(11), Some(25))), "and then it does");
    rig.nearly(82_000);
    assert_eq!(rig.flight(true, 82_000, 82_100), Verdict::Withdrawn, "the return is a trial");
}

#[test]
fn losses_of_starts_no_larger_than_any_hosts_take_no_advice_back() {
    for (advised, share) in [(10, 40.0), (11, 10.0)] {
        let mut rig = Rig::new(0);
        for n in 0..RUN {
            rig.port += 1;
            let flight = FirstFlight { advised: Segments(advised), ..rig.of_port(true, 0) };
            let verdict = rig.retreat.report(&flight, at(n as u64));
            assert_eq!(verdict == Verdict::Random, advised == 10 || n + 1 < RUN, "{advised}, {n}: {verdict:?}");
        }
        rig.published = rig.retreat.renew(&rig.published);
        assert_eq!(rig.share(), Some(share));
    }
}

#[test]
fn what_is_held_back_is_no_share_without_losses_though_the_tap_saw_none() {
    let mut rig = Rig::losing();
    assert_eq!(rig.flight(true, 9_900, 10_000), Verdict::Halved);
    for (seen, published) in [(0, 1), (4, 4)] {
        let own = view(40.0);
        let estimate = own.estimate.clone().map(|estimate| Estimate { losses: seen, ..estimate });
        let held = rig.retreat.hold(NetworkView { estimate, ..own });
        assert_eq!(held.estimate.map(|estimate| estimate.losses), Some(published));
    }
}

#[test]
fn a_share_that_is_held_back_has_no_opening() {
    let mut rig = Rig::losing();
    assert_eq!(rig.flight(true, 9_900, 10_000), Verdict::Halved);
    let own = view(40.0);
    let opening = Opening { rule: RuleKind::Liss, threshold: Window::from_bytes(30.0 * MSS).unwrap(), losses: None };
    let estimate = own.estimate.clone().map(|estimate| Estimate { opening: Some(opening), ..estimate });
    let held = rig.retreat.hold(NetworkView { estimate, ..own });
    assert_eq!(held.estimate.map(|estimate| estimate.opening), Some(None), "hosts would start above what is left");
}

#[test]
fn two_retreats_more_than_a_minute_apart_let_the_share_grow_at_once() {
    let mut rig = Rig::losing();
    assert_eq!(rig.flight(true, 0, 100), Verdict::Halved);
    rig.nearly(60_000);
    assert_eq!(rig.flight(true, 61_000, 61_200), Verdict::Halved);
    assert_eq!(rig.share(), Some(10.0));
    rig.flight(false, 62_500, 62_600);
    assert_eq!(rig.share(), Some(11.0));
}

#[test]
fn a_start_of_the_default_window_that_arrives_ends_no_row_of_losses() {
    let mut rig = Rig::losing();
    rig.port += 1;
    let small = FirstFlight { advised: DEFAULT_INITIAL_WINDOW, ..rig.of_port(false, 0) };
    assert_eq!(rig.retreat.report(&small, at(0)), Verdict::Clean);
    assert_eq!(rig.flight(true, 0, 100), Verdict::Halved);
}

#[test]
fn a_share_below_the_default_window_has_a_threshold_while_it_is_held_back() {
    let mut rig = Rig::losing();
    assert_eq!(rig.flight(true, 9_900, 10_000), Verdict::Halved);
    let own = view(8.0);
    let estimate = own.estimate.clone().map(|estimate| Estimate { loss_connections: 0, losses: 0, ..estimate });
    rig.published = rig.retreat.hold(NetworkView { estimate, ..own });
    assert_eq!((rig.share(), rig.start()), (Some(8.0), (Some(10), Some(25))));
}

#[test]
fn a_start_of_which_no_more_than_the_default_window_arrived_ends_no_row_of_losses() {
    for (segments, verdict) in [(3, Verdict::Halved), (10, Verdict::Halved), (11, Verdict::Random)] {
        let mut rig = Rig::losing();
        rig.port += 1;
        let first_words = FirstFlight { acknowledged: Bytes(segments * 1_000), ..rig.of_port(false, 0) };
        assert_eq!(rig.retreat.report(&first_words, at(0)), Verdict::Clean);
        assert_eq!(rig.flight(true, 0, 100), verdict, "{segments} segments arrived");
    }
}

#[test]
fn the_share_grows_back_by_a_segment_a_round_trip_with_transfers_that_filled_their_window() {
    let mut rig = Rig::losing();
    rig.flight(true, 0, 100);
    rig.flight(false, 1_200, 1_300);
    rig.flight(false, 1_200, 1_349);
    assert_eq!(rig.share(), Some(11.0), "one within a round trip");
    rig.port += 1;
    let small = FirstFlight { acknowledged: Bytes(19_999), ..rig.of_port(false, 2_000) };
    assert_eq!(rig.retreat.report(&small, at(2_100)), Verdict::Clean);
    assert_eq!(rig.share(), Some(11.0), "20 segments were granted and not filled");
    for n in 0..28 {
        rig.flight(false, 3_000, 3_000 + n * 50);
    }
    assert_eq!((rig.share(), rig.retreat.held.is_some()), (Some(39.0), true));
    rig.flight(false, 5_000, 5_000);
    assert_eq!((rig.share(), rig.retreat.due()), (Some(40.0), None), "the engine's own again, and nothing held");
    // What the engine learns meanwhile counts where it is less.
    rig.flight(true, 8_000, 8_000);
}

#[test]
fn an_estimate_of_the_engine_below_what_is_allowed_stands_and_an_old_retreat_is_forgotten() {
    let mut rig = Rig::losing();
    rig.flight(true, 0, 100);
    rig.published = rig.retreat.hold(view(9.0));
    assert_eq!(rig.share(), Some(9.0));
    rig.published = rig.retreat.hold(view(50.0));
    assert_eq!(rig.share(), Some(10.0));
    assert!(!rig.pass(300_099) && rig.pass(300_100));
    assert_eq!(rig.share(), Some(50.0));
}

#[test]
fn losses_beside_clean_starts_are_random_and_six_in_a_row_are_not() {
    let mut rig = Rig::new(2);
    assert_eq!(rig.flight(true, 100, 200), Verdict::Random);
    let again = rig.of_port(true, 100);
    assert_eq!(rig.retreat.report(&again, at(900)), Verdict::Known, "the report at its end");
    for n in 1..5 {
        assert_eq!(rig.flight(true, n * 1_000, n * 1_000 + 100), Verdict::Random);
    }
    assert_eq!(rig.share(), Some(40.0));
    assert_eq!(rig.flight(true, 6_000, 6_100), Verdict::Halved, "six in a row");
    assert_eq!(rig.flight(true, 8_000, 8_100), Verdict::Random, "the next is about the current advice");

    let mut rig = Rig::new(1);
    for n in 0..20 {
        assert_ne!(rig.flight(n % 6 != 5, 1_000, 1_000), Verdict::Halved, "five of six lose");
    }
    assert_eq!(Rig::losing().flight(true, 300_001, 300_001), Verdict::Random, "the earlier ones are too old");
}

#[test]
fn a_loss_of_which_the_beginning_is_not_known_counts_by_the_window_it_had() {
    let mut rig = Rig::losing();
    let early = |rig: &mut Rig, advised, ms| {
        rig.port += 1;
        let flight = FirstFlight { began: None, advised: Segments(advised), ..rig.of_port(true, 0) };
        rig.retreat.report(&flight, at(ms))
    };
    assert_eq!(early(&mut rig, 30, 5_000), Verdict::Halved);
    rig.flight(false, 8_000, 8_000);
    assert_eq!(early(&mut rig, 11, 8_000), Verdict::Known, "of the same burst");
    assert_eq!(early(&mut rig, 30, 9_000), Verdict::Known, "more than is granted now: from before the retreat");
    rig.nearly(9_000);
    assert_eq!(early(&mut rig, 11, 9_000), Verdict::Withdrawn);
}

/// Losses of starts towards these addresses, each of its own connection.
fn lose_to(rig: &mut Rig, remotes: &[&str], ms: u64) -> Vec<Verdict> {
    let mut lose = |remote: &&str| {
        rig.port += 1;
        let mut flight = rig.of_port(true, ms);
        flight.ends[1].set_ip(remote.parse().unwrap());
        rig.retreat.report(&flight, at(ms))
    };
    let verdicts = remotes.iter().map(&mut lose).collect();
    rig.published = rig.retreat.renew(&rig.published);
    verdicts
}

#[test]
fn losses_of_one_address_take_no_advice_from_its_neighbours() {
    for [one, other] in [["192.0.2.1", "192.0.2.2"], ["2001:db8:0:1::1", "2001:db8:0:2::1"]] {
        let mut rig = Rig::new(0);
        assert_eq!(lose_to(&mut rig, &[other], 0), [Verdict::Random], "a neighbour has advised starts");
        let verdicts = lose_to(&mut rig, &[one; 40], 1_000);
        assert_eq!(verdicts[..3], [Verdict::Random; 3]);
        assert!(verdicts[3..].iter().all(|verdict| *verdict == Verdict::OneAddress), "{verdicts:?}");
        assert_eq!(rig.share(), Some(40.0));
        assert_eq!(lose_to(&mut rig, &[other, other], 2_000), [Verdict::Random, Verdict::Halved], "three of each");
        assert_eq!(rig.share(), Some(10.0));
    }
    let of_one_host = ["2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1::3", "2001:db8:0:1::4"];
    let mut rig = Rig::new(0);
    lose_to(&mut rig, &["2001:db8:0:2::1"], 0);
    assert_eq!(lose_to(&mut rig, &of_one_host, 1_000)[3], Verdict::OneAddress, "a /64 is one client");
}

#[test]
fn applications_of_one_host_alone_take_no_advice_from_others() {
    let flight = |rig: &mut Rig, (address, lost): (u8, bool), application_of: Option<u64>| {
        rig.port += 1;
        let mut flight = FirstFlight { application_of, ..rig.of_port(lost, 1_000) };
        flight.ends[1].set_ip([192, 0, 2, address].into());
        let verdict = rig.retreat.report(&flight, at(1_000));
        rig.published = rig.retreat.renew(&rig.published);
        verdict
    };
    for addresses in [[1, 2], [1, 1]] {
        let mut rig = Rig::new(0);
        let forged = |n: usize| (addresses[n % 2], true);
        let verdicts: Vec<_> = (0..40).map(|n| flight(&mut rig, forged(n), Some(7))).collect();
        assert_eq!(verdicts[..3], [Verdict::Random; 3]);
        assert!(verdicts[3..].iter().all(|verdict| *verdict == Verdict::OneHost), "{verdicts:?}");
        assert_eq!(rig.share(), Some(40.0));
        flight(&mut rig, (9, false), Some(7));
        let verdicts: Vec<_> = (0..3).map(|n| flight(&mut rig, forged(n), Some(8))).collect();
        assert_eq!(verdicts, [Verdict::Random; 3], "the first host took its own back");
        let kernels: Vec<_> = (3..6).map(|address| flight(&mut rig, (address, true), None)).collect();
        assert_eq!(kernels, [Verdict::Random, Verdict::Random, Verdict::Halved], "what a kernel saw counts");
        assert_eq!(rig.share(), Some(10.0));
    }
    let mut rig = Rig::new(0);
    let verdicts: Vec<_> = (1..=6).map(|n| flight(&mut rig, (n, true), Some(u64::from(n % 2)))).collect();
    assert_eq!(verdicts[5], Verdict::Halved, "of two hosts");
    let mut rig = Rig::new(0);
    for address in 1..=5 {
        flight(&mut rig, (address, true), None);
    }
    flight(&mut rig, (9, false), Some(7));
    assert_eq!(
        flight(&mut rig, (6, true), None),
        Verdict::Halved,
        "an application takes back no loss that a kernel saw"
    );
}

#[test]
fn a_network_in_which_one_address_alone_has_advised_starts_retreats_by_its_losses() {
    let mut rig = Rig::new(0);
    lose_to(&mut rig, &["192.0.2.2"], 0);
    assert_eq!(lose_to(&mut rig, &["192.0.2.1"; 4], 300_000)[3], Verdict::OneAddress);
    assert_eq!(lose_to(&mut rig, &["192.0.2.1"; 2], 300_001), [Verdict::Random, Verdict::Halved]);
}

#[test]
fn what_is_held_back_is_not_compared_and_one_address_is_alone_until_another_starts() {
    let mut rig = Rig::new(1);
    let never = Timestamp::default().after(NEWS);
    assert_eq!(rig.retreat.comparable(at(0)), Some((never, true)));
    lose_to(&mut rig, &["192.0.2.2"], 0);
    assert_eq!([0, 300_000, 300_001].map(|ms| rig.retreat.comparable(at(ms)).unwrap().1), [false, false, true]);
    assert_eq!([rig.retreat.slower(at(0)), rig.retreat.slower(at(3_600_000))], [Verdict::Halved, Verdict::Withdrawn]);
    assert_eq!((rig.retreat.comparable(at(0)), rig.retreat.slower(at(7_200_001))), (None, Verdict::Halved));
    rig.pass(7_500_001);
    assert_eq!(rig.retreat.comparable(at(7_500_001)), Some((at(7_501_001), true)));
}

#[test]
fn losses_of_an_address_that_was_alone_do_not_wait_for_one_of_a_neighbour() {
    let mut rig = Rig::new(0);
    assert_eq!(lose_to(&mut rig, &["192.0.2.1"; 5], 0), [Verdict::Random; 5]);
    assert_eq!(lose_to(&mut rig, &["192.0.2.2"; 3], 1_000), [Verdict::Random, Verdict::Random, Verdict::Halved]);
}

/// How often the rule strikes at random losses, and how soon where the window is too large: `--nocapture` shows the figures of
/// the decision's page.
#[test]
fn the_rule_bears_random_losses_and_not_overload() {
    let mut state = 1u64;
    let mut random = || {
        // Knuth's linear congruential generator, the upper bits.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    let mut struck = Vec::new();
    for rate in [0.01, 0.03, 0.1] {
        // Far apart: each retreat is forgotten, the series is not.
        let (mut strikes, mut losses) = (0u32, 0u32);
        let mut rig = Rig::new(19);
        for n in 0..200_000u64 {
            let lost = random() < rate;
            losses += u32::from(lost);
            strikes += u32::from(rig.flight(lost, n * 1_000, n * 1_000) == Verdict::Halved);
            rig.retreat.held = None;
        }
        println!("{rate}: {strikes} retreats of {losses} losses in 200000 starts");
        struck.push(f64::from(strikes) / f64::from(losses));
    }
    assert!(struck[0] < 0.001 && struck[2] < 0.02, "{struck:?}");
    let mut late = Vec::new();
    for rate in [0.5, 0.8, 0.95] {
        let mut starts: Vec<u32> = (0..2_000)
            .filter_map(|_| {
                let mut rig = Rig::new(100);
                (1..100_000).find(|_| {
                    let lost = random() < rate;
                    rig.flight(lost, 1_000, 1_000) == Verdict::Halved
                })
            })
            .collect();
        starts.resize(2_000, u32::MAX);
        starts.sort_unstable();
        println!("{rate}: {} starts to the retreat, median; 95 %: {}", starts[1_000], starts[1_900]);
        late.push(starts[1_900]);
    }
    assert!(late[0] > 200 && late[2] <= 15, "{late:?}");
}
