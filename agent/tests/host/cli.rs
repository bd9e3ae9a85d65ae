//! What the commands print and how they end.

use std::io::Write;
use std::process::{Command, Output};

use serde_json::Value;
use spand_proto::push::{EstimateUpdate, UpdateEvent};
use spand_proto::units::Segments;
use tokio::net::{TcpListener, TcpSocket};

use crate::support::agent::Agent;
use crate::support::gateway::{Gateway, NO_ESTIMATE, estimate};
use crate::support::namespace::{eventually, in_namespace, in_served_namespace, ip};

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spand-agent")).args(arguments).output().unwrap()
}

/// The exit code, and the one sentence on standard error.
fn failed(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "one sentence: {text}");
    (output.status.code(), text)
}

#[test]
fn a_bad_command_line_or_configuration_ends_with_64() {
    assert_eq!(agent(&["fly"]).status.code(), Some(64));
    for broken in ["not an address", "192.0.2.300"] {
        let output = agent(&["query", broken]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64));
        assert!(text.contains("give an address or a host name, such as"), "{text}");
    }
    assert_eq!(agent(&["query", "192.0.2.1", "--bytes", "0"]).status.code(), Some(64));
    let output = agent(&["pause", "--for", "367days"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64));
    assert!(text.contains("too short or too long: give a length from 1s to 366days"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, "mode = \"careful\"\n[route]\nspeed = 3\n").unwrap();
    let path = path.to_str().unwrap();
    for command in [&["run"][..], &["check-config"], &["query", "192.0.2.1"]] {
        let (code, text) = failed(&agent(&[&["--config", path], command].concat()));
        assert_eq!(code, Some(64), "{text}");
        assert!(text.contains("agent.toml, line 3: unknown field `speed`"), "{text}");
    }
}

