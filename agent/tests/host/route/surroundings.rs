//! What others do to routes, links and rules, and what the agent may not do.

use super::*;

#[test]
fn a_new_next_hop_removes_ours_first_and_brings_it_back_by_the_new_one() {
    on_routes(&["192.0.2.0/24", "2001:db8:77::/48"], async |_gateway, agent, _stream| {
        ip("route replace default via 10.2.0.1");
        eventually("the stale copy goes", || !ours().contains("192.0.2.0/24 via 10.1.0.1")).await;
        eventually("it comes back", || ours().contains("192.0.2.0/24 via 10.2.0.1 dev up1")).await;
        assert!(ours().contains("2001:db8:77::/48 via 2001:db8:1::1"), "the other family did not change");
        assert_eq!((agent.counts("removed_for_change"), agent.counts("stepped_back")), (1, 0));
    });
}

#[test]
fn a_link_that_goes_down_and_up_is_not_taken_for_an_administrator() {
    on_routes(&["192.0.2.0/24"], async |_gateway, agent, _stream| {
        ip("link set up0 down");
        eventually("it is gone", || ours().is_empty()).await;
        ip("link set up0 up");
        ip("route replace default via 10.1.0.1");
        eventually("it comes back", || ours().contains("192.0.2.0/24 via 10.1.0.1")).await;
        assert_eq!(agent.counts("stepped_back"), 0);
    });
}

#[test]
fn what_cannot_be_copied_faithfully_is_refused_with_its_reason() {
    in_namespace(|| async {
        two_uplinks();
        ip("route add 198.51.0.0/16 nexthop via 10.1.0.1 nexthop via 10.2.0.1");
        ip("route add 100.64.0.0/16 dev up0");
        ip("route add 203.0.113.0/24 via 10.1.0.1 proto static");
        ip("route add 192.0.2.128/25 via 10.2.0.1");
        ip("route add blackhole 198.18.0.0/15");
        ip("route add 172.16.0.0/12 via 10.1.0.1 initcwnd 15");
        ip("-6 route add 2001:db8:aa00::/40 nexthop via 2001:db8:1::1 dev up0 nexthop via 2001:db8:2::1 dev up1");
        let before = all_routes();
        let cases = [
            ("198.51.100.0/24", "198.51.100.1", "multipath"),
            ("100.64.7.0/24", "100.64.7.1", "on_link"),
            ("203.0.113.0/24", "203.0.113.1", "administrator"),
            ("192.0.2.0/24", "192.0.2.1", "more_specific"),
            ("198.18.5.0/24", "198.18.5.1", "not_copyable"),
            ("172.16.9.0/24", "172.16.9.1", "administrator"),
            ("10.1.0.0/24", "10.1.0.9", "administrator"),
            ("2001:db8:aa11::/48", "2001:db8:aa11::1", "multipath"),
        ];
        let estimates: Vec<_> = cases.iter().map(|(network, ..)| estimate(network, 40, 60)).collect();
        let (_gateway, agent, _stream) = advised(ROUTE, "", &estimates).await;
        for (network, destination, reason) in cases {
            eventually(network, || agent.outcome(destination) == reason).await;
        }
        assert_eq!(all_routes(), before);
        assert_eq!(ours(), "");
    });
}

#[test]
fn policy_rules_of_someone_else_keep_that_family_plain() {
    on_routes(&["192.0.2.0/24", "2001:db8:77::/48"], async |_gateway, agent, _stream| {
        // What a VPN does: a route in `main` more specific than the default would take traffic out of the tunnel.
        ip("rule add table main suppress_prefixlength 0 priority 100");
        eventually("the IPv4 route goes", || !ours().contains("192.0.2.0/24")).await;
        eventually("the IPv6 route comes back", || ours().contains("2001:db8:77::/48")).await;
        assert_eq!(agent.outcome("192.0.2.1"), "policy_routing");
    });
}

#[test]
fn the_agent_steps_back_where_an_administrator_acts() {
    on_routes(&["192.0.2.0/24", "203.0.113.0/24"], async |_gateway, mut agent, _stream| {
        ip("route add 192.0.2.0/24 via 10.2.0.1");
        eventually("ours gives way", || !ours().contains("192.0.2.0/24")).await;
        ip("route change 203.0.113.0/24 via 10.1.0.1 proto 83 metric 21328 initcwnd 7");
        eventually("the change is noticed", || agent.counts("administrator") == 2).await;
        let theirs = "203.0.113.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 7";
        assert!(ours().contains(theirs) && !ours().contains("192.0.2.0/24"), "{}", ours());
        assert_eq!(agent.stop(), Some(0));
        assert!(ip("route show").contains("192.0.2.0/24 via 10.2.0.1 dev up1"));
        assert!(ours().contains("203.0.113.0/24"), "what an administrator changed is his");
    });
}

