//! The policy in tables: what is asked, what comes out.

use std::net::IpAddr;

use proptest::prelude::*;
use spand_proto::estimate::{Confidence, RuleKind};
use spand_proto::start::{Limit, RefusalReason};
use spand_proto::units::Window;

use super::*;
use crate::config::{ApplyMethod, Config};

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
const MSS: Bytes = Bytes(1_448);

fn advice(share: u32) -> Advice {
    let estimate = Estimate {
        network: "192.0.2.0/24".parse().unwrap(),
        share: Window::from_segments(Segments(share), MSS),
        mss: MSS,
        rtt_min: Some(Micros::from_millis(80)),
        rtt_mean: Some(Micros::from_millis(100)),
        samples: 10,
        connections: 5,
        loss_connections: 1,
        loss_window: None,
        is_lower_bound: false,
        opening: None,
        buffer: None,
        bdp: None,
        losses: 2,
        refreshed: NOW,
        confidence: Confidence::new(0.5),
        rule: RuleKind::Probe,
        mark: None,
    };
    Advice { estimate, lease: None, expires: NOW.after(Micros::from_secs(60)) }
}

fn policy(text: &str) -> Policy {
    let text = format!("{text}\n[holdout]\nfraction = 0.0");
    Config::parse(&text, std::path::Path::new("test")).unwrap().policy()
}

fn ask(advice: Option<&Advice>, connection: Connection, policy: &Policy) -> Decision {
    let network = "192.0.2.0/24".parse().unwrap();
    let within = None;
    decide(&Question { network, within, advice, now: NOW, wall_unix_s: 0, paused: false, connection }, policy)
}

fn verdict(advice: &Advice, policy: &Policy) -> Verdict {
    ask(Some(advice), Connection::default(), policy).verdict
}

#[test]
fn a_share_becomes_a_window_by_mode_and_method() {
    for (config, share, expected) in [
        ("", 40, Verdict::Apply(Segments(40))),
        ("", 200, Verdict::Apply(Segments(100))),
        ("", 12, Verdict::Apply(Segments(12))),
        ("", 9, Verdict::Leave(Reason::SameAsDefault)),
        ("mode = \"observe\"", 40, Verdict::Leave(Reason::Observe)),
        ("mode = \"paper\"", 40, Verdict::Apply(Segments(40))),
        ("mode = \"paper\"", 6, Verdict::Apply(Segments(6))),
        ("apply = \"route\"", 40, Verdict::Apply(Segments(20))),
        ("apply = \"route\"", 200, Verdict::Apply(Segments(32))),
        ("apply = \"route\"\nmode = \"paper\"", 200, Verdict::Apply(Segments(200))),
        ("[policy]\ncap_segments = 25", 40, Verdict::Apply(Segments(25))),
        ("[policy]\nfraction = 0.75", 40, Verdict::Apply(Segments(30))),
        ("[policy]\nservice_bytes = 14480", 12, Verdict::Leave(Reason::SameAsDefault)),
    ] {
        assert_eq!(verdict(&advice(share), &policy(config)), expected, "{config:?} with a share of {share}");
    }
}

#[test]
fn every_weak_spot_of_an_estimate_has_its_reason() {
    let refused = |reason| Verdict::Leave(Reason::Refused(reason));
    let careful = policy("");
    let change = |change: &dyn Fn(&mut Advice)| {
        let mut advice = advice(40);
        change(&mut advice);
        verdict(&advice, &careful)
    };
    assert_eq!(change(&|a| a.estimate.samples = 2), refused(RefusalReason::TooFewSamples));
    assert_eq!(change(&|a| a.estimate.connections = 1), refused(RefusalReason::TooFewConnections));
    assert_eq!(change(&|a| a.estimate.refreshed = NOW.before(Micros::from_secs(301))), refused(RefusalReason::Stale));
    assert_eq!(change(&|a| (a.estimate.rtt_min, a.estimate.rtt_mean) = (None, None)), refused(RefusalReason::NoRtt));
    assert_eq!(change(&|a| a.expires = NOW), Verdict::Leave(Reason::Expired));
    assert_eq!(change(&|a| a.lease = Some(Segments(5))), Verdict::Apply(Segments(15)));
    assert_eq!(ask(None, Connection::default(), &careful).verdict, refused(RefusalReason::NoEstimate));
    let other_path = Connection { handshake_rtt: Some(Micros::from_millis(300)), ..Connection::default() };
    assert_eq!(ask(Some(&advice(40)), other_path, &careful).verdict, refused(RefusalReason::RttMismatch));
    let peer = Connection { snd_wnd: Some(Bytes(20 * MSS.0)), ..Connection::default() };
    assert_eq!(ask(Some(&advice(40)), peer, &careful).verdict, Verdict::Apply(Segments(20)));
}

