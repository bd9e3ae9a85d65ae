//! What the commands print and how they end.

use std::io::Write;
use std::process::{Command, Output};

use serde_json::Value;
use spand_proto::push::EstimateUpdate;
use spand_proto::units::Segments;
use tokio::net::{TcpListener, TcpSocket};

use crate::support::agent::{Agent, assert_has, printed};
use crate::support::gateway::{Gateway, NO_ESTIMATE, advised, estimate};
use crate::support::namespace::{eventually, in_namespace, in_served_namespace, ip};

const ADDRESS: &str = "addresses = [\"203.0.113.10\"]";

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spand-agent")).args(arguments).output().unwrap()
}

#[test]
fn a_bad_command_line_ends_with_64() {
    let example = "give an address or a host name, such as";
    for (arguments, sentence) in [
        (&["fly"][..], "fly"),
        (&["query", "not an address"], example),
        (&["query", "192.0.2.300"], example),
        (&["query", "192.0.2.1", "--bytes", "0"], "--bytes"),
        (&["pause", "--for", "367days"], "too short or too long: give a length from 1s to 366days"),
    ] {
        let (text, code) = printed(&agent(arguments));
        assert!(code == Some(64) && text.contains(sentence), "{arguments:?}: {code:?}, {text}");
    }
}

