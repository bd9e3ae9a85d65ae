//! What is held, event by event. The stream itself is tested against a gateway in `tests/host/subscriber.rs`.

use spand_proto::contract::ContractVersion;
use spand_proto::estimate::{Confidence, Estimate, RuleKind};
use spand_proto::push::{Endpoint, EstimateUpdate, ImminentStart, Trigger, UpdateEvent, WithdrawalReason};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp, Window};

use super::Holdings;

fn at(second: u64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000 + second * 1_000_000)
}

fn estimate(network: &str, lifetime_s: u64) -> UpdateEvent {
    UpdateEvent::Estimate(EstimateUpdate {
        estimate: Estimate {
            network: network.parse().unwrap(),
            share: Window::from_segments(Segments(40), Bytes(1_448)),
            mss: Bytes(1_448),
            rtt_min: None,
            rtt_mean: None,
            samples: 3,
            connections: 2,
            loss_connections: 0,
            loss_window: None,
            is_lower_bound: false,
            opening: None,
            buffer: None,
            bdp: None,
            losses: 0,
            refreshed: at(0),
            confidence: Confidence::new(0.5),
            rule: RuleKind::Probe,
            mark: None,
        },
        lifetime: Micros::from_secs(lifetime_s),
        lease: None,
    })
}

fn begin() -> UpdateEvent {
    UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks: 1, cluster: None }
}

fn end() -> UpdateEvent {
    UpdateEvent::SnapshotEnd { networks: 1 }
}

fn after(events: &[(UpdateEvent, u64)]) -> Holdings {
    let mut holdings = Holdings::new(3.try_into().unwrap(), Micros::from_secs(60));
    holdings.on_new_stream();
    for (event, second) in events {
        holdings.on_event(event, at(*second));
    }
    holdings
}

fn held(holdings: &Holdings) -> Vec<String> {
    holdings.iter().map(|(network, _)| network.to_string()).collect()
}

#[test]
fn a_lifetime_ends_unless_renewed_and_is_never_longer_than_allowed() {
    let mut holdings =
        after(&[(begin(), 0), (estimate("192.0.2.0/24", 60), 0), (estimate("198.51.100.0/24", 9_999), 0), (end(), 0)]);
    assert!(!holdings.expire(at(59)));
    holdings.on_event(&estimate("192.0.2.0/24", 60), at(59));
    assert!(holdings.expire(at(60)));
    assert_eq!(
        held(&holdings),
        ["192.0.2.0/24"],
        "the other one lived for 60 s, though the gateway gave a longer lifetime"
    );
    holdings.on_event(&UpdateEvent::Renewal { lifetime: Micros::from_secs(60) }, at(100));
    assert!(!holdings.expire(at(159)));
    assert!(holdings.expire(at(160)));
    assert_eq!(holdings.counts().expired, 2);
}

#[test]
fn a_snapshot_replaces_what_was_held_only_at_its_end() {
    let mut holdings = after(&[(begin(), 0), (estimate("192.0.2.0/24", 60), 0), (end(), 0)]);
    holdings.on_event(&begin(), at(10));
    holdings.on_event(&estimate("198.51.100.0/24", 60), at(10));
    assert_eq!(held(&holdings), ["192.0.2.0/24", "198.51.100.0/24"]);
    holdings.on_event(&UpdateEvent::Renewal { lifetime: Micros::from_secs(60) }, at(30));
    assert_eq!(holdings.get("192.0.2.0/24".parse().unwrap()).unwrap().expires, at(60), "not repeated, not renewed");
    holdings.on_event(&end(), at(31));
    assert_eq!(held(&holdings), ["198.51.100.0/24"]);
}

#[test]
fn what_was_withdrawn_is_gone_and_what_was_not_there_is_not_counted() {
    let withdrawal = |network: &str| UpdateEvent::Withdrawal {
        network: network.parse().unwrap(),
        reason: WithdrawalReason::Retreat,
    };
    let holdings = after(&[
        (begin(), 0),
        (estimate("192.0.2.0/24", 60), 0),
        (end(), 0),
        (withdrawal("192.0.2.0/24"), 1),
        (withdrawal("203.0.113.0/24"), 1),
    ]);
    assert!(holdings.is_empty());
    assert_eq!(holdings.counts().withdrawn, 1);
}

