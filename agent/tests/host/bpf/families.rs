//! `[destinations]` holds for connections, however a gateway writes a network: policy, kernel table and `explain` agree on
//! every form of prefix, for sockets of both families.

use std::sync::atomic::{AtomicU32, Ordering};

use super::lifetime::Cgroup;
use super::*;
use crate::support::gateway::announced;

/// A host with three peers: one in a prefix that `[destinations]` names, one that it does not, and one of IPv6.
struct Peers {
    gateway: Gateway,
    agent: Agent,
    stream: Stream,
    /// Takes connections of both families, so that those of IPv4 have IPv4-mapped addresses.
    both: TcpListener,
    /// Takes those of IPv4 on a socket of IPv4.
    ipv4: TcpListener,
    mode: &'static str,
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

/// Largest start in the named prefix, where it is capped.
const CAP: u32 = 12;

/// How a gateway writes a network, the peers that it covers, and whether it shares an address with the named prefix.
const WRITTEN: [(&str, &[&str], bool); 15] = [
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
    async fn new(mode: &'static str, destinations: &str) -> Self {
        let held = MACHINE.read().await;
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        ip("link set lo mtu 1500 gso_max_segs 1");
        for address in [SERVER, FREE, NAMED] {
            _ = try_ip(&format!("addr add {address}/32 dev lo"));
            ip(&format!("route replace local {address} dev lo table local congctl cubic"));
        }
        for address in [SERVER_IPV6, IPV6] {
            _ = try_ip(&format!("-6 addr add {address}/128 dev lo nodad"));
            ip(&format!("-6 route replace local {address} dev lo table local congctl cubic"));
        }
        let mut gateway = Gateway::start().await;
        let sections = format!(
            "[bpf]\nname = \"f{number}\"\ncontrol_fraction = 0.0\n\n[policy]\nrtt_ratio_min = 0.000002\n\n[destinations]\n{destinations}"
        );
        let agent = Agent::start(&gateway, &format!("mode = \"{mode}\"\napply = \"bpf\""), &sections);
        let stream = gateway.snapshot(&[]).await;
        let both = TcpListener::bind("[::]:8000").unwrap();
        let ipv4 = TcpListener::bind((SERVER, 8_001)).unwrap();
        Self { gateway, agent, stream, both, ipv4, mode, _held: held }
    }

    /// Gives a share of 40 segments for a network as it is written, and for another one after it as a marker.
    async fn advise(&mut self, written: &str, marker: &str) {
        self.stream.send_written(UpdateEvent::Estimate(estimate("192.0.2.0/24", 40, 60)), written).await;
        self.stream.send(UpdateEvent::Estimate(estimate(marker, 40, 60))).await;
        let agent = &self.agent;
        eventually(written, || {
            let status = agent.json(&["status", "--json"]);
            status["in_force"].as_array().unwrap().iter().any(|one| one["prefix"] == marker)
        })
        .await;
    }

    async fn withdraw(&mut self, written: &str) {
        let network = "192.0.2.0/24".parse().unwrap();
        let event = UpdateEvent::Withdrawal { network, reason: WithdrawalReason::Retreat };
        self.stream.send_written(event, written).await;
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

    /// What a connection to a covered peer starts with: of 40 segments of 1,448 bytes, those of IPv6 being smaller by 20.
    fn granted(peer: &str) -> u32 {
        if peer == IPV6 { 41 } else { 40 }
    }

    /// Holds kernel and `explain` against the policy for every form of a network. `in_named`: the start where the network
    /// shares an address with the named prefix, if there is one.
    async fn hold(&mut self, in_named: Option<u32>) {
        for (index, (written, covered, overlaps)) in WRITTEN.into_iter().enumerate() {
            self.advise(written, &format!("198.51.{index}.0/24")).await;
            for peer in [FREE, NAMED, IPV6] {
                let start = if overlaps { in_named } else { Some(Self::granted(peer)) };
                let start = start.filter(|_| covered.contains(&peer));
                let mode = self.mode;
                for window in self.windows(peer) {
                    assert_eq!(window, start.unwrap_or(10), "{mode}: snd_cwnd towards {peer} with {written}");
                }
                let mss = if peer == IPV6 { "1428" } else { "1448" };
                let explained = self.agent.json(&["explain", "--json", peer, "--mss", mss]);
                let found = (explained["on_advice"].as_bool(), explained["cwnd_segments"].as_u64());
                let expected = (Some(start.is_some()), Some(u64::from(start.unwrap_or(10))));
                assert_eq!(found, expected, "{mode}: explain {peer} with {written}: {explained}");
            }
            self.withdraw(written).await;
        }
        self.gateway.stop();
    }
}

/// What `getsockopt(TCP_INFO)` gives.
fn snd_cwnd(socket: &TcpStream) -> u32 {
    // SAFETY: all of it may be zero.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&info)).unwrap();
    let value = (&raw mut info).cast();
    // SAFETY: value and length live as long as the call, and the length is that of the value.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length) };
    assert_eq!(done, 0);
    info.tcpi_snd_cwnd
}

#[test]
fn an_excluded_destination_stays_plain_however_a_network_is_written() {
    in_served_namespace(|| async {
        for (mode, prefix) in [("careful", "10.85.0.0/16"), ("paper", "::ffff:10.85.0.0/112")] {
            Peers::new(mode, &format!("exclude = [\"{prefix}\"]")).await.hold(None).await;
        }
    });
}

#[test]
fn a_capped_destination_stays_under_its_cap_however_a_network_is_written() {
    in_served_namespace(|| async {
        for (mode, prefix) in [("careful", "::ffff:10.85.0.0/112"), ("paper", "10.85.0.0/16")] {
            Peers::new(mode, &format!("caps = {{ \"{prefix}\" = {CAP} }}")).await.hold(Some(CAP)).await;
        }
    });
}

/// The kernel takes the locked value into a socket once it knows the peer (`tcp_init_metrics`), so with the second connection.
#[test]
fn a_route_that_locks_cwnd_bounds_a_start() {
    in_namespace(|| async {
        for (number, variant) in [(91, "stay"), (92, "hand_over"), (93, "sockops")] {
            let host = Host::new(number, "paper", "cubic", &format!("variant = \"{variant}\"")).await;
            ip(&format!("route replace local {} dev lo table local congctl cubic cwnd lock 14", host.client));
            let (mut server, mut client) = host.accepted();
            transfer(&mut server, &mut client, SEGMENT);
            drop((server, client));
            let known = || ip("tcp_metrics show").contains(&host.client.to_string());
            eventually("the kernel knows the peer", known).await;
            let (mut server, client) = host.accepted();
            lose_all(&client);
            server.write_all(&[7]).unwrap();
            assert_eq!(snd_cwnd(&server), 14, "{variant}");
            assert_eq!(host.counts("started"), 2, "{variant}");
        }
    });
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
    let seen = || host.agent.json(&["status", "--json"])["connections_seen"].clone();
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
        let text = String::from_utf8(host.agent.output(&["status"]).stdout).unwrap();
        assert!(text.contains("UNSEEN since") && text.contains("may be: the service's listening sockets"), "{text}");
        let (check, code) = doctor(&host);
        assert_eq!((&check["verdict"], code), (&"fail".into(), Some(2)), "{check}");
        assert!(check["to_do"].as_str().unwrap().contains("restart the service"), "{check}");
        let metrics = String::from_utf8(host.agent.output(&["metrics"]).stdout).unwrap();
        assert!(metrics.contains("spand_agent_connections_unseen 1"), "{metrics}");
        let mut unmatched = 0;
        while unmatched < 12 {
            unmatched += host.gateway.reported().await.pushes.unmatched;
        }
        drop(host);
    });
}

#[test]
fn connections_that_the_programs_see_are_reported_as_seen() {
    in_namespace(|| async {
        let mut host = Host::new(95, "careful", "cubic", "").await;
        let seen = judged(&mut host, "ok").await;
        assert_eq!((&seen["accepted"]["announced"], &seen["accepted"]["seen"]), (&12.into(), &12.into()));
        assert_eq!(seen["unseen_since"], serde_json::Value::Null);
        let text = String::from_utf8(host.agent.output(&["status"]).stdout).unwrap();
        assert!(text.contains("12 announced, 12 seen") && !text.contains("may be:"), "{text}");
        assert_eq!(doctor(&host).0["verdict"], "ok");
    });
}
