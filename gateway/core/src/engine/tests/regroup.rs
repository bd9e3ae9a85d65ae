//! Other prefixes under connections and networks that are there.

use ipnet::IpNet;
use spand_proto::network::Network;

use super::*;
use crate::networks::Withdrawal;

fn list(prefixes: &[&str]) -> Vec<IpNet> {
    prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect()
}

/// Reports show what ends with a connection.
fn engine() -> Engine {
    let mut engine = Engine::new(EngineConfig { internal: list(&["192.0.2.0/24"]), ..EngineConfig::default() });
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &transfer(100, 5_001, 10));
    engine
}

fn withdrawn(engine: &mut Engine) -> Vec<(Network, Withdrawal)> {
    let events = std::iter::from_fn(|| engine.poll_event());
    let withdrawn = events.filter_map(|event| match event {
        Event::Withdrawn { network, reason } => Some((network, reason)),
        _ => None,
    });
    withdrawn.collect()
}

#[test]
fn a_connection_that_other_prefixes_leave_as_it_was_goes_on() {
    let mut engine = engine();
    assert_eq!(engine.set_prefixes(list(&["192.0.2.0/25"]), list(&["203.0.113.0/25"])), 0);
    feed(&mut engine, &transfer(10_000, 5_001 + 10 * 1_460, 10));
    let counters = engine.counters();
    assert_eq!((engine.connections(), counters.connections, counters.connections_midstream), (1, 1, 0));
}

#[test]
fn a_connection_whose_network_changed_ends_and_is_opened_again_and_one_without_an_inside_end_ends() {
    let mut engine = engine();
    // The network is there still, for its other addresses.
    assert_eq!(engine.set_prefixes(list(&["192.0.2.0/24"]), list(&["198.51.100.0/25"])), 0);
    assert_eq!((engine.connections(), engine.counters().connections_ended), (0, 1));
    feed(&mut engine, &transfer(10_000, 5_001 + 10 * 1_460, 10));
    assert_eq!((engine.connections(), engine.counters().connections_midstream), (1, 1));

    engine.set_prefixes(list(&["10.0.0.0/8"]), list(&["198.51.100.0/25"]));
    feed(&mut engine, &transfer(20_000, 5_001 + 20 * 1_460, 1));
    assert_eq!((engine.connections(), engine.counters().ignored(Ignored::NotInternal)), (0, 2));
}

#[test]
fn networks_that_the_list_does_not_make_any_more_are_withdrawn_and_the_others_keep_what_they_hold() {
    let mut engine = Engine::new(EngineConfig { internal: list(&["192.0.2.0/24"]), ..EngineConfig::default() });
    for host in 1..=4 {
        for other in [100, 101] {
            let mut segments: Vec<_> = handshake(100).into_iter().chain(transfer(100, 5_001, 12)).collect();
            for segment in &mut segments {
                let client = if segment.source.port == 80 { &mut segment.destination } else { &mut segment.source };
                client.address = IpAddr::from([198, 51, other, host]);
                segment.at = segment.at.after(Micros::from_millis(1_000 * u64::from(host)));
            }
            feed(&mut engine, &segments);
        }
    }
    // Round trips are flushed; an estimate takes samples, which the end of a connection gives.
    let [gone, kept] = ["198.51.100.0/24", "198.51.101.0/24"].map(|network| network.parse::<Network>().unwrap());
    assert_eq!(engine.network_count(), 2);
    engine.changed_records(10);
    _ = withdrawn(&mut engine);
    let dropped = engine.set_prefixes(list(&["192.0.2.0/24"]), list(&["198.51.100.0/23", "198.51.101.0/24"]));
    assert_eq!((dropped, engine.network_count()), (1, 1));
    assert_eq!(engine.networks(ms(5_000)).iter().map(|view| view.network).collect::<Vec<_>>(), [kept]);
    assert!(engine.changed_records(10).iter().any(|(network, record)| *network == gone && record.is_none()));
    assert!(withdrawn(&mut engine).iter().all(|(network, why)| *network == gone && *why == Withdrawal::Administrator));
    assert_eq!(engine.connections(), 4, "those of the other network go on");
}