#[test]
fn there_is_room_for_as_many_networks_as_allowed() {
    let mut holdings = after(&[(begin(), 0)]);
    for n in 0..5 {
        holdings.on_event(&estimate(&format!("192.0.{n}.0/24"), 60), at(0));
    }
    holdings.on_event(&estimate("192.0.0.0/24", 60), at(1));
    assert_eq!(held(&holdings), ["192.0.0.0/24", "192.0.3.0/24", "192.0.4.0/24"], "the newest");
    assert_eq!((holdings.counts().evicted, holdings.counts().no_room, holdings.counts().estimates), (3, 0, 6));
}

fn announced(network: &str) -> UpdateEvent {
    let UpdateEvent::Estimate(estimate) = estimate(network, 60) else { unreachable!() };
    let endpoint = |address: &str| Endpoint { address: address.parse().unwrap(), port: Some(443) };
    UpdateEvent::ImminentStart(ImminentStart {
        host: endpoint("10.1.0.2"),
        remote: endpoint("192.0.2.9"),
        trigger: Trigger::PassiveOpen,
        observed: at(0),
        delay: Micros(300),
        estimate,
    })
}

#[test]
fn what_changes_nothing_goes_first_and_what_is_used_goes_last() {
    let mut holdings = after(&[(begin(), 0), (announced("192.0.1.0/24"), 0), (announced("192.0.2.0/24"), 1)]);
    assert_eq!(holdings.on_event(&estimate("192.0.3.0/24", 60), at(2)), None);
    holdings.set_matters("192.0.2.0/24".parse().unwrap(), false);
    assert_eq!(holdings.on_event(&estimate("192.0.4.0/24", 60), at(2)), Some("192.0.2.0/24".parse().unwrap()));
    assert_eq!(holdings.on_event(&announced("192.0.5.0/24"), at(2)), Some("192.0.3.0/24".parse().unwrap()));
    assert_eq!(holdings.on_event(&announced("192.0.6.0/24"), at(2)), Some("192.0.4.0/24".parse().unwrap()));
    assert_eq!(holdings.on_event(&estimate("192.0.7.0/24", 60), at(3)), None);
    assert_eq!(holdings.counts().no_room, 1, "all that is held is used, and the new network is not");
    // An update that no connection was announced for does not make a network unused.
    holdings.on_event(&estimate("192.0.6.0/24", 60), at(3));
    assert_eq!(holdings.on_event(&announced("192.0.8.0/24"), at(4)), Some("192.0.1.0/24".parse().unwrap()));
    assert_eq!(held(&holdings), ["192.0.5.0/24", "192.0.6.0/24", "192.0.8.0/24"]);
    // What leaves in another way leaves its place.
    assert!(holdings.expire(at(62)));
    holdings.forget("192.0.6.0/24".parse().unwrap());
    assert_eq!(held(&holdings), ["192.0.8.0/24"]);
    for n in 0..3 {
        holdings.on_event(&announced(&format!("192.0.{n}.0/24")), at(63));
    }
    assert_eq!(held(&holdings), ["192.0.0.0/24", "192.0.1.0/24", "192.0.2.0/24"]);
}

#[test]
fn a_prefix_of_very_many_networks_takes_no_place_from_those_that_are_used() {
    const PLACES: usize = 4_096;
    let mut holdings = Holdings::new(PLACES.try_into().unwrap(), Micros::from_secs(60));
    holdings.on_new_stream();
    let honest: Vec<String> = (0..200).map(|n| format!("198.18.{n}.0/24")).collect();
    let (before, after) = honest.split_at(100);
    for network in before {
        holdings.on_event(&announced(network), at(0));
    }
    for n in 0..65_536_u32 {
        let network = format!("2001:db8:{n:x}::/48");
        holdings.on_event(&estimate(&network, 60), at(1));
        // As decided: most are of transfers that are too small for another start.
        holdings.set_matters(network.parse().unwrap(), n % 16 == 0);
    }
    for network in after {
        holdings.on_event(&estimate(network, 60), at(2));
    }
    assert_eq!(holdings.len(), PLACES);
    for network in &honest {
        assert!(holdings.get(network.parse().unwrap()).is_some(), "{network}");
    }
    assert_eq!(holdings.counts().evicted, 65_536 + 200 - PLACES as u64);
}

#[test]
fn the_longest_prefix_answers() {
    let holdings = after(&[(begin(), 0), (estimate("10.0.0.0/8", 60), 0), (estimate("10.1.0.0/16", 60), 0)]);
    let network = |address: &str| holdings.lookup(address.parse().unwrap()).map(|(network, _)| network.to_string());
    assert_eq!(network("10.1.2.3").as_deref(), Some("10.1.0.0/16"));
    assert_eq!(network("::ffff:10.2.0.1").as_deref(), Some("10.0.0.0/8"));
    assert_eq!(network("2001:db8::1"), None);
}

