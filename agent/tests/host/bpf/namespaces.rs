//! Sockets of other network namespaces, with the same addresses.

use std::collections::BTreeMap;

use nix::sched::{CloneFlags, unshare};

use super::*;

/// Connections made in each of the other namespaces.
const CONNECTIONS: usize = 5;

/// In a namespace of its own with the addresses of `host`, connections that send more than a default window: the congestion
/// controls at their ends afterwards, and what became of a stated size.
fn elsewhere(host: &Host) -> Vec<(Vec<String>, Result<(), i32>)> {
    std::thread::scope(|scope| {
        let connections = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo mtu 1500 gso_max_segs 1 up");
            add_addresses(&[&host.server.ip().to_string(), &host.client.to_string()], "cubic");
            let connection = |_| {
                let (mut server, mut client) = host.accepted();
                let stated = state_size(&server, 10_000_000);
                transfer(&mut server, &mut client, 60 * SEGMENT);
                (ss_words(&server), stated)
            };
            (0..CONNECTIONS).map(connection).collect()
        });
        connections.join().unwrap()
    })
}

/// All counters of connections.
fn all_counts(host: &Host) -> BTreeMap<String, u64> {
    let counts = host.agent.status()["method_events"].clone();
    let mut counts: BTreeMap<String, u64> = serde_json::from_value(counts).unwrap();
    // Of the table of networks, which has nothing to do with them.
    counts.retain(|name, _| !name.starts_with("networks_"));
    counts
}

#[test]
fn the_same_addresses_in_other_namespaces_are_left_alone_and_not_counted() {
    in_namespace(|| async {
        let host = Host::alone(96, "paper", "cubic", "control_fraction = 0.5\nwindow_option = true").await;
        let mut before = all_counts(&host);
        before.remove("other_namespace");
        for round in 1..=2 {
            for (words, stated) in elsewhere(&host) {
                assert!(words.iter().any(|word| word == "cubic"), "{words:?}");
                assert_eq!((number(&words, "ssthresh"), stated), (None, Err(libc::ENOPROTOOPT)), "{words:?}");
            }
            // Both ends of each, and those of other tests.
            let mut counts = all_counts(&host);
            assert!(counts.remove("other_namespace") >= Some(2 * round * CONNECTIONS as u64));
            assert_eq!(counts, before);
        }
        let status = host.agent.status();
        assert_eq!(
            (&status["connections_seen"]["accepted"]["seen"], &status["transfers_paused"]),
            (&0.into(), &0.into())
        );
        let text = host.agent.prints(&["status"]);
        let at_least_both_rounds = |text: &str, before: &str| {
            let number =
                text.split(before).nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
            assert!(number >= Some(4 * CONNECTIONS), "{before}: {text}");
        };
        at_least_both_rounds(&text, "of other network namespaces, left alone: ");
        let metrics = host.agent.prints(&["metrics"]);
        at_least_both_rounds(&metrics, "spand_agent_applied_total{event=\"other_namespace\"} ");
        // The agent's own is looked at.
        drop(host.accepted());
        eventually("it is seen", || host.counts("seen_accepted") == 1).await;
    });
}

#[test]
fn the_same_addresses_in_other_namespaces_are_started_where_all_are_asked_for() {
    in_namespace(|| async {
        let host =
            Host::alone(97, "paper", "cubic", "control_fraction = 0.0\ncheck = false\nnamespaces = \"all\"").await;
        for (words, stated) in elsewhere(&host) {
            assert!(words.iter().any(|word| word == "t97_cubic"), "{words:?}");
            assert_eq!(stated, Ok(()));
        }
        assert_eq!((host.counts("started"), host.counts("other_namespace")), (CONNECTIONS as u64, 0));
    });
}

// A place in the table of budgets that is another network's by the time that a connection speaks of it.

/// A host whose first network gave its place to a second one, and the connections to the first that still have their flights
/// out. `host.client` is in the second network.
async fn moved_on(number: u8, connections: usize, round_trip: Micros) -> (Host, Vec<(TcpStream, TcpStream)>) {
    let mut host =
        Host::new(number, "careful", "cubic", "\n[policy]\ncap_segments = 40\nrtt_ratio_min = 0.0000001").await;
    let advice = |network: &str| {
        let mut update = estimate(network, 100, 60);
        update.estimate.rtt_mean = Some(round_trip);
        update.lease = Some(Segments(200));
        UpdateEvent::Estimate(update)
    };
    host.stream.send(advice(&host.network)).await;
    eventually("the lease is known", || host.counts("networks_changed") == 1).await;
    let listener = listen(host.server);
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(in_flight(&host, &listener));
    }
    host.stream.withdraw(&host.network).await;
    eventually("the first network is gone", || host.counts("networks_removed") == 1).await;

    host.move_to(&format!("10.84.{number}.129"));
    host.stream.send(advice(&format!("10.84.{number}.128/25"))).await;
    eventually("the second network is known", || host.counts("networks_added") == 2).await;
    (host, open)
}

/// A connection whose first flight is never acknowledged.
fn in_flight(host: &Host, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let (mut server, client) = host.connection(listener);
    send_into_the_void(&mut server, &client, 60);
    (server, client)
}

#[test]
fn what_is_given_back_late_is_not_given_to_another_network() {
    in_namespace(|| async {
        let (host, mut open) = moved_on(60, 1, Micros::from_secs(4)).await;
        let listener = listen(host.server);
        let _second = in_flight(&host, &listener);
        host.assert_leased(30, 200);
        // What it was granted was another network's.
        reset(open.pop().unwrap().0);
        host.assert_leased(30, 200);
    });
}

#[test]
fn losses_are_not_held_against_another_network() {
    in_namespace(|| async {
        let (mut host, _open) = moved_on(61, 6, Micros::from_millis(100)).await;
        let lost = host.reported(6).await;
        assert!(lost.iter().all(|report| report.first_flight.is_some_and(FirstFlightLoss::is_most)), "{lost:?}");
        assert_eq!(host.threshold(), Some(100), "held back");
    });
}
