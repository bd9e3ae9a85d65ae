//! The gateway's answers and what its commands print.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spand_core::event::{Event, StartImminent};
use spand_core::networks::Withdrawal;
use spand_core::service::ServiceSize;
use spand_core::types::Trigger;
use spand_gateway::api::paths;
use spand_gateway::publisher::{Batch, Part};
use spand_proto::units::Bytes;
use spand_tests::cases::keep::capture_file;
use spand_tests::dashboard::stage::Stage;
use spand_tests::dialect::Origin;
use spand_tests::lab::namespace::Namespace;
use spand_tests::lab::topology::SERVER_V4;
use spand_tests::patience::PATIENCE;

use super::Walk;

/// A kept capture with losses, in which the sender is a host of the stage.
const CAPTURE: &str = "cubic-200-kb";
/// A made-up network with an estimate, and an address of it; nobody else talks to it.
pub(super) const NETWORK: &str = "100.64.8.0/24";
pub(super) const ADDRESS: &str = "100.64.8.9";

/// A gateway that has something of everything.
pub(super) fn stage(namespace: &Namespace) -> Result<Stage> {
    // Its threads are where it is started.
    let stage = namespace.enter(|| {
        let stage = Stage::start(&[CAPTURE], 30, SocketAddr::from(([127, 0, 0, 1], 0)))?;
        stage.invent_faults()?;
        Ok(stage)
    })?;
    let now = stage.published().now();
    let start = StartImminent {
        host: SERVER_V4.into(),
        remote: "100.64.1.9".parse()?,
        network: "100.64.1.0/24".parse()?,
        trigger: Trigger::PassiveOpen,
        at: now,
    };
    let service = ServiceSize { service: (SERVER_V4, 443).into(), quantile: Bytes(30_048), transfers: 412 };
    let events = vec![
        Event::Withdrawn { network: "203.0.113.0/24".parse()?, reason: Withdrawal::Expired },
        Event::StartImminent(start),
        Event::ServiceSize(service),
    ];
    stage.published().apply(Batch { events, ..Batch::new() });
    Ok(stage)
}

/// Asks every address.
pub(super) fn answers(walk: &mut Walk, stage: &Stage) -> Result<()> {
    // What is counted by the second is there after the second one.
    std::thread::sleep(Duration::from_millis(2_500));
    for path in paths() {
        let asked: &[&str] = match path {
            "/" | "/dashboard/{*file}" | "/metrics" => {
                // No JSON.
                walk.documents.insert(path.to_owned());
                continue;
            }
            "/v1/live" => {
                let document = walk.namespace.enter(|| live(stage.address()))?;
                walk.walk(Origin::Other, path, &document);
                continue;
            }
            "/v1/networks" => &["/v1/networks", "/v1/networks?trend=yes&limit=2"],
            "/v1/networks/{*prefix}" => &["/v1/networks/100.64.1.0/24"],
            "/v1/history/{*prefix}" => &["/v1/history/100.64.1.0/24"],
            "/v1/services" => &["/v1/services?limit=1"],
            "/v1/advice" => &[
                "/v1/advice?destination=100.64.1.9&bytes=100000&mss=1448",
                "/v1/advice?destination=100.64.1.9&snd_wnd=14480",
                "/v1/advice?destination=9.9.9.9",
            ],
            "/v1/agents" => &["/v1/agents", "/v1/agents?limit=1"],
            other => &[other][..],
        };
        for question in asked {
            let document = walk.namespace.enter(|| ask(stage.address(), question))?;
            walk.walk(Origin::Other, path, &document);
        }
    }
    stage.published().readiness().not_ready(Part::Capture, "the interface mirror0 is down");
    for (path, question) in [("/readyz", "/readyz"), ("/v1/traffic", "/v1/traffic"), ("error", "/v1/networks/nonsense")]
    {
        let document = walk.namespace.enter(|| ask(stage.address(), question))?;
        walk.walk(Origin::Other, path, &document);
    }
    stage.published().readiness().ready(Part::Capture);
    Ok(())
}

/// What the commands print.
pub(super) fn commands(walk: &mut Walk, stage: &Stage) -> Result<()> {
    let url = format!("http://{}", stage.address());
    for question in ["status", "networks", "network 100.64.1.0/24", "agents", "benefit", "events"] {
        let question: Vec<_> = question.split(' ').chain(["--json", "--url", &url]).collect();
        walk.command(Origin::Other, "spand-gateway", &question)?;
    }
    let config = walk.path("gateway.toml");
    std::fs::write(&config, "[capture]\ninterfaces = [\"eth0\"]\n\n[store]\nenabled = false\n")?;
    let config = config.to_str().context("a path in UTF-8")?.to_owned();
    walk.command(Origin::Other, "spand-gateway", &["doctor", "--json", "--seconds", "1", "--config", &config])?;
    let capture = capture_file(CAPTURE);
    let capture = capture.to_str().context("a path in UTF-8")?;
    let damaged = walk.path("damaged.pcap");
    std::fs::write(&damaged, "no capture")?;
    let damaged = damaged.to_str().context("a path in UTF-8")?.to_owned();
    let replay = ["replay", "--format", "json", "--flows", "--min-samples", "1", "--min-connections", "1"];
    let openings = ["--rule", "cached", "--compare", "averaged", capture];
    for more in [&["--every", "100ms", capture][..], &[capture, &damaged], &openings] {
        let document = walk.command(Origin::Replay, "spand-gateway", &[&replay, more].concat())?;
        ensure!(document["flows"].as_array().is_some_and(|flows| !flows.is_empty()), "no flows in {CAPTURE}");
    }
    Ok(())
}

fn request(address: SocketAddr, path: &str) -> Result<TcpStream> {
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    write!(tcp, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    Ok(tcp)
}

/// The document of an answer, whatever its status.
fn ask(address: SocketAddr, path: &str) -> Result<Value> {
    let mut answer = String::new();
    request(address, path)?.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    serde_json::from_str(body).with_context(|| format!("{path} gives no JSON: {body}"))
}

/// The first message of the live stream.
fn live(address: SocketAddr) -> Result<Value> {
    let mut tcp = request(address, "/v1/live")?;
    let (mut answer, mut part) = (Vec::new(), [0; 4_096]);
    loop {
        let read = tcp.read(&mut part)?;
        ensure!(read > 0, "the stream ended");
        answer.extend_from_slice(part.get(..read).unwrap_or_default());
        let text = String::from_utf8_lossy(&answer);
        let data = text.lines().find_map(|line| line.strip_prefix("data:"));
        if let Some(document) = data.and_then(|data| serde_json::from_str(data.trim()).ok()) {
            return Ok(document);
        }
    }
}
