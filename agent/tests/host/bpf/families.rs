//! `[destinations]` holds for connections, however a gateway writes a network: policy, kernel table and `explain` agree on
//! every form of prefix, for sockets of both families.

use std::sync::atomic::{AtomicU32, Ordering};

use super::lifetime::Cgroup;
use super::*;
use crate::support::gateway::{Written, announced, hold};

/// A host with three peers: one in a prefix that `[destinations]` names, one that it does not, and one of IPv6.
struct Peers {
    _gateway: Gateway,
    agent: Agent,
    /// Takes connections of both families, so that those of IPv4 have IPv4-mapped addresses.
    both: TcpListener,
    /// Takes those of IPv4 on a socket of IPv4.
    ipv4: TcpListener,
    // Dropped last.
    _held: RwLockReadGuard<'static, ()>,
}

/// Number of the next agent: the names of congestion controls are the whole machine's.
static NAMES: AtomicU32 = AtomicU32::new(0);

const SERVER: &str = "10.83.90.1";
const SERVER_IPV6: &str = "2001:db8:83::1";
const FREE: &str = "10.84.90.1";
/// Inside 10.85.0.0/16, the prefix of `[destinations]`.
const NAMED: &str = "10.85.90.1";
const IPV6: &str = "2001:db8:84::1";

/// How a gateway writes a network, the peers that it covers, and whether it shares an address with the named prefix.
const WRITTEN: [Written; 15] = [
    ("::/0", &[IPV6], false),
    ("::/1", &[IPV6], false),
    ("::ffff:0:0/80", &[], false),
    ("::ffff:0:0/90", &[], false),
    ("::ffff:0:0/95", &[], false),
    ("::ffff:0:0/96", &[FREE, NAMED], true),
    ("0.0.0.0/0", &[FREE, NAMED], true),
    ("::ffff:10.0.0.0/104", &[FREE, NAMED], true),
    ("10.0.0.0/8", &[FREE, NAMED], true),
    ("::ffff:10.85.90.0/120", &[NAMED], true),
    ("::ffff:10.85.90.1/128", &[NAMED], true),
    ("10.85.90.0/24", &[NAMED], true),
    ("::ffff:10.84.90.0/120", &[FREE], false),
    ("::ffff:10.84.90.1/128", &[FREE], false),
    ("10.84.90.0/24", &[FREE], false),
];

impl Peers {
    async fn new(mode: &str, destinations: &str) -> (Self, Stream) {
        let held = MACHINE.read().await;
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        ip("link set lo mtu 1500 gso_max_segs 1");
        add_addresses(&[SERVER, FREE, NAMED, SERVER_IPV6, IPV6], "cubic");
        let sections = format!(
            "[bpf]\nname = \"f{number}\"\ncontrol_fraction = 0.0\n\n[policy]\nrtt_ratio_min = 0.000002\n\n[destinations]\n{destinations}"
        );
        let (gateway, agent, stream) = advised(&format!("mode = \"{mode}\"\napply = \"bpf\""), &sections, &[]).await;
        let both = TcpListener::bind("[::]:8000").unwrap();
        let ipv4 = TcpListener::bind((SERVER, 8_001)).unwrap();
        (Self { agent, both, ipv4, _gateway: gateway, _held: held }, stream)
    }

    /// The windows with which connections to `peer` start: on a socket of IPv6 and, for a peer of IPv4, on one of IPv4.
    fn windows(&self, peer: &str) -> Vec<u32> {
        let peer: IpAddr = peer.parse().unwrap();
        let server: IpAddr = if peer.is_ipv4() { SERVER } else { SERVER_IPV6 }.parse().unwrap();
        let listeners = [&self.both, &self.ipv4].into_iter().take(if peer.is_ipv4() { 2 } else { 1 });
        listeners
            .map(|listener| {
                let to = SocketAddr::new(server, listener.local_addr().unwrap().port());
                let client = connect(bound(peer), to);
                let mut accepted = listener.accept().unwrap().0;
                // An acknowledgement would let it grow.
                lose_all(&client);
                accepted.write_all(&[7]).unwrap();
                snd_cwnd(&accepted)
            })
            .collect()
    }
}

