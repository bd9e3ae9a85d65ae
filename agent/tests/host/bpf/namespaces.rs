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
            for address in [host.server.ip(), host.client] {
                ip(&format!("addr add {address}/32 dev lo"));
                ip(&format!("route replace local {address} dev lo table local congctl cubic"));
            }
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
    let counts = host.agent.json(&["status", "--json"])["method_events"].clone();
    let mut counts: BTreeMap<String, u64> = serde_json::from_value(counts).unwrap();
    // Of the table of networks, which has nothing to do with them.
    counts.retain(|name, _| !name.starts_with("networks_"));
    counts
}

#[test]
fn the_same_addresses_in_other_namespaces_are_left_alone_and_not_counted() {
    in_namespace("bpf_namespaces", || async {
        let host = Host::with(96, "paper", "cubic", "control_fraction = 0.5\nwindow_option = true").await;
        let before = all_counts(&host);
        for round in 1..=2 {
            for (words, stated) in elsewhere(&host) {
                assert!(words.iter().any(|word| word == "cubic"), "{words:?}");
                assert_eq!((number(&words, "ssthresh"), stated), (None, Err(libc::ENOPROTOOPT)), "{words:?}");
            }
            // Both ends of each.
            let mut expected = before.clone();
            expected.insert("other_namespace".to_owned(), 2 * round * CONNECTIONS as u64);
            assert_eq!(all_counts(&host), expected);
        }
        let status = host.agent.json(&["status", "--json"]);
        assert_eq!(
            (&status["connections_seen"]["accepted"]["seen"], &status["transfers_paused"]),
            (&0.into(), &0.into())
        );
        let text = String::from_utf8(host.agent.output(&["status"]).stdout).unwrap();
        assert!(text.contains("of other network namespaces, left alone: 20"), "{text}");
        let metrics = String::from_utf8(host.agent.output(&["metrics"]).stdout).unwrap();
        assert!(metrics.contains("spand_agent_applied_total{event=\"other_namespace\"} 20"), "{metrics}");
        // The agent's own is looked at.
        drop(host.accepted());
        eventually("it is seen", || host.counts("seen_accepted") == 1).await;
    });
}

#[test]
fn the_same_addresses_in_other_namespaces_are_started_where_all_are_asked_for() {
    in_namespace("bpf_all_namespaces", || async {
        let host = Host::new(97, "paper", "cubic", "namespaces = \"all\"").await;
        for (words, stated) in elsewhere(&host) {
            assert!(words.iter().any(|word| word == "t97_cubic"), "{words:?}");
            assert_eq!(stated, Ok(()));
        }
        assert_eq!((host.counts("started"), host.counts("other_namespace")), (CONNECTIONS as u64, 0));
    });
}
