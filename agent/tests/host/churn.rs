//! Routes, links and advice that change at random under a running agent.

use std::time::Duration;

use spand_proto::push::{UpdateEvent, WithdrawalReason};

use crate::support::agent::Agent;
use crate::support::gateway::{Gateway, Stream, estimate};
use crate::support::namespace::{in_namespace, ip, try_ip, two_uplinks};
use crate::support::patience::eventually;

/// Networks 100.64.0.0/24 to 100.64.9.0/24.
const NETWORKS: u64 = 10;
const STEPS: u32 = 120;

/// Numbers that look random and are the same in every run with the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % limit
    }
}

/// Every IPv4 route but those with the agent's number, without the kernel's remarks about links.
fn foreign() -> Vec<String> {
    let theirs = |line: &&str| !line.contains("proto 83");
    let plain = |line: &str| line.replace(" linkdown", "").replace(" dead", "");
    let mut routes: Vec<String> = ip("-4 route show table all").lines().filter(theirs).map(plain).collect();
    routes.sort();
    routes
}

/// What an administrator, a link or the gateway may do. An `ip` that fails (a route that is there already) is part of it.
async fn step(dice: &mut Dice, stream: &mut Stream) {
    let network = format!("100.64.{}.0/24", dice.below(NETWORKS));
    let uplink = dice.below(2);
    let gateway = format!("10.{}.0.1", uplink + 1);
    match dice.below(10) {
        0 => _ = try_ip(&format!("route replace default via {gateway}")),
        1 => _ = try_ip(&format!("route add {network} via {gateway}")),
        2 => _ = try_ip(&format!("route del {network} proto boot")),
        3 => _ = try_ip(&format!("route replace 100.64.0.0/21 via {gateway}")),
        4 => _ = try_ip("route del 100.64.0.0/21"),
        5 => _ = try_ip(&format!("link set up{uplink} down")),
        6 => {
            for n in 0..2 {
                _ = try_ip(&format!("link set up{n} up"));
            }
            _ = try_ip(&format!("route replace default via {gateway}"));
        }
        7 => {
            let reason = WithdrawalReason::TooFew;
            stream.send(UpdateEvent::Withdrawal { network: network.parse().unwrap(), reason }).await;
        }
        _ => {
            let share = 24 + u32::try_from(dice.below(30)).unwrap();
            stream.send(UpdateEvent::Estimate(estimate(&network, share, 60))).await;
        }
    }
}

#[test]
fn no_foreign_route_is_touched_and_no_copy_is_stale_however_things_change() {
    in_namespace("churn", || async {
        for seed in [1, 4] {
            churn(seed).await;
        }
    });
}

async fn churn(seed: u64) {
    if seed == 1 {
        two_uplinks();
    }
    let mut gateway = Gateway::start().await;
    let mut agent = Agent::start(&gateway, "apply = \"route\"", "");
    let estimates: Vec<_> = (0..NETWORKS).map(|n| estimate(&format!("100.64.{n}.0/24"), 40, 60)).collect();
    let mut stream = gateway.snapshot(&estimates).await;
    let mut dice = Dice(seed);
    for number in 0..STEPS {
        step(&mut dice, &mut stream).await;
        let after_step = foreign();
        tokio::time::sleep(Duration::from_millis(dice.below(60))).await;
        assert_eq!(foreign(), after_step, "seed {seed}, step {number}: only the agent was awake");
    }

    // Both links up and one path: the copies must follow it.
    for n in 0..2 {
        ip(&format!("link set up{n} up"));
    }
    _ = try_ip("route del 100.64.0.0/21");
    ip("route replace default via 10.2.0.1");
    for n in 0..NETWORKS {
        _ = try_ip(&format!("route del 100.64.{n}.0/24 proto boot"));
        stream.send(UpdateEvent::Estimate(estimate(&format!("100.64.{n}.0/24"), 40, 60))).await;
    }
    let ours = || ip("route show proto 83");
    let complete =
        || ours().lines().filter(|line| line.contains("via 10.2.0.1 dev up1 metric 21328 initcwnd 20")).count();
    eventually("every network follows the new path", || complete() == 10).await;
    assert_eq!(ours().lines().count(), 10, "and nothing else: {}", ours());
    let status = agent.json(&["status", "--json"]);
    assert!(status["method_events"]["stepped_back"].is_null(), "seed {seed}: {status}");
    let before = foreign();
    assert_eq!(agent.stop(), Some(0));
    assert_eq!((ours().as_str(), foreign()), ("", before));
}
