//! The way `route` against real kernels: each test in a network namespace of its own, with the real program and a gateway
//! that says what the test tells it.

use std::time::Duration;

use crate::support::agent::{Agent, eventually, text};
use crate::support::gateway::{Gateway, Stream, announced, announced_late, estimate};
use crate::support::namespace::{in_namespace, ip, two_uplinks};
use nix::sys::signal::{Signal, kill};
use spand_proto::push::{UpdateEvent, WithdrawalReason};

const ROUTE: &str = "apply = \"route\"";
const SOON: Duration = Duration::from_secs(10);

/// All routes with the agent's protocol number.
fn ours() -> String {
    ip("route show proto 83") + &ip("-6 route show proto 83")
}

/// An agent that has set these.
async fn agent_with(gateway: &mut Gateway, networks: &[&str]) -> (Agent, Stream) {
    let agent = Agent::start(gateway, ROUTE, "");
    let estimates: Vec<_> = networks.iter().map(|network| estimate(network, 40, 60)).collect();
    let stream = gateway.snapshot(&estimates).await;
    let all = |routes: &str| networks.iter().all(|network| routes.contains(network));
    eventually(SOON, "routes are set", || all(&ours())).await;
    (agent, stream)
}

#[test]
fn a_start_is_set_changed_withdrawn_and_removed_at_the_stop() {
    in_namespace("set_changed_withdrawn", || async {
        two_uplinks();
        let before = ip("route show") + &ip("-6 route show");
        let mut gateway = Gateway::start().await;
        let (mut agent, mut stream) =
            agent_with(&mut gateway, &["192.0.2.0/24", "198.51.100.0/24", "2001:db8:77::/48"]).await;
        let routes = ours();
        // Half of the share of 40: the way cannot pace.
        assert!(routes.contains("192.0.2.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 20"), "{routes}");
        assert!(routes.contains("2001:db8:77::/48 via 2001:db8:1::1 dev up0 metric 21328 initcwnd 20"), "{routes}");

        stream.send(UpdateEvent::Estimate(estimate("192.0.2.0/24", 60, 60))).await;
        eventually(SOON, "the window moves", || {
            ours().contains("192.0.2.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 30")
        })
        .await;

        let network = "198.51.100.0/24".parse().unwrap();
        stream.send(UpdateEvent::Withdrawal { network, reason: WithdrawalReason::Expired }).await;
        eventually(SOON, "the withdrawn one goes", || !ours().contains("198.51.100.0/24")).await;
        assert!(ours().contains("192.0.2.0/24"));

        let status = agent.json(&["status", "--json"]);
        assert_eq!(status["in_force"].as_array().unwrap().len(), 2, "{status}");
        assert_eq!(agent.stop(), Some(0));
        assert_eq!(ip("route show") + &ip("-6 route show"), before);
    });
}

#[test]
fn advice_ages_out_when_the_gateway_is_lost() {
    in_namespace("ages_out", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let agent = Agent::start(&gateway, ROUTE, "");
        let stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 2)]).await;
        eventually(SOON, "the route is set", || ours().contains("192.0.2.0/24")).await;
        drop((stream, gateway));
        eventually(Duration::from_secs(5), "the route ages out", || ours().is_empty()).await;
        let status = agent.json(&["status", "--json"]);
        assert_eq!(status["gateway"]["connected"], false);
        assert_eq!(status["advice"]["expired"], 1);
    });
}

#[test]
fn a_killed_agent_leaves_nothing_within_five_seconds() {
    in_namespace("killed", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24", "2001:db8:77::/48"]).await;
        agent.kill();
        eventually(Duration::from_secs(5), "the guard removes the routes", || ours().is_empty()).await;
    });
}

#[test]
fn the_next_start_removes_what_a_dead_agent_and_guard_left() {
    in_namespace("next_start", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        kill_both(&mut agent);
        assert!(ours().contains("192.0.2.0/24"), "both are dead, so the route stays");

        agent.run();
        let _stream = gateway.snapshot(&[]).await;
        eventually(SOON, "the next start cleans up", || ours().is_empty()).await;
    });
}

#[test]
fn a_damaged_ledger_is_set_aside_and_the_routes_marks_decide() {
    in_namespace("damaged_ledger", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        kill_both(&mut agent);
        std::fs::write(agent.ledger(), "\0\0rubbish\n\0\n").unwrap();
        ip("route add 203.0.113.0/24 via 10.1.0.1 proto 83");

        agent.run();
        let _stream = gateway.snapshot(&[]).await;
        eventually(SOON, "ours is removed", || !ours().contains("192.0.2.0/24")).await;
        assert!(ours().contains("203.0.113.0/24"), "it has our number but not our metric: someone else's");
        assert!(agent.ledger().with_extension("damaged").exists());
    });
}

