//! Starts that the gateway announces.

use super::*;

#[test]
fn as_many_routes_as_allowed_and_announced_ones_first() {
    in_namespace("limit", || async {
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
    in_namespace("announced", || async {
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
