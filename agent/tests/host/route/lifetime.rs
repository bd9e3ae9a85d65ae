//! How long a start stays: set, changed, aged, removed at every end of the agent.

use super::*;

#[test]
fn a_start_is_set_changed_withdrawn_and_removed_at_the_stop() {
    in_namespace(|| async {
        two_uplinks();
        let before = ip("route show") + &ip("-6 route show");
        let mut gateway = Gateway::start().await;
        let (mut agent, mut stream) =
            agent_with(&mut gateway, &["192.0.2.0/24", "198.51.100.0/24", "2001:db8:77::/48"]).await;
        let routes = ours();
        // Half of the share of 40: the method cannot pace.
        assert!(routes.contains("192.0.2.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 20"), "{routes}");
        assert!(routes.contains("2001:db8:77::/48 via 2001:db8:1::1 dev up0 metric 21328 initcwnd 20"), "{routes}");

        stream.send(UpdateEvent::Estimate(estimate("192.0.2.0/24", 60, 60))).await;
        eventually("the window moves", || {
            ours().contains("192.0.2.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 30")
        })
        .await;

        let network = "198.51.100.0/24".parse().unwrap();
        stream.send(UpdateEvent::Withdrawal { network, reason: WithdrawalReason::Expired }).await;
        eventually("the withdrawn one goes", || !ours().contains("198.51.100.0/24")).await;
        assert!(ours().contains("192.0.2.0/24"));

        let status = agent.json(&["status", "--json"]);
        assert_eq!(status["in_force"].as_array().unwrap().len(), 2, "{status}");
        assert_eq!(agent.stop(), Some(0));
        assert_eq!(ip("route show") + &ip("-6 route show"), before);
    });
}

#[test]
fn advice_ages_out_when_the_gateway_is_lost() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let agent = Agent::start(&gateway, ROUTE, "");
        let stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 2)]).await;
        eventually("the route is set", || ours().contains("192.0.2.0/24")).await;
        drop((stream, gateway));
        eventually("the route ages out", || ours().is_empty()).await;
        let status = agent.json(&["status", "--json"]);
        assert_eq!(status["gateway"]["connected"], false);
        assert_eq!(status["advice"]["expired"], 1);
    });
}

#[test]
fn a_killed_agent_leaves_nothing_within_five_seconds() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24", "2001:db8:77::/48"]).await;
        agent.kill();
        let killed = Instant::now();
        eventually("the guard removes the routes", || ours().is_empty()).await;
        // What `docs/faults.md` promises, and many times what it takes.
        assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    });
}

#[test]
fn the_next_start_removes_what_a_dead_agent_and_guard_left() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        kill_both(&mut agent);
        assert!(ours().contains("192.0.2.0/24"), "both are dead, so the route stays");

        agent.run();
        let _stream = gateway.snapshot(&[]).await;
        eventually("the next start cleans up", || ours().is_empty()).await;
    });
}

#[test]
fn a_damaged_ledger_is_set_aside_and_the_routes_marks_decide() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        kill_both(&mut agent);
        std::fs::write(agent.ledger(), "\0\0rubbish\n\0\n").unwrap();
        ip("route add 203.0.113.0/24 via 10.1.0.1 proto 83");

        agent.run();
        let _stream = gateway.snapshot(&[]).await;
        eventually("ours is removed", || !ours().contains("192.0.2.0/24")).await;
        assert!(ours().contains("203.0.113.0/24"), "it has our number but not our metric: someone else's");
        assert!(agent.ledger().with_extension("damaged").exists());
    });
}

#[test]
fn a_route_with_our_marks_that_is_not_in_the_ledger_is_left_alone() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        kill_both(&mut agent);
        ip("route add 203.0.113.0/24 via 10.1.0.1 proto 83 metric 21328 initcwnd 7");

        agent.run();
        let _stream = gateway.snapshot(&[estimate("203.0.113.0/24", 40, 60)]).await;
        eventually("ours is removed", || !ours().contains("192.0.2.0/24")).await;
        eventually("refused", || agent.json(&["status", "--json"])["method_events"]["administrator"] == 1).await;
        assert!(ours().contains("203.0.113.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 7"));
    });
}

#[test]
fn undo_prints_commands_that_work_and_runs_them() {
    in_namespace(|| async {
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
        assert_eq!(done["routes_removed"].as_array().unwrap().len(), 1, "{done}");
        assert_eq!(ours(), "");
    });
}

#[test]
fn a_guard_that_ends_is_started_again() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &["192.0.2.0/24"]).await;
        let first = agent.guard();
        kill(first, Signal::SIGKILL).unwrap();
        eventually("a new guard", || agent.json(&["status", "--json"])["method_events"]["guard_restarts"] == 1).await;
        assert_ne!(agent.guard(), first);
        agent.kill();
        eventually("the new guard removes the route", || ours().is_empty()).await;
    });
}

// What it costs and how fast it is: measured where asked for.

#[test]
#[ignore = "measures"]
fn how_fast_stale_routes_go() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let networks: Vec<String> = (0..1_000u32).map(|n| format!("198.{}.{}.0/24", 18 + n / 256, n % 256)).collect();
        let names: Vec<&str> = networks.iter().map(String::as_str).collect();
        let started = Instant::now();
        let (mut agent, _stream) = agent_with(&mut gateway, &names).await;
        eprintln!("1,000 routes set {:?} after the start", started.elapsed());
        let log = agent.folder.path().join("monitor");
        let file = std::fs::File::create(&log).unwrap();
        let mut monitor =
            std::process::Command::new("ip").args(["-ts", "monitor", "route"]).stdout(file).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        ip("route replace default via 10.2.0.1");
        eventually("they come back", || ours().matches("via 10.2.0.1").count() == 1_000).await;
        monitor.kill().unwrap();
        monitor.wait().unwrap();
        let lines = text(&log);
        let stamp =
            |line: &str| line[1..].split(']').next().unwrap().rsplit(':').next().unwrap().parse::<f64>().unwrap();
        let change = lines.lines().find(|l| l.contains("default via 10.2.0.1")).map(stamp).unwrap();
        let gone: Vec<f64> =
            lines.lines().filter(|l| l.contains("Deleted 198.")).map(|l| (stamp(l) - change) * 1e3).collect();
        eprintln!("{} removed {:.2} to {:.2} ms after the change", gone.len(), gone[0], gone.last().unwrap());
        let killed = Instant::now();
        agent.kill();
        while !ours().is_empty() {}
        eprintln!("1,000 routes removed {:?} after SIGKILL", killed.elapsed());
    });
}

#[test]
#[ignore = "measures"]
fn what_ten_thousand_networks_cost() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let agent = Agent::start(&gateway, ROUTE, "");
        let estimates: Vec<_> =
            (0..10_000u32).map(|n| estimate(&format!("100.{}.{}.0/24", 64 + n / 256, n % 256), 40, 60)).collect();
        let _stream = gateway.snapshot(&estimates).await;
        eventually("1,024 routes are set", || ours().lines().count() == 1_024).await;
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
