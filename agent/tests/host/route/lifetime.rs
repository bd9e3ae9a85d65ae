//! How long a start stays: set, changed, aged, removed at every end of the agent.

use super::*;

#[test]
fn a_start_is_set_changed_withdrawn_and_removed_at_the_stop() {
    in_namespace(|| async {
        two_uplinks();
        let before = all_routes();
        let networks = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8:77::/48"];
        let (_gateway, mut agent, mut stream) = agent_with(&networks).await;
        // Half of the share of 40: the method cannot pace.
        for hop in ["192.0.2.0/24 via 10.1.0.1", "2001:db8:77::/48 via 2001:db8:1::1"] {
            assert_has(&ours(), &[&format!("{hop} dev up0 metric 21328 initcwnd 20")]);
        }

        stream.advise("192.0.2.0/24", 60, 60).await;
        let larger = "192.0.2.0/24 via 10.1.0.1 dev up0 metric 21328 initcwnd 30";
        eventually("the window moves", || ours().contains(larger)).await;

        stream.withdraw("198.51.100.0/24").await;
        eventually("the withdrawn one goes", || !ours().contains("198.51.100.0/24")).await;
        assert!(ours().contains("192.0.2.0/24"));

        assert_eq!(agent.in_force(), 2);
        assert_eq!(agent.stop(), Some(0));
        assert_eq!(all_routes(), before);
    });
}

#[test]
fn advice_ages_out_when_the_gateway_is_lost() {
    in_namespace(|| async {
        two_uplinks();
        let (gateway, agent, stream) = advised(ROUTE, "", &[estimate("192.0.2.0/24", 40, 2)]).await;
        eventually("the route is set", || ours().contains("192.0.2.0/24")).await;
        drop((stream, gateway));
        eventually("the route ages out", || ours().is_empty()).await;
        let status = agent.status();
        assert_eq!(status["gateway"]["connected"], false);
        assert_eq!(status["advice"]["expired"], 1);
    });
}

#[test]
fn a_killed_agent_leaves_nothing_within_five_seconds() {
    on_routes(&["192.0.2.0/24", "2001:db8:77::/48"], async |_gateway, mut agent, _stream| {
        agent.kill();
        let killed = Instant::now();
        eventually("the guard removes the routes", || ours().is_empty()).await;
        // What `docs/operate/agent.md` promises, and many times what it takes.
        assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    });
}

#[test]
fn the_next_start_removes_what_a_dead_agent_and_guard_left() {
    for (case, ledger, foreign) in [
        ("whole ledger", None, None),
        ("damaged ledger", Some("\0\0rubbish\n\0\n"), Some("")),
        ("a route with our marks that is not in the ledger", None, Some(" metric 21328 initcwnd 7")),
    ] {
        on_routes(&["192.0.2.0/24"], async |mut gateway, mut agent, _stream| {
            kill_both(&mut agent);
            assert!(ours().contains("192.0.2.0/24"), "{case}: both are dead, so the route stays");
            ledger.map_or(Ok(()), |text| std::fs::write(agent.ledger(), text)).unwrap();
            if let Some(marks) = foreign {
                ip(&format!("route add 203.0.113.0/24 via 10.1.0.1 proto 83{marks}"));
            }
            let theirs = foreign.map(|marks| format!("203.0.113.0/24 via 10.1.0.1 dev up0{marks}"));

            agent.run();
            let _stream = gateway.snapshot(&[estimate("203.0.113.0/24", 40, 60)]).await;
            eventually(case, || !ours().contains("192.0.2.0/24")).await;
            let refused = u64::from(foreign.is_some());
            eventually(case, || refused == agent.counts("administrator") && ours().contains("203.0.113.0/24")).await;
            assert!(theirs.is_none_or(|theirs| ours().contains(&theirs)), "{case}: {}", ours());
            assert_eq!(agent.ledger().with_extension("damaged").exists(), ledger.is_some(), "{case}");
        });
    }
}

#[test]
fn a_guard_that_ends_is_started_again() {
    on_routes(&["192.0.2.0/24"], async |_gateway, mut agent, _stream| {
        let first = agent.guard();
        kill(first, Signal::SIGKILL).unwrap();
        eventually("a new guard", || agent.counts("guard_restarts") == 1).await;
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
        let networks: Vec<String> = (0..1_000u32).map(|n| format!("198.{}.{}.0/24", 18 + n / 256, n % 256)).collect();
        let names: Vec<&str> = networks.iter().map(String::as_str).collect();
        let started = Instant::now();
        let (_gateway, mut agent, _stream) = agent_with(&names).await;
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
        let estimates: Vec<_> =
            (0..10_000u32).map(|n| estimate(&format!("100.{}.{}.0/24", 64 + n / 256, n % 256), 40, 60)).collect();
        let (_gateway, agent, _stream) = advised(ROUTE, "", &estimates).await;
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
