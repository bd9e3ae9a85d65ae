//! A remote address with advice of its own, in a network that has some.

use super::*;

#[test]
fn an_address_whose_advice_is_plain_tcps_window_has_a_route_of_its_own() {
    in_namespace("own_advice", || async {
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
