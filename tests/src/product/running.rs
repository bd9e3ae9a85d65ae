//! Gateway and agent in the lab: their start and stop, and what they set.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::api::Api;
use super::daemon::Daemon;
use super::interrupt;
use super::setup::{AgentSetup, GatewaySetup};
use crate::lab::namespace::Namespace;
use crate::lab::topology::{GATEWAY_MANAGEMENT, Topology};
use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::Value;

pub(super) const GRPC_PORT: u16 = 7400;
pub(super) const HTTP_PORT: u16 = 7480;
/// Time a program gets to become ready.
pub(super) const READY_MAX: Duration = Duration::from_secs(10);

/// The running product.
#[derive(Debug)]
pub struct Product {
    gateway: Daemon,
    agent: Option<Daemon>,
    api: Api,
    folder: PathBuf,
    /// How a person asks the running agent, `{}` standing for the command.
    agent_command: String,
}

impl Product {
    /// Starts the gateway and waits until it is ready.
    pub fn start_gateway(lab: &Topology, program: &Path, setup: &GatewaySetup, folder: &Path) -> Result<Self> {
        let config = folder.join("gateway.toml");
        write(&config, &setup.toml())?;
        let arguments = ["run", "--config", utf8(&config)?];
        let gateway = Daemon::start("spand-gateway", program, &arguments, &lab.gateway, folder)?;
        let address = SocketAddr::new(GATEWAY_MANAGEMENT.into(), HTTP_PORT);
        let api = Api { namespace: lab.gateway.clone(), address };
        let mut product = Self { gateway, agent: None, api, folder: folder.to_owned(), agent_command: String::new() };
        wait("the gateway's /readyz", || {
            product.gateway.check()?;
            Ok(product.api.get("/readyz").is_ok_and(|(status, _)| status == 200).then_some(()))
        })?;
        Ok(product)
    }

    /// The gateway's JSON interface.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Where the agent answers questions.
    pub fn agent_socket(&self) -> PathBuf {
        self.folder.join("agent/control.sock")
    }

    /// Fails where a program has ended.
    pub fn check(&mut self) -> Result<()> {
        self.gateway.check()?;
        self.agent.as_mut().map_or(Ok(()), Daemon::check)
    }

    /// Starts the agent on the server host.
    pub fn start_agent(&mut self, lab: &Topology, program: &Path, setup: &AgentSetup) -> Result<()> {
        let config = self.folder.join("agent.toml");
        write(&config, &setup.toml())?;
        let arguments = ["run", "--config", utf8(&config)?];
        self.agent = Some(Daemon::start("spand-agent", program, &arguments, &lab.server, &self.folder)?);
        self.agent_command = format!("{} {{}} --config {}", program.display(), config.display());
        Ok(())
    }

    /// Stops the agent, where one runs, and says how that went.
    pub fn stop_agent(&mut self) -> Option<String> {
        Some(self.agent.take()?.stop())
    }

    /// Prints addresses to try.
    pub fn print_addresses(&self) {
        let enter = format!("nsenter --net={}", self.api.namespace.path().display());
        for path in ["/v1/networks", "/v1/advice?destination=198.51.100.11&bytes=100000", "/metrics"] {
            println!("  {enter} curl -s '{}'", self.api.url(path));
        }
        for command in ["status", "explain 198.51.100.11"] {
            println!("  {}", self.agent_command.replace("{}", command));
        }
        println!("  gRPC (spand.v1): {GATEWAY_MANAGEMENT}:{GRPC_PORT} in the same namespace");
    }

    /// Stops both, the agent first, and returns the state of each and of the agent's routes.
    pub fn stop(self, lab: &Topology) -> Vec<String> {
        let mut outcome = Vec::new();
        if let Some(agent) = self.agent {
            outcome.push(agent.stop());
            outcome.push(match initial_windows(&lab.server) {
                Ok(left) if left.is_empty() => "no route with an initial window is left".to_owned(),
                Ok(left) => format!("routes are LEFT BEHIND: {left:?}"),
                Err(error) => format!("routes cannot be read: {error:#}"),
            });
        }
        outcome.push(self.gateway.stop());
        outcome
    }
}

/// Routes of a host that set an initial window, by prefix.
fn initial_windows(host: &Namespace) -> Result<BTreeMap<IpNet, u32>> {
    let mut windows = BTreeMap::new();
    for family in ["-4", "-6"] {
        let output = host.command("ip").args([family, "-json", "route", "show"]).output().context("cannot run `ip`")?;
        let routes: Value = serde_json::from_slice(&output.stdout).context("`ip` printed no JSON")?;
        for route in routes.as_array().into_iter().flatten() {
            let mut metrics = route.get("metrics").and_then(Value::as_array).into_iter().flatten();
            let window = metrics.find_map(|metric| metric.get("initcwnd")?.as_u64());
            let prefix = route.get("dst").and_then(Value::as_str).and_then(|text| text.parse().ok());
            if let (Some(prefix), Some(window)) = (prefix, window) {
                windows.insert(prefix, u32::try_from(window)?);
            }
        }
    }
    Ok(windows)
}

/// Asks again and again until there is an answer.
fn wait<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    while begin.elapsed() < READY_MAX {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if interrupt::came() {
            bail!("interrupted");
        }
        thread::sleep(Duration::from_millis(50));
    }
    bail!("{what} did not come within {READY_MAX:?}")
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