#[test]
fn a_missing_file_gateway_or_agent_ends_with_1() {
    let (code, text) = failed(&agent(&["--config", "/nonexistent/agent.toml", "run"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("cannot read the configuration /nonexistent/agent.toml"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, "state_dir = \".\"\n").unwrap();
    let config = path.to_str().unwrap();
    for command in [&["status"][..], &["explain", "192.0.2.1"], &["pause"], &["resume"]] {
        let (code, text) = failed(&agent(&[&["--config", config], command].concat()));
        assert_eq!(code, Some(1));
        assert!(text.contains("no agent runs here"), "{text}");
    }
    // Port 1 of this machine: nobody listens there.
    let (code, text) = failed(&agent(&["--config", config, "query", "192.0.2.1", "--gateway", "http://127.0.0.1:1"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("cannot reach the gateway at http://127.0.0.1:1"), "{text}");
    // RFC 6761: no resolver finds a name in there.
    let nobody = "nobody.invalid";
    for command in
        [&["query", nobody][..], &["explain", nobody], &["query", "::1", "--gateway", "http://nobody.invalid:1"]]
    {
        let (code, text) = failed(&agent(&[&["--config", config], command].concat()));
        assert_eq!(code, Some(1));
        assert!(text.contains(nobody) && text.contains("resolve"), "{text}");
    }
    let (code, text) = failed(&agent(&["--config", config, "query", "192.0.2.1", "--gateway", "gateway"]));
    assert_eq!(code, Some(64), "{text}");
}

#[test]
fn a_state_directory_that_cannot_be_made_ends_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, "state_dir = \"agent.toml/state\"\n").unwrap();
    let (code, text) = failed(&agent(&["--config", path.to_str().unwrap(), "run"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("cannot make the state directory") && text.contains("agent.toml/state"), "{text}");
}

#[test]
fn check_config_prints_what_is_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, "mode = \"observe\"\n").unwrap();
    let output = agent(&["--config", path.to_str().unwrap(), "check-config"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("mode = \"observe\"") && text.contains("lifetime_s = 60"), "{text}");
}

#[test]
fn check_config_refuses_the_cgroup_that_run_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, "apply = \"bpf\"\n[bpf]\ncgroup = \"/nowhere/cgroup\"\n").unwrap();
    let (code, text) = failed(&agent(&["--config", path.to_str().unwrap(), "check-config"]));
    assert_eq!(code, Some(64));
    assert!(text.contains("bpf.cgroup /nowhere/cgroup is no version 2 cgroup"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_has_the_part_of_the_lease_that_the_kernel_has_beside_applications() {
    let mut gateway = Gateway::start().await;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let sections = format!("[applications]\nsocket = \"{}\"\n[bpf]\ncontrol_fraction = 0.0", socket.display());
    let agent = Agent::start(&gateway, "addresses = [\"203.0.113.10\"]", &sections);
    let lease = Some(Segments(20));
    let _stream = gateway.snapshot(&[EstimateUpdate { lease, ..estimate("192.0.2.0/24", 40, 60) }]).await;
    let explained = || agent.json(&["explain", "192.0.2.77", "--json"]);
    let window = || explained()["start_cwnd_segments"].as_u64();
    eventually("the kernel has the whole lease", || window() == Some(30)).await;
    let mut application = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let lines = [r#"{"hello":{"version":1,"application":"x"}}"#, r#"{"watch":"192.0.2.1"}"#];
    application.write_all(format!("{}\n{}\n", lines[0], lines[1]).as_bytes()).unwrap();
    let networks = || agent.json(&["status", "--json"])["applications"]["networks"].as_u64();
    eventually("it watches", || networks() == Some(1)).await;
    assert_eq!(window(), Some(30), "a watcher takes nothing");
    application.write_all(b"{\"ended\":{\"remote\":\"192.0.2.1:443\",\"acknowledged_bytes\":1}}\n").unwrap();
    eventually("the kernel has half of it", || window() == Some(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_for_applications_that_cannot_be_made_is_a_warning_and_tcp_goes_on() {
    let mut gateway = Gateway::start().await;
    let applications = "[applications]\nsocket = \"/proc/none/applications.sock\"";
    let agent = Agent::start(&gateway, "addresses = [\"203.0.113.10\"]", applications);
    let _stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
    eventually("advice is held", || agent.output(&["status"]).status.success()).await;
    let status = agent.json(&["status", "--json"]);
    let error = status["applications_error"].as_str().unwrap_or_default();
    assert!(error.contains("applications.socket") && error.contains("/proc/none"), "{status}");
    assert!(
        String::from_utf8(agent.output(&["status"]).stdout).unwrap().contains("applications are given no advice: ")
    );

    let checked = agent.output(&["check-config"]);
    let warning = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(checked.status.code(), Some(0));
    assert!(warning.contains("warning: applications.socket") && warning.contains("/proc/none"), "{warning}");
}

#[test]
fn probe_changes_nothing_and_says_what_it_found() {
    let findings: Value = serde_json::from_slice(&agent(&["probe", "--json"]).stdout).unwrap();
    let names: Vec<&str> = findings.as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    for name in
        ["kernel", "cap_net_admin", "cgroup_v2", "btf", "congestion_control", "net.ipv4.tcp_slow_start_after_idle"]
    {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let people = String::from_utf8(agent(&["probe"]).stdout).unwrap();
    assert_eq!(people.lines().count(), names.len(), "{people}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn query_asks_the_gateway() {
    let gateway = Gateway::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, format!("[gateway]\nurl = \"{}\"\n", gateway.url())).unwrap();
    let config = path.to_str().unwrap().to_owned();
    let ask = |more: &[&str]| agent(&[&["--config", &config, "query"], more].concat());

    // The paper's example of docs/protocol.md: a share of 40, 100 segments.
    let answer = ask(&["192.0.2.77", "--bytes", "144800", "--mss", "1448", "--handshake-ms", "96", "--json"]);
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["start"]["cwnd_segments"], 33, "{answer}");
    assert_eq!(answer["start"]["ssthresh_segments"], 33, "{answer}");

    let people = String::from_utf8(ask(&["192.0.2.77", "--bytes", "144800"]).stdout).unwrap();
    assert!(people.contains("start with a window of 33 segments, threshold 33"), "{people}");
    let unknown = String::from_utf8(ask(&["198.51.100.1"]).stdout).unwrap();
    assert!(unknown.contains(&format!("plain TCP: {NO_ESTIMATE}")), "the gateway's reason: {unknown}");
    let named: Value = serde_json::from_slice(&ask(&["localhost", "--json"]).stdout).unwrap();
    assert_eq!(named["name"], "localhost");
    let addresses = named["answers"].as_array().unwrap().iter().map(|answer| answer["destination"].as_str().unwrap());
    assert!(addresses.clone().any(|address| address == "127.0.0.1"), "{named}");
    let people = String::from_utf8(ask(&["localhost"]).stdout).unwrap();
    assert!(addresses.clone().all(|address| people.contains(&format!("{address}: no estimate"))), "{people}");
    let other = ask(&["192.0.2.77", "--handshake-ms", "400"]);
    assert!(String::from_utf8(other.stdout).unwrap().contains("(rtt_mismatch)"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_gateways_the_one_in_use_is_shown_asked_and_reported_to() {
    let mut gateway = Gateway::start().await;
    let gone = Gateway::start().await.url().replace("127.0.0.1", "127.0.0.2");
    let mut agent = Agent::stopped();
    let text = format!(
        "state_dir = \"state\"\naddresses = [\"203.0.113.10\"]\nhost_name = \"web-1\"\n[gateway]\nurls = [[\"{gone}\"], [\"{}\"]]\n\
         retry_min_ms = 50\nretry_max_ms = 200\n",
        gateway.url()
    );
    std::fs::write(agent.config(), text).unwrap();
    agent.run();
    let _stream = gateway.snapshot(&[]).await;
    let status = || agent.json(&["status", "--json"])["gateway"].clone();
    eventually("subscribed", || status()["connected"] == true).await;
    let status = status();
    assert_eq!(status["url"], gateway.url());
    assert_eq!((&status["group"], &status["rank"], &status["connected"]), (&2.into(), &1.into(), &true.into()));
    let [first, second] = &status["gateways"].as_array().unwrap()[..] else { panic!("{status}") };
    assert_eq!((&first["url"], &first["in_use"]), (&gone.as_str().into(), &false.into()));
    assert!(first["last_error"].as_str().unwrap().contains("refused"), "{status}");
    assert_eq!((&second["in_use"], &second["last_error"]), (&true.into(), &Value::Null));
    let people = String::from_utf8(agent.output(&["status"]).stdout).unwrap();
    assert!(people.contains(&format!("group 2, rank 1: {}: in use", gateway.url())), "{people}");
    let metrics = String::from_utf8(agent.output(&["metrics"]).stdout).unwrap();
    assert!(metrics.contains(&format!("spand_agent_gateway_in_use{{gateway=\"{gone}\"}} 0")), "{metrics}");

    let answer = agent.json(&["query", "192.0.2.77", "--json"]);
    assert_eq!(answer["estimate"]["prefix"], "192.0.2.0/24", "the one that is gone answers nothing: {answer}");
    assert!(agent.output(&["pause"]).status.success());
    let report = gateway.reported().await;
    assert_eq!(report.host_name.to_string(), "web-1");
    let checks = agent.json(&["doctor", "--json"]);
    let checks = checks["checks"].as_array().unwrap();
    let of = |name: &str| checks.iter().filter(|check| check["name"] == name).collect::<Vec<_>>();
    assert_eq!(of("gateways")[0]["found"], "1 of 2 gateways answer");
    assert_eq!((of("gateway").len(), &of("gateway")[0]["verdict"]), (2, &"warn".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_explains_and_lists_what_it_lacks() {
    let mut gateway = Gateway::start().await;
    let agent = Agent::start(&gateway, "addresses = [\"203.0.113.10\"]\nhost_name = \"web-1\"", "");
    let stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
    assert_eq!(
        (stream.request.host_name.as_str(), &stream.request.addresses[..]),
        ("web-1", &["203.0.113.10".to_owned()][..])
    );
    let explain = || agent.json(&["explain", "192.0.2.77", "--bytes", "144800", "--json"]);
    eventually("decided", || explain()["outcome"] == "would_be").await;

    let explained = explain();
    assert_eq!((&explained["cwnd_segments"], &explained["on_advice"]), (&10.into(), &false.into()), "{explained}");
    let steps: Vec<&str> = explained["steps"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    let expected = [
        "scope",
        "estimate",
        "control_group",
        "rtt_check",
        "model",
        "fraction",
        "cap",
        "floor",
        "pacing",
        "start",
        "mode",
        "applied",
    ];
    assert_eq!(steps, expected);
    assert_eq!(agent.json(&["explain", "198.51.100.1", "--json"])["outcome"], "no_estimate");

    let named = agent.json(&["explain", "localhost", "--json"]);
    assert_eq!((&named["name"], &named["answers"][0]["outcome"]), (&"localhost".into(), &"no_estimate".into()));

    // For people: the decision first, its number once, and only steps that change something.
    let people = |more: &[&str]| String::from_utf8(agent.output(&[&["explain"], more].concat()).stdout).unwrap();
    let text = people(&["::ffff:192.0.2.77", "--bytes", "144800"]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("192.0.2.77: would start with 33 segments; apply dry_run applies nothing: 10"));
    let steps: Vec<&str> = lines.map(|line| line[2..].split_whitespace().next().unwrap()).collect();
    assert_eq!(steps, ["estimate", "rtt_check", "model", "pacing", "start", "applied"], "{text}");
    assert!(text.contains("skipped (needs a connection)"), "{text}");
    let unknown = people(&["198.51.100.1"]);
    let first = format!("198.51.100.1: starts with 10 segments, standard TCP: {NO_ESTIMATE}\n");
    assert!(unknown.starts_with(&first), "the gateway's reason: {unknown}");
    let status = agent.json(&["status", "--json"]);
    assert_eq!(status["limitations"][0]["name"], "everything");
    assert_eq!(status["decisions"]["apply"], 1);
    let people = String::from_utf8(agent.output(&["status"]).stdout).unwrap();
    assert!(people.contains("mode careful, apply dry_run"), "{people}");
}

#[test]
fn addresses_of_interfaces_that_reach_nobody_are_not_subscribed_for() {
    in_namespace(|| async {
        for (name, address) in [("busy", "198.51.100.1"), ("idle", "203.0.113.1")] {
            ip(&format!("link add {name} type veth peer name {name}-far"));
            ip(&format!("link set {name} addrgenmode none up"));
            ip(&format!("addr add {address}/24 dev {name}"));
        }
        // Whose other end is down has no carrier, as a bridge without ports.
        ip("link set busy-far addrgenmode none up");
        let mut gateway = Gateway::start().await;
        let _agent = Agent::start(&gateway, "", "");
        assert_eq!(gateway.subscribed().await.request.addresses, ["198.51.100.1"]);
    });
}

#[test]
fn status_without_advice_has_the_gateways_reason_for_a_connection_of_the_host() {
    in_served_namespace(|| async {
        for address in ["203.0.113.10", "198.51.100.1"] {
            ip(&format!("addr add {address}/32 dev lo"));
        }
        let mut gateway = Gateway::start().await;
        let agent = Agent::start(&gateway, "addresses = [\"203.0.113.10\"]", "");
        let _stream = gateway.snapshot(&[]).await;
        let status = || String::from_utf8(agent.output(&["status"]).stdout).unwrap();
        eventually("subscribed", || status().contains(": subscribed")).await;
        assert!(status().contains("no connection from these addresses is open"), "{}", status());
        let listener = TcpListener::bind("198.51.100.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("203.0.113.10:0".parse().unwrap()).unwrap();
        let _open = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(
            status()
                .contains(&format!("for example, 198.51.100.1: starts with 10 segments, standard TCP: {NO_ESTIMATE}")),
            "{}",
            status()
        );
    });
}

/// The gateway of the tests has an estimate of 192.0.2.0/24 and of nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_table_makes_room_for_new_networks_and_explain_and_status_show_it() {
    let mut gateway = Gateway::start().await;
    let agent = Agent::start(&gateway, "addresses = [\"203.0.113.10\"]", "[limits]\nnetworks = 8");
    let mut flood: Vec<_> = (0..16).map(|n| estimate(&format!("2001:db8:{n:x}::/48"), 40, 60)).collect();
    flood.insert(0, estimate("192.0.2.0/24", 40, 60));
    let mut stream = gateway.snapshot(&flood).await;
    stream.send(UpdateEvent::Estimate(estimate("198.51.100.0/24", 40, 60))).await;
    let explain = |address: &str| agent.json(&["explain", address, "--json"]);
    eventually("advised", || explain("198.51.100.1")["outcome"] == "would_be").await;

    let decision = |address: &str| explain(address)["decision"].as_str().unwrap().to_owned();
    let gone = decision("192.0.2.1");
    assert!(gone.contains("the gateway has an estimate") && gone.contains("is full (limits.networks)"), "{gone}");
    let unknown = decision("203.0.113.1");
    assert!(unknown.ends_with(NO_ESTIMATE), "the gateway has none either: {unknown}");
    let status = agent.json(&["status", "--json"]);
    assert_eq!((&status["networks_held"], &status["advice"]["evicted"]), (&8.into(), &10.into()), "{status}");
    let text = String::from_utf8(agent.output(&["status"]).stdout).unwrap();
    assert!(text.contains("no room for 0 estimates, and 10 made room for others (limits.networks)"), "{text}");
}
