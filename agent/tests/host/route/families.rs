//! `[destinations]` holds for routes, however a gateway writes a network.

use super::*;

/// How a gateway writes a network, the destinations that it covers, and whether it shares an address with 192.0.0.0/16.
///
/// Those around a default route or a link's own network are never applied (`administrator`, `more_specific`, `no_route`).
const WRITTEN: [(&str, &[&str], bool); 12] = [
    ("::/0", &[], false),
    ("::/1", &[], false),
    ("::ffff:0:0/90", &[], false),
    ("::ffff:0:0/95", &[], false),
    ("::ffff:0:0/96", &[], true),
    ("0.0.0.0/0", &[], true),
    ("::ffff:192.0.0.0/104", &[FREE, NAMED], true),
    ("::ffff:192.0.2.0/120", &[NAMED], true),
    ("::ffff:192.0.2.7/128", &[NAMED], true),
    ("192.0.2.0/24", &[NAMED], true),
    ("::ffff:192.88.99.0/120", &[FREE], false),
    ("2001:db8:77::/48", &[IPV6], false),
];

const NAMED: &str = "192.0.2.7";
const FREE: &str = "192.88.99.7";
const IPV6: &str = "2001:db8:77::7";

/// Holds the kernel's routes and `explain` against the policy; `named`: the window in the named prefix, if there is one.
async fn hold(mode: &str, destinations: &str, named: Option<u32>) {
    let mut gateway = Gateway::start().await;
    let agent =
        Agent::start(&gateway, &format!("mode = \"{mode}\"\n{ROUTE}"), &format!("[destinations]\n{destinations}"));
    let mut stream = gateway.snapshot(&[]).await;
    for (index, (written, covered, overlaps)) in WRITTEN.into_iter().enumerate() {
        stream.send_written(UpdateEvent::Estimate(estimate("192.0.2.0/24", 40, 60)), written).await;
        // The network after it shows when it is known.
        let marker = format!("198.51.{index}.0/24");
        stream.send(UpdateEvent::Estimate(estimate(&marker, 40, 60))).await;
        eventually(written, || ours().contains(&marker)).await;
        for destination in [FREE, NAMED, IPV6] {
            let granted = if mode == "careful" { 20 } else { 40 };
            let window = if overlaps { named } else { Some(granted) }.filter(|_| covered.contains(&destination));
            let route = ip(&format!("route get {destination}"));
            let found =
                route.split_once("initcwnd ").map(|(_, rest)| rest.split_whitespace().next().unwrap().to_owned());
            assert_eq!(found, window.map(|window| window.to_string()), "{mode}: {destination} with {written}: {route}");
            let explained = agent.json(&["explain", "--json", destination]);
            let found = (explained["on_advice"].as_bool(), explained["cwnd_segments"].as_u64());
            let expected = (Some(window.is_some()), Some(u64::from(window.unwrap_or(10))));
            assert_eq!(found, expected, "{mode}: explain {destination} with {written}: {explained}");
        }
        let network = "192.0.2.0/24".parse().unwrap();
        let event = UpdateEvent::Withdrawal { network, reason: WithdrawalReason::Retreat };
        stream.send_written(event, written).await;
    }
}

#[test]
fn routes_keep_to_exclude_and_caps_however_a_network_is_written() {
    in_served_namespace(|| async {
        two_uplinks();
        for mode in ["careful", "paper"] {
            hold(mode, "exclude = [\"192.0.0.0/16\"]", None).await;
            hold(mode, "caps = { \"::ffff:192.0.0.0/112\" = 12 }", Some(12)).await;
        }
    });
}

#[test]
fn a_route_of_ours_keeps_a_lock_of_cwnd() {
    in_namespace(|| async {
        two_uplinks();
        ip("route add 192.0.0.0/16 via 10.1.0.1 cwnd lock 14");
        let mut gateway = Gateway::start().await;
        let _agent = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        assert!(ours().contains("cwnd lock 14 initcwnd 20"), "{}", ours());
    });
}
