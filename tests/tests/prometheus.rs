//! A real Prometheus with the configuration that is shipped scrapes a gateway with traffic and agents: it takes what the gateway
//! says, has something to show for each panel of the gateway's, and finds every alert sound on it.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use spand_needs::{Need, lacks};
use spand_tests::dashboard::stage::Stage;
use spand_tests::patience::PATIENCE;

/// Panels without a number on this stage, and why.
const NOTHING_THERE: [(&str, &str); 5] = [
    ("spand_agent_", "agents leave theirs in a file that the node exporter reads"),
    ("spand_store_", "the stage has no store"),
    ("spand_engine_ignored_total", "nothing is ignored"),
    ("spand_api_refused_total", "nobody is refused"),
    ("spand_api_connections_refused_total", "nobody is refused"),
];

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path)
}

/// A running Prometheus; ends when dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes `gateway` every second; `None` where it is not installed.
    fn start(gateway: SocketAddr) -> Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        let shipped = std::fs::read_to_string(packaging("prometheus/prometheus.yml"))?;
        let here = shipped.replace("127.0.0.1:7480", &gateway.to_string()).replace("15s", "1s");
        ensure!(here.contains(&gateway.to_string()) && here.contains("1s"), "the configuration is another one now");
        std::fs::write(folder.path().join("prometheus.yml"), here)?;
        std::fs::copy(packaging("prometheus/spand.rules.yml"), folder.path().join("spand.rules.yml"))?;
        // Free until a moment ago.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = Command::new("prometheus")
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let Ok(child) = child else { return Ok(None) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Some(Self { child, address, runtime, _folder: folder }))
    }

    fn ask(&self, path: &str) -> Result<Value> {
        let url = format!("http://{}{path}", self.address);
        self.runtime.block_on(async {
            let client = Client::builder(TokioExecutor::new()).build_http::<String>();
            let body = client.get(url.parse()?).await?.into_body().collect().await?.to_bytes();
            let answer: Value = serde_json::from_slice(&body).with_context(|| format!("{url} gave no JSON"))?;
            ensure!(answer["status"] == "success", "{url}: {answer}");
            Ok(answer["data"].clone())
        })
    }

    /// What a query gives now.
    fn query(&self, query: &str) -> Result<Vec<Value>> {
        let mut encoded = String::new();
        query.bytes().try_for_each(|byte| write!(encoded, "%{byte:02X}"))?;
        Ok(self.ask(&format!("/api/v1/query?query={encoded}"))?["result"].as_array().cloned().unwrap_or_default())
    }

    /// Whether a query gives something that can be drawn.
    fn shows(&self, query: &str) -> Result<bool> {
        let drawn = |one: &Value| one["value"][1].as_str().is_some_and(|value| value != "NaN");
        Ok(self.query(query)?.iter().any(drawn))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Every query of the dashboard, with what Grafana puts in for its variables.
fn panels() -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(packaging("grafana/spand.json"))?)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.filter_map(|target| target["expr"].as_str());
    Ok(queries.map(|query| query.replace("$gateway", ".*").replace("$__rate_interval", "10s")).collect())
}

fn eventually(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    loop {
        let held = holds();
        if matches!(held, Ok(true)) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("{what}: not within {PATIENCE:?} ({held:?})");
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn prometheus_takes_what_the_gateway_says_and_every_panel_shows_something() -> Result<()> {
    let stage = Stage::start(&["cubic-four-flows", "bbr-ipv6"], 50, SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let Some(prometheus) = Prometheus::start(stage.address())? else {
        lacks(Need::Program("prometheus"), "Debian's prometheus has it");
        return Ok(());
    };
    // A rate is of what happens between two scrapes.
    let mut batch = 5;
    let mut report = || {
        batch += 1;
        stage.report(batch)
    };
    eventually("it scrapes the gateway", || prometheus.shows("up{job=\"spand-gateway\"} == 1"))?;
    let queries = panels()?;
    ensure!(queries.len() > 15, "only {} queries", queries.len());
    for query in queries {
        if let Some((_, why)) = NOTHING_THERE.iter().find(|(name, _)| query.contains(name)) {
            println!("not looked at, {why}: {query}");
            // It must be a query all the same.
            prometheus.query(&query)?;
            continue;
        }
        eventually(&query, || {
            report()?;
            prometheus.shows(&query)
        })?;
    }
    eventually("every alert was looked at", || {
        let groups = prometheus.ask("/api/v1/rules")?;
        let rules: Vec<Value> = groups["groups"]
            .as_array()
            .context("no groups")?
            .iter()
            .filter_map(|group| group["rules"].as_array().cloned())
            .flatten()
            .collect();
        for rule in &rules {
            ensure!(rule["health"] != "err", "{}: {}", rule["name"], rule["lastError"]);
        }
        Ok(rules.len() >= 10 && rules.iter().all(|rule| rule["health"] == "ok"))
    })
}
