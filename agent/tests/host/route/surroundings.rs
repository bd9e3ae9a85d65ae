//! What others do to routes, links and rules, and what the agent may not do.

use super::*;

#[test]
fn a_new_next_hop_removes_ours_first_and_brings_it_back_by_the_new_one() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24", "2001:db8:77::/48"]).await;
        ip("route replace default via 10.2.0.1");
        eventually("the stale copy goes", || !ours().contains("192.0.2.0/24 via 10.1.0.1")).await;
        eventually("it comes back", || ours().contains("192.0.2.0/24 via 10.2.0.1 dev up1")).await;
        assert!(ours().contains("2001:db8:77::/48 via 2001:db8:1::1"), "the other family did not change");
        let applied = agent.json(&["status", "--json"])["method_events"].clone();
        assert_eq!(applied["removed_for_change"], 1, "{applied}");
        assert!(applied["stepped_back"].is_null(), "{applied}");
    });
}

#[test]
fn a_link_that_goes_down_and_up_is_not_taken_for_an_administrator() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        ip("link set up0 down");
        eventually("it is gone", || ours().is_empty()).await;
        ip("link set up0 up");
        ip("route replace default via 10.1.0.1");
        eventually("it comes back", || ours().contains("192.0.2.0/24 via 10.1.0.1")).await;
        let applied = agent.json(&["status", "--json"])["method_events"].clone();
        assert!(applied["stepped_back"].is_null(), "{applied}");
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
        let before = ip("route show") + &ip("-6 route show");
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
        let mut gateway = Gateway::start().await;
        let agent = Agent::start(&gateway, ROUTE, "");
        let estimates: Vec<_> = cases.iter().map(|(network, ..)| estimate(network, 40, 60)).collect();
        let _stream = gateway.snapshot(&estimates).await;
        for (network, destination, reason) in cases {
            let explained = || agent.json(&["explain", destination, "--json"]);
            eventually(network, || explained()["outcome"] == reason).await;
        }
        assert_eq!(ip("route show") + &ip("-6 route show"), before);
        assert_eq!(ours(), "");
    });
}

#[test]
fn policy_rules_of_someone_else_keep_that_family_plain() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24", "2001:db8:77::/48"]).await;
        // What a VPN does: a route in `main` more specific than the default would take traffic out of the tunnel.
        ip("rule add table main suppress_prefixlength 0 priority 100");
        eventually("the IPv4 route goes", || !ours().contains("192.0.2.0/24")).await;
        eventually("the IPv6 route comes back", || ours().contains("2001:db8:77::/48")).await;
        assert_eq!(agent.json(&["explain", "192.0.2.1", "--json"])["outcome"], "policy_routing");
    });
}

#[test]
fn the_agent_steps_back_where_an_administrator_acts() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let networks = ["192.0.2.0/24", "203.0.113.0/24"];
        let (mut agent, _stream) = agent_with(&mut gateway, &networks).await;

        ip("route add 192.0.2.0/24 via 10.2.0.1");
        eventually("ours gives way", || !ours().contains("192.0.2.0/24")).await;
        ip("route change 203.0.113.0/24 via 10.1.0.1 proto 83 metric 21328 initcwnd 7");
        let events = || agent.json(&["status", "--json"])["method_events"].clone();
        eventually("the change is noticed", || events()["administrator"] == 2).await;
        let theirs = "203.0.113.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 7";
        assert!(ours().contains(theirs) && !ours().contains("192.0.2.0/24"), "{}", ours());
        assert_eq!(agent.stop(), Some(0));
        assert!(ip("route show").contains("192.0.2.0/24 via 10.2.0.1 dev up1"));
        assert!(ours().contains("203.0.113.0/24"), "what an administrator changed is his");
    });
}

#[test]
fn routes_that_are_flushed_once_come_back() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let networks = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8:77::/48"];
        let (agent, _stream) = agent_with(&mut gateway, &networks).await;
        // As a network manager that is restarted does with the routes of all others.
        ip("route flush proto 83");
        let status = || agent.json(&["status", "--json"]);
        eventually("both are noticed", || status()["method_events"]["stepped_back"] == 2).await;
        eventually("they come back", || networks.iter().all(|network| ours().contains(network))).await;
        eventually("they are in force", || status()["in_force"].as_array().unwrap().len() == 3).await;
    });
}

#[test]
fn a_second_agent_in_the_same_namespace_is_refused() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (_agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
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
        // Of util-linux, as is `unshare`.
        let output = std::process::Command::new("setpriv")
            .args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_spand-agent")])
            .args(["run", "--config"])
            .arg(agent.config())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.starts_with("error: apply = \"route\" needs the capability CAP_NET_ADMIN"), "{text}");
    });
}

// Starts that the gateway announces.

#[test]
fn as_many_routes_as_allowed_and_announced_ones_first() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let _agent = Agent::start(&gateway, ROUTE, "[limits]\napplied = 2");
        let estimates: Vec<_> = (0..4).map(|n| estimate(&format!("192.0.{n}.0/24"), 40, 60)).collect();
        let mut stream = gateway.snapshot(&estimates).await;
        eventually("two are set", || ours().lines().count() == 2).await;
        assert!(!ours().contains("192.0.3.0/24"));
        stream.send(announced("192.0.3.0/24", "192.0.3.9")).await;
        eventually("the announced one comes", || ours().contains("192.0.3.0/24")).await;
        assert_eq!(ours().lines().count(), 2);
    });
}

#[test]
fn announced_starts_are_judged_and_reported() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, mut stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        // Changed by the announcement, and in force long before the 80 ms of a handshake.
        stream.send(announced("192.0.2.0/24", "192.0.2.9")).await;
        let pushes = || agent.json(&["status", "--json"])["pushes"].clone();
        eventually("judged", || pushes()["in_time"] == 1).await;
        // The packet was seen 90 ms ago, and its window was not in force then.
        stream.send(announced_late("198.51.100.0/24", "198.51.100.9")).await;
        eventually("judged", || pushes()["late"] == 1).await;
        stream.send(announced("10.1.0.0/24", "10.1.0.77")).await;
        eventually("judged", || pushes()["not_applied"] == 1).await;
        assert_eq!(pushes()["received"], 3);
        assert_eq!(agent.json(&["status", "--json"])["connections_seen"]["state"], "cannot_be_seen");

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
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, mut stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        stream.send(UpdateEvent::Estimate(estimate("192.0.2.9/32", 10, 60))).await;
        stream.send(UpdateEvent::Estimate(estimate("198.51.100.9/32", 10, 60))).await;
        let own = || ours().lines().any(|route| route.starts_with("192.0.2.9 ") && route.contains("initcwnd 10"));
        eventually("it does not start as its network", own).await;
        assert!(!ours().contains("198.51.100.9"), "alone it needs none");
        let explained = agent.json(&["explain", "--json", "192.0.2.9"]);
        assert_eq!((&explained["prefix"], &explained["cwnd_segments"]), (&"192.0.2.9/32".into(), &10.into()));
        assert!(explained.to_string().contains("advice of its own in 192.0.2.0/24"), "{explained}");
        let network = "192.0.2.9/32".parse().unwrap();
        stream.send(UpdateEvent::Withdrawal { network, reason: WithdrawalReason::Expired }).await;
        eventually("its network's advice holds again", || !own()).await;
        assert!(ours().contains("192.0.2.0/24"));
    });
}
