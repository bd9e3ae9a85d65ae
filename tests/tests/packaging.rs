//! What is shipped beside the programs: alerts and dashboards ask for numbers that exist, with labels that they have, and
//! manifests give the capabilities of the units, no more and no fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use spand_agent::exposition;
use spand_needs::{Need, lacks, needs};
use spand_proto::operator::Exposition;
use spand_tests::dashboard::stage::Stage;
use spand_tests::patience::PATIENCE;

/// Labels that Prometheus and its configuration add.
const ADDED_LABELS: [&str; 3] = ["instance", "job", "le"];

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every metric as it is scraped, with its labels, by the page that other tests hold against both programs.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md"));
    let mut metrics = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `spand_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').to_owned();
        let labels: BTreeSet<String> = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        if cells[2] == "histogram" {
            for part in ["_bucket", "_sum", "_count"] {
                metrics.insert(format!("{name}{part}"), labels.clone());
            }
        } else {
            metrics.insert(name, labels);
        }
    }
    assert!(metrics.len() > 50, "only {} metrics on the page", metrics.len());
    metrics
}

/// What is wrong with the metrics and label matchers of a query.
fn fault(query: &str, metrics: &BTreeMap<String, BTreeSet<String>>) -> Option<String> {
    let mut rest = query;
    let mut seen = 0;
    while let Some(at) = rest.find("spand_") {
        rest = &rest[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let Some(labels) = metrics.get(name) else { return Some(format!("there is no {name}")) };
        let matchers = after.strip_prefix('{').and_then(|after| after.split('}').next()).unwrap_or_default();
        for matcher in matchers.split(',').filter(|matcher| !matcher.is_empty()) {
            let label = matcher.split(['=', '!']).next().unwrap_or_default().trim();
            if !labels.contains(label) && !ADDED_LABELS.contains(&label) {
                return Some(format!("{name} has no label {label}"));
            }
        }
        seen += 1;
        rest = after;
    }
    (seen == 0).then(|| "it asks for nothing of ours".to_owned())
}

fn check(place: &str, queries: &[String], least: usize) {
    let metrics = metrics();
    assert!(queries.len() >= least, "{place}: only {} queries found", queries.len());
    for query in queries {
        if let Some(fault) = fault(query, &metrics) {
            panic!("{place}: {fault}: {query}");
        }
    }
}

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: String,
    expr: String,
    annotations: BTreeMap<String, String>,
}

fn rules(path: &Path) -> Vec<Rule> {
    let rules: Rules = serde_yaml_ng::from_str(&read(path)).expect("alerts");
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}

#[test]
fn alerts_ask_for_numbers_that_exist() {
    let rules = rules(&packaging("prometheus/spand.rules.yml"));
    check("alerts", &rules.iter().map(|rule| rule.expr.clone()).collect::<Vec<_>>(), 10);
    let tried = read(&packaging("prometheus/spand.rules.test.yml"));
    for Rule { alert, annotations, .. } in rules {
        for key in ["summary", "action"] {
            assert!(annotations.contains_key(key), "{alert} has no {key}");
        }
        assert!(tried.contains(&alert), "{alert} is not tried in spand.rules.test.yml");
    }
}

/// Operators bring rules and dashboards up to date after the programs: a metric keeps its old name for one release.
#[test]
fn alerts_and_dashboard_of_the_release_before_ask_for_numbers_that_exist() {
    let before = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/last-release").join(name);
    let rules = rules(&before("spand.rules.yml"));
    check("alerts of the release before", &rules.into_iter().map(|rule| rule.expr).collect::<Vec<_>>(), 10);
    check_dashboard(&before("spand.json"));
}

#[test]
fn the_dashboard_asks_for_numbers_that_exist() {
    check_dashboard(&packaging("grafana/spand.json"));
}

fn check_dashboard(path: &Path) {
    let dashboard: Value = serde_json::from_str(&read(path)).expect("a dashboard");
    let targets = dashboard["panels"]
        .as_array()
        .expect("a dashboard")
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("a dashboard"));
    let queries: Vec<String> = targets.map(|target| target["expr"].as_str().expect("a dashboard").to_owned()).collect();
    check("dashboard", &queries, 15);
    let variables = dashboard["templating"]["list"].as_array().expect("a dashboard").iter();
    let asked: Vec<String> =
        variables.filter(|one| one["type"] == "query").map(|one| one["query"].to_string()).collect();
    check("variables", &asked, 1);
}

#[test]
fn a_query_for_what_is_not_there_is_found() {
    let metrics = metrics();
    for (query, words) in [
        ("rate(spand_capture_packets[5m])", "there is no spand_capture_packets"),
        ("spand_ready{prefix=\"a\"}", "no label prefix"),
        ("up", "nothing of ours"),
    ] {
        assert!(fault(query, &metrics).unwrap().contains(words), "{query}");
    }
    assert_eq!(fault("spand_ready{part=\"capture\",instance=\"a\"} == 0", &metrics), None);
}

/// An answer's body. No answer is an error: the server may still be starting.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// The metrics of a gateway and of an agent as files of `folder`.
fn expose(folder: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let [gateway, agent] = ["gateway.prom", "agent.prom"].map(|name| folder.join(name));
    let stage = Stage::start(&[], 30, SocketAddr::from(([127, 0, 0, 1], 0)))?;
    fs::write(&gateway, get(stage.address(), "/metrics")?)?;

    let status = serde_json::from_str(include_str!("../fixtures/agent-status.json"))?;
    fs::write(&agent, exposition(&status, Exposition::Text)?)?;
    Ok([gateway, agent])
}

#[test]
fn promtool_finds_the_metrics_of_both_programs_sound() {
    let folder = tempfile::tempdir().unwrap();
    for file in expose(folder.path()).unwrap() {
        let metrics = fs::File::open(&file).unwrap();
        let Ok(output) = Command::new("promtool").args(["check", "metrics"]).stdin(metrics).output() else {
            return lacks(Need::Program("promtool"), "Debian's prometheus has it");
        };
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && printed.is_empty(), "{}: {printed}", file.display());
    }
}

#[test]
fn the_node_exporter_takes_the_metrics_of_both_programs_from_files() {
    let folder = tempfile::tempdir().unwrap();
    expose(folder.path()).unwrap();
    // Free until a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let child = Command::new("prometheus-node-exporter")
        .args(["--collector.disable-defaults", "--collector.textfile"])
        .arg(format!("--collector.textfile.directory={}", folder.path().display()))
        .arg(format!("--web.listen-address={address}"))
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return lacks(Need::Program("prometheus-node-exporter"), "Debian has it");
    };
    let start = Instant::now();
    let mut answer = get(address, "/metrics");
    while answer.is_err() && start.elapsed() < PATIENCE && child.try_wait().is_ok_and(|ended| ended.is_none()) {
        std::thread::sleep(Duration::from_millis(50));
        answer = get(address, "/metrics");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let answer = answer.unwrap();
    let values: Vec<&str> =
        answer.lines().filter(|line| line.contains("_scrape_error") && !line.starts_with('#')).collect();
    assert_eq!(values, ["node_textfile_scrape_error 0"]);
    for name in [
        "spand_build_info{",
        "spand_api_request_seconds_bucket{",
        "spand_agent_build_info{",
        "spand_agent_applied_total{",
    ] {
        assert!(answer.lines().any(|line| line.starts_with(name)), "no {name}");
    }
}

#[test]
fn promtool_finds_the_alerts_sound_and_they_fire() {
    let folder = packaging("prometheus");
    for arguments in [
        &["check", "config", "prometheus.yml"][..],
        &["check", "rules", "spand.rules.yml"],
        &["test", "rules", "spand.rules.test.yml"],
    ] {
        let Ok(output) = Command::new("promtool").args(arguments).current_dir(&folder).output() else {
            return lacks(Need::Program("promtool"), "Debian's prometheus has it");
        };
        let printed = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&printed));
    }
}

/// The capabilities that a unit gives, without `CAP_`.
fn of_the_unit(name: &str) -> BTreeSet<String> {
    let unit = read(&packaging(&format!("systemd/{name}.service")));
    let line = unit.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).expect("capabilities");
    line.split_whitespace().map(|one| one.trim_start_matches("CAP_").to_owned()).collect()
}

#[test]
fn the_unit_of_the_gateway_lets_it_open_what_the_default_configuration_needs() {
    let unit = read(&packaging("systemd/spand-gateway.service"));
    let limit = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).expect("a limit of open files");
    let needed = spand_gateway::config::Config::default().files();
    assert!(limit.parse::<u64>().unwrap() >= 2 * needed, "{limit} of {needed}");
}

/// Applications in C are built on hosts with the agent, so each way to install the agent installs the header.
#[test]
fn the_header_for_c_comes_with_the_agent_in_every_way_to_install_it() {
    let source = "agent/advice/c/spand_advice.h";
    for (file, folder) in [
        ("../Makefile", "$(DESTDIR)$(PREFIX)/include"),
        ("../scripts/deb", "\"$tree/staged/spand-agent/usr/include\""),
        ("../scripts/release", "\"$staged/usr/include\""),
    ] {
        let installed = format!("install -D -m 0644 -t {folder} {source}");
        assert!(read(&packaging(file)).contains(&installed), "{file} has no `{installed}`");
    }
    let spec = read(&packaging("rpm/spand.spec"));
    let agents = spec.split("%files -n spand-agent").nth(1).expect("the agent's files");
    assert!(agents.lines().any(|line| line == "/usr/include/spand_advice.h"), "rpm refuses a file that no package has");
    assert!(read(&packaging("debian/spand-agent.install")).contains("staged/spand-agent/*"));
}

#[test]
fn the_sources_of_the_protocol_come_with_the_gateway_in_every_way_to_install_it() {
    for (file, folder) in [
        ("../Makefile", "$(DESTDIR)$(PREFIX)/share/spand-gateway/proto/spand/v1"),
        ("../scripts/deb", "\"$tree/staged/spand-gateway/usr/share/spand-gateway/proto/spand/v1\""),
        ("../scripts/release", "\"$staged/usr/share/spand-gateway/proto/spand/v1\""),
    ] {
        let installed = format!("install -D -m 0644 -t {folder} proto/spand/v1/*.proto");
        assert!(read(&packaging(file)).contains(&installed), "{file} has no `{installed}`");
    }
    let spec = read(&packaging("rpm/spand.spec"));
    let gateways = spec.split("%files -n spand-gateway").nth(1).expect("the gateway's files");
    assert!(gateways.lines().any(|line| line == "/usr/share/spand-gateway"), "rpm refuses a file that no package has");
}

/// The listener answers to the machine's own names and addresses alone, so a check under another name is refused for ever.
#[test]
fn the_health_check_of_the_image_asks_under_a_name_that_is_answered() {
    let dockerfile = read(&packaging("..").join("Dockerfile"));
    let hosts: Vec<&str> = dockerfile.split("Host: ").skip(1).filter_map(|rest| rest.split('\\').next()).collect();
    assert_eq!(hosts, ["localhost"], "of the gateway's HEALTHCHECK");
}

fn names(value: &serde_yaml_ng::Value) -> BTreeSet<String> {
    value.as_sequence().expect("a list").iter().map(|one| one.as_str().expect("a word").to_owned()).collect()
}

#[test]
fn containers_have_the_capabilities_of_the_units() {
    let compose: serde_yaml_ng::Value = serde_yaml_ng::from_str(&read(&packaging("compose/compose.yml"))).unwrap();
    for service in ["gateway", "agent"] {
        let service_of = &compose["services"][service];
        assert_eq!(names(&service_of["cap_add"]), of_the_unit(&format!("spand-{service}")), "compose: {service}");
        assert_eq!(names(&service_of["cap_drop"]), ["ALL".to_owned()].into());
        assert_eq!(service_of["network_mode"].as_str(), Some("host"));
    }
    let [config, agents] = agents_of(&read(&packaging("kubernetes/spand-agent.yaml")));
    let pod = &agents["spec"]["template"]["spec"];
    let capabilities = &pod["containers"][0]["securityContext"]["capabilities"];
    assert_eq!(names(&capabilities["add"]), of_the_unit("spand-agent"));
    assert_eq!(names(&capabilities["drop"]), ["ALL".to_owned()].into());
    assert_eq!(pod["hostNetwork"].as_bool(), Some(true));
    let mounted: BTreeSet<&str> = pod["containers"][0]["volumeMounts"]
        .as_sequence()
        .unwrap()
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    let given: BTreeSet<&str> =
        pod["volumes"].as_sequence().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(mounted, given);
    // The configuration inside is one.
    let config = config["data"]["agent.toml"].as_str().unwrap();
    spand_agent::config::Config::parse(config, Path::new("agent.toml")).unwrap();
}

/// The configuration and the agents of manifests.
fn agents_of(manifests: &str) -> [serde_yaml_ng::Value; 2] {
    let documents = serde_yaml_ng::Deserializer::from_str(manifests);
    let documents: Vec<_> = documents.map(|one| serde_yaml_ng::Value::deserialize(one).expect("a manifest")).collect();
    ["ConfigMap", "DaemonSet"]
        .map(|kind| documents.iter().find(|one| one["kind"].as_str() == Some(kind)).expect(kind).clone())
}

#[test]
fn the_chart_renders_the_manifest() {
    let chart = packaging("helm/spand-agent");
    let version: serde_yaml_ng::Value = serde_yaml_ng::from_str(&read(&chart.join("Chart.yaml"))).unwrap();
    for name in ["version", "appVersion"] {
        assert_eq!(version[name].as_str(), Some(env!("CARGO_PKG_VERSION")), "{name} of the chart");
    }
    if !needs(Need::Program("helm")) {
        return;
    }
    let mut helm = Command::new("helm");
    let output = helm.args(["template", "spand-agent", "--namespace", "spand"]).arg(&chart).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [config, mut agents] = agents_of(&String::from_utf8(output.stdout).unwrap());
    let [wanted_config, wanted] = agents_of(&read(&packaging("kubernetes/spand-agent.yaml")));
    let text = |config: &serde_yaml_ng::Value| config["data"]["agent.toml"].as_str().unwrap().trim_end().to_owned();
    assert_eq!(text(&config), text(&wanted_config));
    // What a chart is given, and a manifest does not need.
    let template = &mut agents["spec"]["template"];
    template["metadata"].as_mapping_mut().unwrap().remove("annotations");
    template["spec"].as_mapping_mut().unwrap().remove("nodeSelector");
    template["spec"]["containers"][0].as_mapping_mut().unwrap().remove("imagePullPolicy");
    assert_eq!(agents, wanted);
}

#[test]
fn servers_for_gateways_that_share_run_alike_in_compose_and_kubernetes() {
    let compose: serde_yaml_ng::Value = serde_yaml_ng::from_str(&read(&packaging("compose/nats.yml"))).unwrap();
    let service = &compose["services"]["nats"];
    let text = read(&packaging("kubernetes/spand-nats.yaml"));
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let documents: Vec<_> = documents.map(|one| serde_yaml_ng::Value::deserialize(one).expect("a manifest")).collect();
    let of = |kind: &str| documents.iter().find(|one| one["kind"].as_str() == Some(kind)).unwrap();
    let set = &of("StatefulSet")["spec"];
    let container = &set["template"]["spec"]["containers"][0];
    assert_eq!(service["image"], container["image"]);
    assert_eq!(names(&service["command"]), names(&container["args"]));
    for dropped in [&service["cap_drop"], &container["securityContext"]["capabilities"]["drop"]] {
        assert_eq!(names(dropped), ["ALL".to_owned()].into());
    }
    // As many as the configuration's routes, and one of them may be away.
    let routes = read(&packaging("nats/server.conf")).matches("nats://nats-").count();
    assert_eq!(set["replicas"].as_u64(), Some(routes as u64));
    assert_eq!(of("PodDisruptionBudget")["spec"]["maxUnavailable"].as_u64(), Some(1));
    let ports = |list: &serde_yaml_ng::Value, key: &str| -> BTreeSet<u64> {
        list.as_sequence().unwrap().iter().filter_map(|port| port[key].as_u64()).collect()
    };
    assert_eq!(ports(&of("Service")["spec"]["ports"], "port"), ports(&container["ports"], "containerPort"));
}