fn adopted() -> UpdateEvent {
    UpdateEvent::Adopted { lifetime: Micros::from_secs(60) }
}

fn with_lease(network: &str, lease: u32) -> UpdateEvent {
    let UpdateEvent::Estimate(update) = estimate(network, 60) else { unreachable!() };
    UpdateEvent::Estimate(EstimateUpdate { lease: Some(Segments(lease)), ..update })
}

/// What a host holds at second 20 of two networks given at second 0, the second of which its new gateway has given again.
fn changed() -> Holdings {
    let mut holdings =
        after(&[(begin(), 0), (with_lease("192.0.2.0/24", 30), 0), (with_lease("198.51.100.0/24", 30), 0), (end(), 0)]);
    holdings.on_new_stream();
    for event in [adopted(), begin(), with_lease("198.51.100.0/24", 7)] {
        holdings.on_event(&event, at(20));
    }
    holdings
}

fn lease(holdings: &Holdings, network: &str) -> Option<u32> {
    holdings.get(network.parse().unwrap())?.lease.map(|lease| lease.0)
}

#[test]
fn what_is_adopted_lives_on_until_the_snapshot_is_whole_and_its_lease_ends_with_its_own_lifetime() {
    let mut holdings = changed();
    assert_eq!((holdings.counts().adoptions, holdings.counts().adopted), (1, 2));
    assert!(!holdings.expire(at(57)));
    assert_eq!(
        lease(&holdings, "192.0.2.0/24"),
        Some(30),
        "until its lifetime is over, as the gateway that gave it reckons"
    );
    assert!(holdings.expire(at(58)), "the lease ends before what is in force does");
    assert_eq!((lease(&holdings, "192.0.2.0/24"), lease(&holdings, "198.51.100.0/24")), (Some(0), Some(7)));
    holdings.expire(at(79));
    assert_eq!(holdings.len(), 2, "the new gateway takes its time");
    let renewal = UpdateEvent::Renewal { lifetime: Micros::from_secs(60) };
    holdings.on_event(&renewal, at(79));
    holdings.expire(at(120));
    holdings.on_event(&renewal, at(120));
    holdings.expire(at(179));
    assert_eq!(holdings.len(), 2, "for as long as its snapshot is on its way and the stream renews");
    assert_eq!(lease(&holdings, "192.0.2.0/24"), Some(0));
    // Another gateway that does not adopt: nothing of it renews what the one before adopted.
    holdings.on_new_stream();
    for event in [begin(), with_lease("198.51.100.0/24", 7), renewal] {
        holdings.on_event(&event, at(179));
    }
    holdings.expire(at(180));
    assert_eq!(held(&holdings), ["198.51.100.0/24"]);
}

#[test]
fn the_end_of_the_snapshot_and_a_withdrawal_drop_what_was_adopted() {
    let mut holdings = changed();
    holdings.on_event(&end(), at(30));
    assert_eq!(held(&holdings), ["198.51.100.0/24"]);
    let mut holdings = changed();
    let (network, reason) = ("192.0.2.0/24".parse().unwrap(), WithdrawalReason::Retreat);
    holdings.on_event(&UpdateEvent::Withdrawal { network, reason }, at(21));
    assert_eq!(held(&holdings), ["198.51.100.0/24"]);
}

#[test]
fn a_second_change_before_the_snapshot_is_whole_extends_only_what_the_first_gave() {
    let mut holdings = changed();
    holdings.on_lost(at(50));
    holdings.on_new_stream();
    for event in [adopted(), adopted(), begin(), adopted()] {
        holdings.on_event(&event, at(55));
    }
    assert_eq!(
        (holdings.counts().adoptions, holdings.counts().adopted),
        (2, 3),
        "once a stream, and before its snapshot"
    );
    holdings.expire(at(58));
    holdings.expire(at(109));
    assert_eq!(holdings.len(), 2);
    holdings.expire(at(110));
    assert_eq!(held(&holdings), ["198.51.100.0/24"], "without a gateway it ends a lifetime after the loss");
    holdings.expire(at(139));
    assert_eq!(holdings.len(), 1);
    holdings.expire(at(140));
    assert!(holdings.is_empty());
}

#[test]
fn without_adoption_advice_ends_before_a_slow_snapshot_does() {
    let mut holdings = after(&[(begin(), 0), (estimate("192.0.2.0/24", 60), 0), (end(), 0)]);
    holdings.on_new_stream();
    holdings.on_event(&begin(), at(20));
    assert!(holdings.expire(at(60)));
    assert_eq!(holdings.counts().expired, 1);
}