#[test]
fn a_route_with_our_marks_that_is_not_in_the_ledger_is_left_alone() {
    in_namespace("not_in_the_ledger", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        kill_both(&mut agent);
        ip("route add 203.0.113.0/24 via 10.1.0.1 proto 83 metric 21328 initcwnd 7");

        agent.run();
        let _stream = gateway.snapshot(&[estimate("203.0.113.0/24", 40, 60)]).await;
        eventually(SOON, "ours is removed", || !ours().contains("192.0.2.0/24")).await;
        eventually(SOON, "refused", || agent.json(&["status", "--json"])["applied"]["administrator"] == 1).await;
        assert!(ours().contains("203.0.113.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 7"));
    });
}

#[test]
fn a_new_next_hop_removes_ours_first_and_brings_it_back_by_the_new_one() {
    in_namespace("next_hop", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24", "2001:db8:77::/48"]).await;
        ip("route replace default via 10.2.0.1");
        eventually(SOON, "the stale copy goes", || !ours().contains("192.0.2.0/24 via 10.1.0.1")).await;
        eventually(SOON, "it comes back", || ours().contains("192.0.2.0/24 via 10.2.0.1 dev up1")).await;
        assert!(ours().contains("2001:db8:77::/48 via 2001:db8:1::1"), "the other family did not change");
        let applied = agent.json(&["status", "--json"])["applied"].clone();
        assert_eq!(applied["removed_for_change"], 1, "{applied}");
        assert!(applied["stepped_back"].is_null(), "{applied}");
    });
}

#[test]
fn a_link_that_goes_down_and_up_is_not_taken_for_an_administrator() {
    in_namespace("link_down", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        ip("link set up0 down");
        eventually(SOON, "it is gone", || ours().is_empty()).await;
        ip("link set up0 up");
        ip("route replace default via 10.1.0.1");
        eventually(SOON, "it comes back", || ours().contains("192.0.2.0/24 via 10.1.0.1")).await;
        let applied = agent.json(&["status", "--json"])["applied"].clone();
        assert!(applied["stepped_back"].is_null(), "{applied}");
    });
}

#[test]
fn what_cannot_be_copied_faithfully_is_refused_with_its_reason() {
    in_namespace("refused", || async {
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
            eventually(SOON, network, || explained()["outcome"] == reason).await;
        }
        assert_eq!(ip("route show") + &ip("-6 route show"), before);
        assert_eq!(ours(), "");
    });
}

#[test]
fn policy_rules_of_someone_else_keep_that_family_plain() {
    in_namespace("policy_rules", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24", "2001:db8:77::/48"]).await;
        // What a VPN does: a route in `main` more specific than the default would take traffic out of the tunnel.
        ip("rule add table main suppress_prefixlength 0 priority 100");
        eventually(SOON, "the IPv4 route goes", || !ours().contains("192.0.2.0/24")).await;
        eventually(SOON, "the IPv6 route comes back", || ours().contains("2001:db8:77::/48")).await;
        assert_eq!(agent.json(&["explain", "192.0.2.1", "--json"])["outcome"], "policy_routing");
    });
}

#[test]
fn the_agent_steps_back_where_an_administrator_acts() {
    in_namespace("steps_back", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let networks = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"];
        let (mut agent, _stream) = agent_with(&mut gateway, &networks).await;

        ip("route add 192.0.2.0/24 via 10.2.0.1");
        eventually(SOON, "ours gives way", || !ours().contains("192.0.2.0/24")).await;
        ip("route del 198.51.100.0/24");
        ip("route change 203.0.113.0/24 via 10.1.0.1 proto 83 metric 21328 initcwnd 7");
        eventually(SOON, "both are noticed", || agent.json(&["status", "--json"])["applied"]["stepped_back"] == 2)
            .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(ours().trim(), "203.0.113.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 7");
        assert_eq!(agent.json(&["explain", "198.51.100.1", "--json"])["outcome"], "stepped_back");
        assert_eq!(agent.stop(), Some(0));
        assert!(ip("route show").contains("192.0.2.0/24 via 10.2.0.1 dev up1"));
        assert!(ours().contains("203.0.113.0/24"), "what an administrator changed is his");
    });
}

#[test]
fn undo_prints_commands_that_work_and_runs_them() {
    in_namespace("undo", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24", "2001:db8:77::/48"]).await;
        assert!(text(&agent.ledger()).contains("careful: share 40, clipped by fraction"));
        kill_both(&mut agent);

        let printed = String::from_utf8(agent.output(&["undo"]).stdout).unwrap();
        let commands: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("ip ")).collect();
        assert_eq!(commands.len(), 2, "{printed}");
        ip(commands[0]);
        assert_eq!(ours().lines().count(), 1);
        let done = agent.json(&["undo", "--run", "--json"]);
        assert_eq!(done["removed"].as_array().unwrap().len(), 1, "{done}");
        assert_eq!(ours(), "");
    });
}

#[test]
fn a_guard_that_ends_is_started_again() {
    in_namespace("guard_restart", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        let first = agent.guard();
        kill(first, Signal::SIGKILL).unwrap();
        eventually(SOON, "a new guard", || agent.json(&["status", "--json"])["applied"]["guard_restarts"] == 1).await;
        assert_ne!(agent.guard(), first);
        agent.kill();
        eventually(Duration::from_secs(5), "the new guard removes the route", || ours().is_empty()).await;
    });
}

