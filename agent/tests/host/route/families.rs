//! `[destinations]` holds for routes, however a gateway writes a network.

use super::*;
use crate::support::gateway::{Written, hold};

/// How a gateway writes a network, the destinations that it covers, and whether it shares an address with 192.0.0.0/16.
///
/// Those around a default route or a link's own network are never applied (`administrator`, `more_specific`, `no_route`).
const WRITTEN: [Written; 12] = [
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

#[test]
fn routes_keep_to_exclude_and_caps_however_a_network_is_written() {
    in_served_namespace(|| async {
        two_uplinks();
        let (exclude, cap) = ("exclude = [\"192.0.0.0/16\"]", "caps = { \"::ffff:192.0.0.0/112\" = 12 }");
        for (mode, granted, destinations, named) in [
            ("careful", 20, exclude, None),
            ("careful", 20, cap, Some(12)),
            ("paper", 40, exclude, None),
            ("paper", 40, cap, Some(12)),
        ] {
            let (top, sections) = (format!("mode = \"{mode}\"\n{ROUTE}"), format!("[destinations]\n{destinations}"));
            let (_gateway, agent, mut stream) = advised(&top, &sections, &[]).await;
            let window = |address: &str| {
                let route = ip(&format!("route get {address}"));
                let window =
                    route.split_once("initcwnd ").map(|(_, rest)| rest.split_whitespace().next().unwrap().parse());
                vec![window.map_or(10, Result::unwrap)]
            };
            let granted = |_: &str| (granted, "1448");
            hold(mode, (&agent, &mut stream), &WRITTEN, [FREE, NAMED, IPV6], named, granted, window).await;
        }
    });
}

#[test]
fn a_route_of_ours_keeps_a_lock_of_cwnd() {
    in_namespace(|| async {
        two_uplinks();
        ip("route add 192.0.0.0/16 via 10.1.0.1 cwnd lock 14");
        let _advised = agent_with(&["192.0.2.0/24"]).await;
        assert_has(&ours(), &["cwnd lock 14 initcwnd 20"]);
    });
}
