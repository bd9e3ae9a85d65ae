//! Gateway and agent in the lab: their start and stop, and what they set.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::asking::Api;
use super::daemon::{Agent, Gateway};
use super::interrupt;
use super::setup::{AgentSetup, GatewaySetup};
use crate::ending::TooBusy;
use crate::lab::namespace::Namespace;
use crate::lab::topology::{GATEWAY_MANAGEMENT, Topology};
use crate::patience;
use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::Value;
use spand_agent::control::Explained;

pub(super) const GRPC_PORT: u16 = 7400;
pub(super) const HTTP_PORT: u16 = 7480;

/// The running product: one gateway, and an agent.
#[derive(Debug)]
pub struct Product {
    gateway: Gateway,
    agent: Option<Agent>,
    folder: PathBuf,
}

impl Product {
    /// Starts the gateway and waits until it is ready.
    pub fn start_gateway(lab: &Topology, program: &Path, setup: &GatewaySetup, folder: &Path) -> Result<Self> {
        let gateway = Gateway::start(&lab.gateway, program, setup, folder)?;
        Ok(Self { gateway, agent: None, folder: folder.to_owned() })
    }

    /// The gateway's JSON interface.
    pub const fn api(&self) -> &Api {
        self.gateway.api()
    }

    /// Fails where a program has ended.
    pub fn check(&mut self) -> Result<()> {
        self.gateway.check()?;
        self.agent.as_mut().map_or(Ok(()), Agent::check)
    }

    /// Starts the agent on the server host.
    pub fn start_agent(&mut self, lab: &Topology, program: &Path, setup: &AgentSetup) -> Result<()> {
        self.agent = Some(Agent::start(&lab.server, program, setup, &self.folder)?);
        Ok(())
    }

    fn agent(&self) -> Result<&Agent> {
        self.agent.as_ref().context("no agent was started")
    }

    /// Waits until the agent has subscribed to the gateway.
    pub fn wait_for_agent(&mut self) -> Result<()> {
        self.gateway.check()?;
        self.agent.as_mut().context("no agent was started")?.wait_for_subscription()
    }

    /// The agent's decision for a connection now.
    pub fn explained(&self, destination: IpAddr, bytes: Option<u64>, mss: Option<u64>) -> Result<Explained> {
        self.agent()?.explained(destination, bytes, mss)
    }

    /// What the agent's method has met so far, by its counters' names: connections that it started, and those that it did not.
    pub fn method_events(&self) -> Result<BTreeMap<String, u64>> {
        self.agent()?.method_events()
    }

    /// Waits until the agent applies advice to connections to all these places, or a little: what it does not apply stays
    /// so.
    pub fn wait_for_advice(&mut self, places: &[(IpAddr, Option<u64>)]) -> Result<Vec<Explained>> {
        self.gateway.check()?;
        self.agent.as_mut().context("no agent was started")?.wait_for_advice(places)
    }

    /// Stops the agent, where one runs, and says how that went.
    pub fn stop_agent(&mut self) -> Option<String> {
        Some(self.agent.take()?.stop())
    }

    /// Prints addresses to try.
    pub fn print_addresses(&self) {
        print_addresses(&self.gateway);
        if let Some(agent) = &self.agent {
            agent.print_commands();
        }
        println!("  gRPC (spand.v1): {GATEWAY_MANAGEMENT}:{GRPC_PORT} in the same namespace");
    }

    /// Stops both, the agent first, and returns the state of each and of the agent's routes.
    pub fn stop(self, lab: &Topology) -> Vec<String> {
        let mut outcome = Vec::new();
        if let Some(agent) = self.agent {
            outcome.extend(stop_agent(agent, &lab.server));
        }
        outcome.push(self.gateway.stop());
        outcome
    }
}

/// Prints addresses of a gateway to try.
pub fn print_addresses(gateway: &Gateway) {
    let enter = format!("nsenter --net={}", gateway.api().namespace.path().display());
    for path in ["/v1/networks", "/v1/advice?destination=198.51.100.11&bytes=100000", "/metrics"] {
        println!("  {enter} curl -s '{}'", gateway.api().url(path));
    }
}

/// Stops the agent of a host, and returns its state and that of its routes.
pub fn stop_agent(agent: Agent, host: &Namespace) -> [String; 2] {
    let stopped = agent.stop();
    let routes = match initial_windows(host) {
        Ok(left) if left.is_empty() => "no route with an initial window is left".to_owned(),
        Ok(left) => format!("routes are LEFT BEHIND: {}", words(&left)),
        Err(error) => format!("routes cannot be read: {error:#}"),
    };
    [stopped, routes]
}

/// Prefixes with their windows.
fn words(windows: &BTreeMap<IpNet, u32>) -> String {
    let words: Vec<String> = windows.iter().map(|(prefix, window)| format!("{prefix} initcwnd {window}")).collect();
    words.join(", ")
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

/// Asks again and again until there is an answer; without one in this time the machine was [too busy](TooBusy).
pub(super) fn wait<T>(what: &str, within: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let (begin, within) = (Instant::now(), patience::shortened(within));
    while begin.elapsed() < within {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if interrupt::came() {
            bail!("interrupted");
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err(TooBusy::new(what, within).into())
}

pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

pub(super) fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