#[test]
fn routes_that_are_flushed_once_come_back() {
    let networks = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8:77::/48"];
    on_routes(&networks, async |_gateway, agent, _stream| {
        // As a network manager that is restarted does with the routes of all others.
        ip("route flush proto 83");
        eventually("both are noticed", || agent.counts("stepped_back") == 2).await;
        eventually("they come back", || networks.iter().all(|network| ours().contains(network))).await;
        eventually("they are in force", || agent.in_force() == 3).await;
    });
}

#[test]
fn a_second_agent_in_the_same_namespace_is_refused() {
    on_routes(&["192.0.2.0/24"], async |gateway, _agent, _stream| {
        let mut second = Agent::start(&gateway, ROUTE, "");
        assert_eq!(second.ended(), Some(1));
        assert!(ours().contains("192.0.2.0/24"));
    });
}

#[test]
fn without_the_right_to_change_routes_it_says_so_and_ends() {
    in_namespace(|| async {
        let gateway = Gateway::start().await;
        let agent = Agent::stopped();
        agent.configure(&gateway, ROUTE, "");
        let mut command = Agent::limited("-net_admin", "-net_admin");
        let (text, code) = printed(&command.args(["run", "--config"]).arg(agent.config()).output().unwrap());
        assert_eq!(code, Some(1), "{text}");
        assert!(text.starts_with("error: apply = \"route\" needs the capability CAP_NET_ADMIN"), "{text}");
    });
}

// Starts that the gateway announces.

#[test]
fn as_many_routes_as_allowed_and_announced_ones_first() {
    in_namespace(|| async {
        two_uplinks();
        let estimates: Vec<_> = (0..4).map(|n| estimate(&format!("192.0.{n}.0/24"), 40, 60)).collect();
        let (_gateway, _agent, mut stream) = advised(ROUTE, "[limits]\napplied = 2", &estimates).await;
        eventually("two are set", || ours().lines().count() == 2).await;
        assert!(!ours().contains("192.0.3.0/24"));
        stream.send(announced("192.0.3.0/24", "192.0.3.9")).await;
        eventually("the announced one comes", || ours().contains("192.0.3.0/24")).await;
        assert_eq!(ours().lines().count(), 2);
    });
}

#[test]
fn announced_starts_are_judged_and_reported() {
    on_routes(&["192.0.2.0/24"], async |mut gateway, agent, mut stream| {
        // Changed by the announcement, and in force long before the 80 ms of a handshake.
        stream.send(announced("192.0.2.0/24", "192.0.2.9")).await;
        let pushes = || agent.status()["pushes"].clone();
        eventually("judged", || pushes()["in_time"] == 1).await;
        // The packet was seen 90 ms ago, and its window was not in force then.
        stream.send(announced_late("198.51.100.0/24", "198.51.100.9")).await;
        eventually("judged", || pushes()["late"] == 1).await;
        stream.send(announced("10.1.0.0/24", "10.1.0.77")).await;
        eventually("judged", || pushes()["not_applied"] == 1).await;
        assert_eq!(pushes()["received"], 3);
        assert_eq!(agent.status()["connections_seen"]["state"], "cannot_be_seen");

        let mut counted = (0, 0, 0);
        while counted != (3, 1, 1) {
            let report = gateway.reported().await;
            let pushes = report.pushes;
            counted = (counted.0 + pushes.received, counted.1 + pushes.in_time, counted.2 + pushes.late);
        }
    });
}

// A remote address with advice of its own, in a network that has some.

#[test]
fn an_address_whose_advice_is_plain_tcps_window_has_a_route_of_its_own() {
    on_routes(&["192.0.2.0/24"], async |_gateway, agent, mut stream| {
        stream.advise("192.0.2.9/32", 10, 60).await;
        stream.advise("198.51.100.9/32", 10, 60).await;
        let own = || ours().lines().any(|route| route.starts_with("192.0.2.9 ") && route.contains("initcwnd 10"));
        eventually("it does not start as its network", own).await;
        assert!(!ours().contains("198.51.100.9"), "alone it needs none");
        let explained = agent.json(&["explain", "--json", "192.0.2.9"]);
        assert_eq!((&explained["prefix"], &explained["cwnd_segments"]), (&"192.0.2.9/32".into(), &10.into()));
        assert!(explained.to_string().contains("advice of its own in 192.0.2.0/24"), "{explained}");
        stream.withdraw("192.0.2.9/32").await;
        eventually("its network's advice holds again", || !own()).await;
        assert!(ours().contains("192.0.2.0/24"));
    });
}
