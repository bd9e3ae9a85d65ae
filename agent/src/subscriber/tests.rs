//! What is held, event by event. The stream itself is tested against a gateway in `tests/host/subscriber.rs`.

use spand_proto::contract::ContractVersion;
use spand_proto::estimate::{Confidence, Estimate, RuleKind};
use spand_proto::push::{EstimateUpdate, UpdateEvent, WithdrawalReason};
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
            opening: None,
            buffer: None,
            losses: 0,
            refreshed: at(0),
            confidence: Confidence::new(0.5),
            rule: RuleKind::Probe,
        },
        lifetime: Micros::from_secs(lifetime_s),
        lease: None,
    })
}

fn begin() -> UpdateEvent {
    UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks: 1 }
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
    assert_eq!((holdings.len(), holdings.counts().no_room, holdings.counts().estimates), (3, 2, 4));
}

#[test]
fn the_longest_prefix_answers() {
    let holdings = after(&[(begin(), 0), (estimate("10.0.0.0/8", 60), 0), (estimate("10.1.0.0/16", 60), 0)]);
    let network = |address: &str| holdings.lookup(address.parse().unwrap()).map(|(network, _)| network.to_string());
    assert_eq!(network("10.1.2.3").as_deref(), Some("10.1.0.0/16"));
    assert_eq!(network("::ffff:10.2.0.1").as_deref(), Some("10.0.0.0/8"));
    assert_eq!(network("2001:db8::1"), None);
}