#[test]
fn a_second_agent_in_the_same_namespace_is_refused() {
    in_namespace("second_agent", || async {
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
    in_namespace("no_right", || async {
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
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: apply = \"route\" needs the capability CAP_NET_ADMIN"), "{said}");
    });
}

#[test]
fn as_many_routes_as_allowed_and_announced_ones_first() {
    in_namespace("limit", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let _agent = Agent::start(&gateway, ROUTE, "[limits]\napplied = 2");
        let estimates: Vec<_> = (0..4).map(|n| estimate(&format!("192.0.{n}.0/24"), 40, 60)).collect();
        let mut stream = gateway.snapshot(&estimates).await;
        eventually(SOON, "two are set", || ours().lines().count() == 2).await;
        assert!(!ours().contains("192.0.3.0/24"));
        stream.send(announced("192.0.3.0/24", "192.0.3.9")).await;
        eventually(SOON, "the announced one comes", || ours().contains("192.0.3.0/24")).await;
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
        eventually(SOON, "judged", || pushes()["in_time"] == 1).await;
        // The packet was seen 90 ms ago, and its window was not in force then.
        stream.send(announced_late("198.51.100.0/24", "198.51.100.9")).await;
        eventually(SOON, "judged", || pushes()["late"] == 1).await;
        stream.send(announced("10.1.0.0/24", "10.1.0.77")).await;
        eventually(SOON, "judged", || pushes()["not_applied"] == 1).await;
        assert_eq!(pushes()["received"], 3);

        let mut told = (0, 0, 0);
        while told != (3, 1, 1) {
            let report = tokio::time::timeout(Duration::from_secs(30), gateway.reports.recv()).await.unwrap().unwrap();
            let pushes = report.pushes;
            told = (told.0 + pushes.received, told.1 + pushes.in_time, told.2 + pushes.late);
        }
    });
}

/// Kills the guard, and the agent before it can start another one.
fn kill_both(agent: &mut Agent) {
    kill(agent.pid(), Signal::SIGSTOP).unwrap();
    kill(agent.guard(), Signal::SIGKILL).unwrap();
    agent.kill();
}

#[test]
#[ignore = "measures"]
fn how_fast_stale_routes_go() {
    in_namespace("figures", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let networks: Vec<String> = (0..1_000u32).map(|n| format!("198.{}.{}.0/24", 18 + n / 256, n % 256)).collect();
        let names: Vec<&str> = networks.iter().map(String::as_str).collect();
        let started = std::time::Instant::now();
        let (mut agent, _stream) = agent_with(&mut gateway, &names).await;
        eprintln!("1,000 routes set {:?} after the start", started.elapsed());
        let log = agent.folder.path().join("monitor");
        let file = std::fs::File::create(&log).unwrap();
        let mut monitor =
            std::process::Command::new("ip").args(["-ts", "monitor", "route"]).stdout(file).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        ip("route replace default via 10.2.0.1");
        eventually(SOON, "they come back", || ours().matches("via 10.2.0.1").count() == 1_000).await;
        monitor.kill().unwrap();
        monitor.wait().unwrap();
        let lines = text(&log);
        let stamp =
            |line: &str| line[1..].split(']').next().unwrap().rsplit(':').next().unwrap().parse::<f64>().unwrap();
        let change = lines.lines().find(|l| l.contains("default via 10.2.0.1")).map(stamp).unwrap();
        let gone: Vec<f64> =
            lines.lines().filter(|l| l.contains("Deleted 198.")).map(|l| (stamp(l) - change) * 1e3).collect();
        eprintln!("{} removed {:.2} to {:.2} ms after the change", gone.len(), gone[0], gone.last().unwrap());
        let killed = std::time::Instant::now();
        agent.kill();
        while !ours().is_empty() {}
        eprintln!("1,000 routes removed {:?} after SIGKILL", killed.elapsed());
    });
}

#[test]
#[ignore = "measures"]
fn what_ten_thousand_networks_cost() {
    in_namespace("cost", || async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let agent = Agent::start(&gateway, ROUTE, "");
        let estimates: Vec<_> =
            (0..10_000u32).map(|n| estimate(&format!("100.{}.{}.0/24", 64 + n / 256, n % 256), 40, 60)).collect();
        let _stream = gateway.snapshot(&estimates).await;
        eventually(SOON, "1,024 routes are set", || ours().lines().count() == 1_024).await;
        let ticks = || -> u64 {
            let stat = text(std::path::Path::new(&format!("/proc/{}/stat", agent.pid())));
            let fields: Vec<&str> = stat.split_whitespace().collect();
            fields[13].parse::<u64>().unwrap() + fields[14].parse::<u64>().unwrap()
        };
        let before = ticks();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let status = text(std::path::Path::new(&format!("/proc/{}/status", agent.pid())));
        let memory = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        eprintln!("10,000 networks held, 1,024 applied: {} ms of CPU in 10 s; {memory}", (ticks() - before) * 10);
    });
}