#[test]
fn a_start_below_the_default_needs_losses_of_several_connections() {
    let mut weak = advice(6);
    assert_eq!(verdict(&weak, &policy("")), Verdict::Leave(Reason::SameAsDefault));
    weak.estimate.loss_connections = 3;
    assert_eq!(verdict(&weak, &policy("")), Verdict::Leave(Reason::SameAsDefault), "by default none is");
    assert_eq!(verdict(&weak, &policy("[policy]\nfloor_segments = 2")), Verdict::Apply(Segments(6)));
}

#[test]
fn destinations_are_left_alone_in_doubt() {
    for (section, expected) in [
        ("exclude = [\"192.0.0.0/16\"]", Verdict::Leave(Reason::Excluded)),
        ("exclude = [\"192.0.2.77/32\"]", Verdict::Leave(Reason::Excluded)),
        ("include = [\"192.0.2.0/25\"]", Verdict::Leave(Reason::NotIncluded)),
        ("include = [\"192.0.0.0/16\"]", Verdict::Apply(Segments(40))),
        ("include = [\"192.0.0.0/16\"]\nexclude = [\"192.0.2.0/24\"]", Verdict::Leave(Reason::Excluded)),
        ("exclude = [\"2001:db8::/32\"]", Verdict::Apply(Segments(40))),
        ("exclude = [\"::/0\"]", Verdict::Apply(Segments(40))),
        ("exclude = [\"::ffff:192.0.0.0/112\"]", Verdict::Leave(Reason::Excluded)),
        ("include = [\"::/0\"]", Verdict::Leave(Reason::NotIncluded)),
        ("include = [\"::ffff:192.0.0.0/112\"]", Verdict::Apply(Segments(40))),
        ("caps = { \"::ffff:0:0/90\" = 12 }", Verdict::Apply(Segments(40))),
        ("caps = { \"::ffff:192.0.2.77/128\" = 12 }", Verdict::Apply(Segments(12))),
        ("caps = { \"192.0.0.0/16\" = 20, \"192.0.2.8/29\" = 15 }", Verdict::Apply(Segments(15))),
        ("caps = { \"192.0.2.0/24\" = 5 }", Verdict::Apply(Segments(5))),
    ] {
        assert_eq!(verdict(&advice(40), &policy(&format!("[destinations]\n{section}"))), expected, "{section}");
    }
    let paper = policy("mode = \"paper\"\n[destinations]\ncaps = { \"192.0.2.0/24\" = 20 }");
    let decision = ask(Some(&advice(40)), Connection::default(), &paper);
    assert_eq!(decision.verdict, Verdict::Apply(Segments(20)), "a cap that was named holds in paper mode too");
    assert_eq!(decision.start.unwrap().clipped_by, Some(Limit::Cap));
}

#[test]
fn the_arm_is_drawn_before_anything_is_refused() {
    let mut policy = policy("");
    policy.holdout.fraction = 1.0;
    let decision = ask(Some(&advice(40)), Connection::default(), &policy);
    assert_eq!((decision.arm, decision.verdict), (Some(Arm::Control), Verdict::Leave(Reason::HeldOut)));
    assert!(decision.start.is_ok(), "what it would have been is known");
    assert_eq!(ask(None, Connection::default(), &policy).arm, Some(Arm::Control));
}

