//! What it costs and how fast it is: measured where asked for.

use super::*;

#[test]
#[ignore = "measures"]
fn how_fast_stale_routes_go() {
    in_namespace("figures", || async {
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
    in_namespace("cost", || async {
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