#[test]
fn an_excluded_or_capped_destination_stays_so_however_a_network_is_written() {
    for (mode, prefix, cap) in [
        ("careful", "10.85.0.0/16", None),
        ("paper", "::ffff:10.85.0.0/112", None),
        ("careful", "::ffff:10.85.0.0/112", Some(12)),
        ("paper", "10.85.0.0/16", Some(12)),
    ] {
        in_served_namespace(|| async {
            let exclude = format!("exclude = [\"{prefix}\"]");
            let destinations = cap.map_or(exclude, |cap| format!("caps = {{ \"{prefix}\" = {cap} }}"));
            let (peers, mut stream) = Peers::new(mode, &destinations).await;
            // A share of 40 segments of 1,448 bytes; those of IPv6 are smaller by 20.
            let granted = |peer: &str| if peer == IPV6 { (41, "1428") } else { (40, "1448") };
            let windows = |peer: &str| peers.windows(peer);
            hold(mode, (&peers.agent, &mut stream), &WRITTEN, [FREE, NAMED, IPV6], cap, granted, windows).await;
        });
    }
}

/// The kernel takes the locked value into a socket once it knows the peer (`tcp_init_metrics`), so with the second connection.
#[test]
fn a_route_that_locks_cwnd_bounds_a_start() {
    for (number, variant) in [(91, "stay"), (92, "hand_over"), (93, "sockops")] {
        on_host(number, "paper", "cubic", &format!("variant = \"{variant}\""), async |host| {
            ip(&format!("route replace local {} dev lo table local congctl cubic cwnd lock 14", host.client));
            host.sent(1);
            let known = || ip("tcp_metrics show").contains(&host.client.to_string());
            eventually("the kernel knows the peer", known).await;
            assert_eq!(snd_cwnd(&host.unanswered(1).0), 14, "{variant}");
            assert_eq!(host.counts("started"), 2, "{variant}");
        });
    }
}

// Announced starts against connections that the programs see.

/// Announces and makes a dozen connections, and waits for what the agent makes of them.
async fn judged(host: &mut Host, state: &str) -> serde_json::Value {
    let listener = listen(host.server);
    for _ in 0..12 {
        let remote = host.client.to_string();
        host.stream.send(announced(&host.network.clone(), &remote)).await;
        drop(host.connection(&listener));
    }
    let seen = || host.agent.status()["connections_seen"].clone();
    eventually(state, || seen()["state"] == *state).await;
    seen()
}

/// The check of `doctor`, and its exit code.
fn doctor(host: &Host) -> (serde_json::Value, Option<i32>) {
    let output = host.agent.output(&["doctor", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "connections_seen").expect("the check");
    (check.clone(), output.status.code())
}

#[test]
fn connections_of_sockets_made_outside_the_cgroup_are_reported_as_unseen() {
    in_namespace(|| async {
        let cgroup = Cgroup::new("spand-test-unseen");
        let mut host = Host::new(94, "careful", "cubic", &format!("cgroup = \"{}\"", cgroup.0.display())).await;
        let seen = judged(&mut host, "unseen").await;
        assert_eq!((&seen["accepted"]["unseen"], &seen["opened"]["unseen"]), (&true.into(), &false.into()));
        assert_eq!((&seen["accepted"]["announced"], &seen["accepted"]["seen"]), (&12.into(), &0.into()));
        assert!(seen["unseen_since"].is_string(), "{seen}");
        assert_has(&host.agent.prints(&["status"]), &["UNSEEN since", "may be: the service's listening sockets"]);
        let (check, code) = doctor(&host);
        assert_eq!((&check["verdict"], code), (&"fail".into(), Some(2)), "{check}");
        assert!(check["to_do"].as_str().unwrap().contains("restart the service"), "{check}");
        assert_has(&host.agent.prints(&["metrics"]), &["spand_agent_connections_unseen 1"]);
        let mut unmatched = 0;
        while unmatched < 12 {
            unmatched += host.gateway.reported().await.pushes.unmatched;
        }
        drop(host);
    });
}

#[test]
fn connections_that_the_programs_see_are_reported_as_seen() {
    on_host(95, "careful", "cubic", "", async |mut host| {
        let seen = judged(&mut host, "ok").await;
        assert_eq!((&seen["accepted"]["announced"], &seen["accepted"]["seen"]), (&12.into(), &12.into()));
        assert_eq!(seen["unseen_since"], serde_json::Value::Null);
        let text = host.agent.prints(&["status"]);
        assert!(text.contains("12 announced, 12 seen") && !text.contains("may be:"), "{text}");
        assert_eq!(doctor(&host).0["verdict"], "ok");
    });
}