#[test]
fn slots_change_sides_at_random_with_the_share_that_was_asked_for() {
    let holdout = Holdout { fraction: 0.05, slot_s: 3_600.try_into().unwrap(), seed: 0 };
    let arm = |network: u32, hour: u64| {
        let network = Network::new(IpAddr::from((0x0a00_0000 + network * 256).to_be_bytes()).into());
        holdout.arm(network, hour * 3_600)
    };
    let held: Vec<(u32, u64)> = (0..400)
        .flat_map(|network| (0..100).map(move |hour| (network, hour)))
        .filter(|(network, hour)| arm(*network, *hour) == Arm::Control)
        .collect();
    assert!((1_800..2_200).contains(&held.len()), "{} of 40,000, expected about 2,000", held.len());
    let networks: std::collections::BTreeSet<u32> = held.iter().map(|(network, _)| *network).collect();
    assert!(networks.len() > 380, "in 100 hours nearly every network is held out once: {}", networks.len());
    let again = held.iter().filter(|(network, hour)| arm(*network, hour + 1) == Arm::Control).count();
    assert!(again < 200, "the next slot is drawn independently: {again} of {}", held.len());
}

#[test]
fn the_draw_never_changes() {
    // Hosts of different releases must agree. Written down from another implementation of the same hash.
    let holdout = Holdout { fraction: 0.5, slot_s: 3_600.try_into().unwrap(), seed: 7 };
    let networks = (0..12).map(|n| format!("192.0.{n}.0/24")).chain((0..12).map(|n| format!("2001:db8:{n}::/48")));
    let drawn: String = networks
        .map(|network| if holdout.arm(network.parse().unwrap(), 1_767_225_600) == Arm::Control { '1' } else { '0' })
        .collect();
    assert_eq!(drawn, "100000010100001011101010");
}

proptest! {
    #[test]
    fn nothing_a_gateway_says_makes_a_careful_start_leave_its_bounds(
        share in 0.0f64..1e12, mss in 1u64..100_000, samples in 0u32.., connections in 0u32.., losses in 0u32..,
        rtt_us in proptest::option::of(1u64..), age_us in 0u64.., lease in proptest::option::of(0u32..),
    ) {
        let mut advice = advice(1);
        advice.estimate.share = Window::from_bytes(share).unwrap();
        advice.estimate.mss = Bytes(mss);
        (advice.estimate.samples, advice.estimate.connections) = (samples, connections);
        advice.estimate.loss_connections = losses;
        advice.estimate.rtt_mean = rtt_us.map(Micros);
        advice.estimate.refreshed = NOW.before(Micros(age_us));
        advice.lease = lease.map(Segments);
        let config = Config { apply: ApplyMethod::Route, ..Config::default() };
        if let Verdict::Apply(window) = verdict(&advice, &config.policy()) {
            prop_assert!((2..=32).contains(&window.0), "{window}");
        }
    }
}

#[test]
fn a_pause_leaves_everything_inside_the_scope_alone_and_keeps_the_arm() {
    let advice = advice(40);
    let ask = |text: &str| {
        let network = "192.0.2.0/24".parse().unwrap();
        let connection = Connection::default();
        let (within, advice) = (None, Some(&advice));
        let question = Question { network, within, advice, now: NOW, wall_unix_s: 0, paused: true, connection };
        decide(&question, &policy(text))
    };
    for text in ["", "mode = \"observe\"", "mode = \"paper\"", "apply = \"route\""] {
        let decision = ask(text);
        assert_eq!((decision.arm, decision.verdict), (Some(Arm::Advised), Verdict::Leave(Reason::Paused)), "{text}");
    }
    let excluded = ask("[destinations]\nexclude = [\"192.0.2.0/24\"]");
    assert_eq!(excluded.verdict, Verdict::Leave(Reason::Excluded));
}

#[test]
fn one_address_with_advice_of_its_own_gets_no_start_of_the_network_around_it() {
    let around: Network = "192.0.2.0/24".parse().unwrap();
    let network = "192.0.2.9/32".parse().unwrap();
    let mut route = policy("apply = \"route\"");
    let advice = advice(10);
    let decided = |within, wall_unix_s, route: &Policy| {
        let (advice, connection) = (Some(&advice), Connection::default());
        decide(&Question { network, within, advice, now: NOW, wall_unix_s, paused: false, connection }, route)
    };
    assert_eq!(decided(None, 0, &route).verdict, Verdict::Leave(Reason::SameAsDefault));
    assert_eq!(decided(Some(around), 0, &route).verdict, Verdict::Apply(Segments(10)));
    route.holdout.fraction = 0.5;
    for slot in 0..64 {
        let wall_unix_s = slot * route.holdout.slot_s.get();
        let arm = Some(route.holdout.arm(around, wall_unix_s));
        assert_eq!(decided(Some(around), wall_unix_s, &route).arm, arm, "they are compared as one");
    }
}