#[test]
fn what_cannot_be_used_or_reached_ends_with_its_code_and_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    let path = path.to_str().unwrap();
    let (fault, plain) = ("mode = \"careful\"\n[route]\nspeed = 3\n", "state_dir = \".\"\n");
    let (state, cgroup) =
        ("state_dir = \"agent.toml/state\"\n", "apply = \"bpf\"\n[bpf]\ncgroup = \"/nowhere/cgroup\"\n");
    let [unknown, nobody, none] = ["agent.toml, line 3: unknown field `speed`", "nobody.invalid", "no agent runs here"];
    // Port 1 of this machine: nobody listens there. RFC 6761: no resolver finds a name in `invalid`.
    let [nowhere, unresolved] = ["http://127.0.0.1:1", "http://nobody.invalid:1"];
    for (config, arguments, code, words) in [
        (fault, &["run"][..], 64, &[unknown][..]),
        (fault, &["check-config"], 64, &[unknown]),
        (fault, &["query", "192.0.2.1"], 64, &[unknown]),
        (cgroup, &["check-config"], 64, &["bpf.cgroup /nowhere/cgroup is no version 2 cgroup"]),
        (state, &["run"], 1, &["cannot make the state directory", "agent.toml/state"]),
        (plain, &["status"], 1, &[none]),
        (plain, &["explain", "192.0.2.1"], 1, &[none]),
        (plain, &["pause"], 1, &[none]),
        (plain, &["resume"], 1, &[none]),
        (plain, &["query", "192.0.2.1", "--gateway", nowhere], 1, &["cannot reach the gateway at", nowhere]),
        (plain, &["query", nobody], 1, &[nobody, "resolve"]),
        (plain, &["explain", nobody], 1, &[nobody, "resolve"]),
        (plain, &["query", "::1", "--gateway", unresolved], 1, &[nobody, "resolve"]),
        (plain, &["query", "192.0.2.1", "--gateway", "gateway"], 64, &[]),
        ("", &["run"], 1, &["cannot read the configuration", path]),
    ] {
        if config.is_empty() {
            std::fs::remove_file(path).unwrap();
        } else {
            std::fs::write(path, config).unwrap();
        }
        let output = agent(&[&["--config", path], arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        let is_right = output.status.code() == Some(code) && text.lines().count() == 1;
        assert!(is_right && words.iter().all(|word| text.contains(word)), "{config:?}, {arguments:?}: {output:?}");
    }
}

#[test]
fn check_config_prints_what_is_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    std::fs::write(&path, "mode = \"observe\"\n").unwrap();
    let text = printed(&agent(&["--config", path.to_str().unwrap(), "check-config"])).0;
    assert_has(&text, &["mode = \"observe\"", "lifetime_s = 60"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_has_the_part_of_the_lease_that_the_kernel_has_beside_applications() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("a.sock");
    let sections = format!("[applications]\nsocket = \"{}\"\n[bpf]\ncontrol_fraction = 0.0", socket.display());
    let leased = EstimateUpdate { lease: Some(Segments(20)), ..estimate("192.0.2.0/24", 40, 60) };
    let (_gateway, agent, _stream) = advised(ADDRESS, &sections, &[leased]).await;
    let explained = || agent.json(&["explain", "192.0.2.77", "--json"]);
    let window = || explained()["start_cwnd_segments"].as_u64();
    eventually("the kernel has the whole lease", || window() == Some(30)).await;
    let mut application = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let lines = [r#"{"hello":{"version":1,"application":"x"}}"#, r#"{"watch":"192.0.2.1"}"#];
    application.write_all(format!("{}\n{}\n", lines[0], lines[1]).as_bytes()).unwrap();
    let networks = || agent.status()["applications"]["networks"].as_u64();
    eventually("it watches", || networks() == Some(1)).await;
    assert_eq!(window(), Some(30), "a watcher takes nothing");
    application.write_all(b"{\"ended\":{\"remote\":\"192.0.2.1:443\",\"acknowledged_bytes\":1}}\n").unwrap();
    eventually("the kernel has half of it", || window() == Some(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_for_applications_that_cannot_be_made_is_a_warning_and_tcp_goes_on() {
    let applications = "[applications]\nsocket = \"/proc/none/applications.sock\"";
    let (_gateway, agent, _stream) = advised(ADDRESS, applications, &[estimate("192.0.2.0/24", 40, 60)]).await;
    eventually("advice is held", || agent.output(&["status"]).status.success()).await;
    let status = agent.status();
    let error = status["applications_error"].as_str().unwrap_or_default();
    assert!(error.contains("applications.socket") && error.contains("/proc/none"), "{status}");
    assert_has(&agent.prints(&["status"]), &["applications are given no advice: "]);

    assert_has(&agent.succeeds(&["check-config"]), &["warning: applications.socket", "/proc/none"]);
}

#[test]
fn probe_changes_nothing_and_says_what_it_found() {
    let findings: Value = serde_json::from_slice(&agent(&["probe", "--json"]).stdout).unwrap();
    let names: Vec<&str> = findings.as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    let expected = "kernel cap_net_admin cgroup_v2 btf congestion_control net.ipv4.tcp_slow_start_after_idle";
    assert!(expected.split(' ').all(|name| names.contains(&name)), "{names:?}");
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

    // The paper's example of docs/reference/protocol.md: a share of 40, 100 segments.
    let answer = ask(&["192.0.2.77", "--bytes", "144800", "--mss", "1448", "--handshake-ms", "96", "--json"]);
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let start = (&answer["start"]["cwnd_segments"], &answer["start"]["ssthresh_segments"]);
    assert_eq!(start, (&33.into(), &33.into()), "{answer}");

    for (arguments, sentence) in [
        (&["192.0.2.77", "--bytes", "144800"][..], "start with a window of 33 segments, threshold 33"),
        (&["198.51.100.1"], &format!("plain TCP: {NO_ESTIMATE}")),
        (&["192.0.2.77", "--handshake-ms", "400"], "(rtt_mismatch)"),
    ] {
        assert_has(&printed(&ask(arguments)).0, &[sentence]);
    }
    let named: Value = serde_json::from_slice(&ask(&["localhost", "--json"]).stdout).unwrap();
    assert_eq!(named["name"], "localhost");
    let addresses = named["answers"].as_array().unwrap().iter().map(|answer| answer["destination"].as_str().unwrap());
    assert!(addresses.clone().any(|address| address == "127.0.0.1"), "{named}");
    let people = printed(&ask(&["localhost"])).0;
    assert!(addresses.clone().all(|address| people.contains(&format!("{address}: no estimate"))), "{people}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_gateways_the_one_in_use_is_shown_asked_and_reported_to() {
    let mut gateway = Gateway::start().await;
    let gone = Gateway::start().await.url().replace("127.0.0.1", "127.0.0.2");
    let mut agent = Agent::stopped();
    let text = format!(
        "state_dir = \"state\"\naddresses = [\"203.0.113.10\"]\nhost_name = \"web-1\"\n[gateway]\nurls = [\"{gone}\", \"{}\"]\n\
         retry_min_ms = 50\nretry_max_ms = 200\n",
        gateway.url()
    );
    std::fs::write(agent.config(), text).unwrap();
    agent.run();
    let _stream = gateway.snapshot(&[]).await;
    let status = || agent.status()["gateway"].clone();
    eventually("subscribed", || status()["connected"] == true).await;
    let status = status();
    assert_eq!(status["url"], gateway.url());
    assert_eq!(status["connected"], true);
    let [first, second] = &status["gateways"].as_array().unwrap()[..] else { panic!("{status}") };
    assert_eq!((&first["url"], &first["in_use"]), (&gone.as_str().into(), &false.into()));
    assert!(first["last_error"].as_str().unwrap().contains("refused"), "{status}");
    assert_eq!((&second["in_use"], &second["last_error"]), (&true.into(), &Value::Null));
    assert_has(&agent.prints(&["status"]), &[&format!("  {}: in use", gateway.url())]);
    assert_has(&agent.prints(&["metrics"]), &[&format!("spand_agent_gateway_in_use{{gateway=\"{gone}\"}} 0")]);

    let answer = agent.json(&["query", "192.0.2.77", "--json"]);
    assert_eq!(answer["estimate"]["prefix"], "192.0.2.0/24", "the one that is gone answers nothing: {answer}");
    agent.succeeds(&["pause"]);
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
    let (_gateway, agent, stream) =
        advised(&format!("{ADDRESS}\nhost_name = \"web-1\""), "", &[estimate("192.0.2.0/24", 40, 60)]).await;
    assert_eq!((stream.request.host_name, stream.request.addresses), ("web-1".into(), vec!["203.0.113.10".into()]));
    let explain = || agent.json(&["explain", "192.0.2.77", "--bytes", "144800", "--json"]);
    eventually("decided", || explain()["outcome"] == "would_be").await;

    let explained = explain();
    assert_eq!((&explained["cwnd_segments"], &explained["on_advice"]), (&10.into(), &false.into()), "{explained}");
    let steps: Vec<&str> = explained["steps"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    let expected = "scope estimate control_group rtt_check model fraction cap floor pacing start mode applied";
    let expected: Vec<&str> = expected.split(' ').collect();
    assert_eq!(steps, expected);
    assert_eq!(agent.outcome("198.51.100.1"), "no_estimate");

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
    let status = agent.status();
    assert_eq!(status["limitations"][0]["name"], "everything");
    assert_eq!(status["decisions"]["apply"], 1);
    assert_has(&agent.prints(&["status"]), &["mode careful, apply dry_run"]);
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
        let (_gateway, agent, _stream) = advised(ADDRESS, "", &[]).await;
        let status = || agent.prints(&["status"]);
        eventually("subscribed", || status().contains(": subscribed")).await;
        assert!(status().contains("no connection from these addresses is open"), "{}", status());
        let listener = TcpListener::bind("198.51.100.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("203.0.113.10:0".parse().unwrap()).unwrap();
        let _open = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let example = format!("for example, 198.51.100.1: starts with 10 segments, standard TCP: {NO_ESTIMATE}");
        assert_has(&status(), &[&example]);
    });
}

/// The gateway of the tests has an estimate of 192.0.2.0/24 and of nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_table_makes_room_for_new_networks_and_explain_and_status_show_it() {
    let mut flood: Vec<_> = (0..16).map(|n| estimate(&format!("2001:db8:{n:x}::/48"), 40, 60)).collect();
    flood.insert(0, estimate("192.0.2.0/24", 40, 60));
    let (_gateway, agent, mut stream) = advised(ADDRESS, "[limits]\nnetworks = 8", &flood).await;
    stream.advise("198.51.100.0/24", 40, 60).await;
    let explain = |address: &str| agent.json(&["explain", address, "--json"]);
    eventually("advised", || explain("198.51.100.1")["outcome"] == "would_be").await;

    let decision = |address: &str| explain(address)["decision"].as_str().unwrap().to_owned();
    let gone = decision("192.0.2.1");
    assert!(gone.contains("the gateway has an estimate") && gone.contains("is full (limits.networks)"), "{gone}");
    let unknown = decision("203.0.113.1");
    assert!(unknown.ends_with(NO_ESTIMATE), "the gateway has none either: {unknown}");
    let status = agent.status();
    assert_eq!((&status["networks_held"], &status["advice"]["evicted"]), (&8.into(), &10.into()), "{status}");
    assert_has(&agent.prints(&["status"]), &["no room for 0 estimates, and 10 made room for others (limits.networks)"]);
}
