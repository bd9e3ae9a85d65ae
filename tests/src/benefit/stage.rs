//! The lab of a scenario: a host for each kind of sender, a path for each site, the product's programs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ipnet::{IpNet, Ipv4Net};
use serde_json::Value;
use spand_agent::control::Explained;
use tempfile::TempDir;

use super::result::Run;
use super::scenario::{Arm, Scenario, Site};
use super::timeline::{self, Timelines};
use crate::lab::host::{Host, Mirrored};
use crate::lab::namespace::Cgroup;
use crate::lab::namespace::Namespace;
use crate::lab::path::Carrier;
use crate::lab::tap::Tap;
use crate::lab::topology::{Access, NetworkPlan, SERVER_DEVICE, Topology};
use crate::lab::traffic::{Conduct, Server};
use crate::product::{AgentSetup, ApplyMethod, GatewaySetup, Product, StartVariant};

/// The product's programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The gateway.
    pub gateway: PathBuf,
    /// The agent.
    pub agent: PathBuf,
    /// Lines added to the agent's configuration.
    pub agent_more: String,
    /// Where recordings, logs and configurations stay; `None`: nowhere.
    pub keep: Option<PathBuf>,
}

/// A scenario's lab, running. Its programs end with the thread that built it.
#[derive(Debug)]
pub struct Stage {
    /// The product.
    pub product: Product,
    /// Hosts by kind.
    pub hosts: BTreeMap<Arm, Host>,
    /// Namespaces and paths.
    pub lab: Topology,
    /// The gateway's network of each site.
    site_networks: Vec<IpNet>,
    folder: PathBuf,
    /// The folder, where nobody keeps it.
    scratch: Option<TempDir>,
    _servers: Vec<Server>,
    /// Whose sockets the agent takes; entered again for connections that the server opens.
    pub cgroup: Option<Cgroup>,
}

/// Recordings under way, one at each host.
#[derive(Debug)]
pub struct Recording {
    taps: Vec<(IpAddr, PathBuf, Tap)>,
}

/// What the recordings held.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Every connection.
    pub timelines: Timelines,
    /// Packets written, and packets that the taps lost.
    pub packets: (u64, u64),
}

/// The prefix of a site: of the addresses for benchmarks (RFC 2544).
pub fn prefix(site: usize) -> Result<IpNet> {
    Ok(whole(site)?.into())
}

fn whole(site: usize) -> Result<Ipv4Net> {
    let third = u8::try_from(site).context("fewer than 256 sites")?;
    Ok(Ipv4Net::new([198, 18, third, 0].into(), 24)?)
}

/// The network of a site as the gateway has it.
fn network(sites: &[Site], site: usize) -> Result<IpNet> {
    prefix(sites.get(site).and_then(|site| site.beside).unwrap_or(site))
}

/// What the clients of a site have of it: half, where another site's are in it as well.
fn part(sites: &[Site], site: usize) -> Result<IpNet> {
    let whole = whole(sites.get(site).and_then(|site| site.beside).unwrap_or(site))?;
    let is_upper = sites.get(site).is_some_and(|site| site.beside.is_some());
    let is_shared = is_upper || sites.iter().any(|other| other.beside == Some(site));
    let mut halves = whole.subnets(if is_shared { 25 } else { 24 })?;
    Ok(halves.nth(usize::from(is_upper)).context("a network has two halves")?.into())
}

impl Stage {
    /// Builds it and starts the gateway.
    pub fn build(scenario: &Scenario, run: &Run, programs: &Programs) -> Result<Self> {
        let plan = |(n, site): (usize, &Site)| {
            let path = site.path.config(run.seed.wrapping_mul(1_000) + n as u64);
            Ok(NetworkPlan { prefix: part(&scenario.sites, n)?, clients: site.clients, path })
        };
        let plans: Vec<NetworkPlan> = scenario.sites.iter().enumerate().map(plan).collect::<Result<_>>()?;
        let lab = Topology::build_on(&plans, Access::default(), run.paths)?;
        for (network, site) in lab.networks.iter().zip(&scenario.sites) {
            network.namespace.ip(&[&format!("link set wan0 mtu {}", site.path.mtu())])?;
        }
        let mut arms: Vec<Arm> =
            scenario.sites.iter().flat_map(|site| (0..site.clients).map(|n| site.senders.to(n))).collect();
        arms.sort_unstable();
        arms.dedup();
        let cgroup = if run.way == ApplyMethod::Bpf { Some(Cgroup::make("spand-benefit")?) } else { None };
        let mut hosts = BTreeMap::new();
        let mut servers = Vec::new();
        for (n, arm) in arms.into_iter().enumerate() {
            let host = match arm {
                Arm::Product => lab.server_host(),
                // Senders of somebody else: the gateway's organisation does not see them.
                other => lab.add_host(n, &other.name(), Mirrored::No)?,
            };
            configure(&host.namespace, arm)?;
            if arm == Arm::Product {
                host.namespace.default_congestion_control(scenario.congestion_control)?;
            }
            let is_product = arm == Arm::Product;
            let runs = if is_product { scenario.congestion_control } else { arm.congestion_control() };
            // As BBR's authors want it; the emulator's machines may lack it.
            if run.paths == Carrier::Kernel && runs == Arm::Bbr.congestion_control() {
                host.namespace.tc(&[&format!("qdisc replace dev {SERVER_DEVICE} root fq")])?;
            }
            let conduct = Conduct { states_sizes: run.stated && arm == Arm::Product, ..Conduct::default() };
            let start = || Server::start_with(&host.namespace, lab.port, &conduct);
            servers.push(match &cgroup {
                Some(cgroup) if arm == Arm::Product => cgroup.enter(start)?,
                _ => start()?,
            });
            hosts.insert(arm, host);
        }
        let (folder, scratch) = folder(programs.keep.as_deref())?;
        let setup = GatewaySetup { rule: run.start.rule(), ..GatewaySetup::default() };
        let product = Product::start_gateway(&lab, &programs.gateway, &setup, &folder)?;
        let site_networks = (0..plans.len()).map(|n| network(&scenario.sites, n)).collect::<Result<_>>()?;
        Ok(Self { product, hosts, lab, site_networks, folder, scratch, _servers: servers, cgroup })
    }

    /// Starts the agent on the product's host, where the way has one, with starts that are made of this.
    pub fn start_agent(
        &mut self,
        scenario: &Scenario,
        (run, start): (&Run, StartVariant),
        programs: &Programs,
    ) -> Result<()> {
        if run.way == ApplyMethod::None {
            return Ok(());
        }
        let include = (0..).zip(&scenario.sites).filter(|(_, site)| site.is_product());
        let setup = AgentSetup {
            method: run.way,
            mode: run.mode,
            include: include
                .map(|(n, _)| network(&scenario.sites, n))
                .collect::<Result<BTreeSet<_>>>()?
                .into_iter()
                .collect(),
            cgroup: self.cgroup.as_ref().map(|cgroup| cgroup.folder().to_owned()),
            control_fraction: 0.0,
            number: 0,
            gateways: Vec::new(),
            more: format!("{}\n{}", start.agent_lines(), programs.agent_more),
        };
        self.product.start_agent(&self.lab, &programs.agent, &setup)
    }

    /// Where a client of a site finds its sender.
    pub fn server(&self, arm: Arm) -> Result<SocketAddr> {
        let host = self.hosts.get(&arm).with_context(|| format!("there is no host {}", arm.name()))?;
        Ok(SocketAddr::new(host.address, self.lab.port))
    }

    /// The gateway's share for a site, in segments; `None` where it has no estimate.
    pub fn share(&self, site: usize) -> Result<Option<u64>> {
        let (status, body) = self
            .product
            .api()
            .get(&format!("/v1/networks/{}", self.site_networks.get(site).context("a network for each site")?))?;
        if status == 404 {
            return Ok(None);
        }
        ensure!(status == 200, "the gateway answered {status} to a question about a network: {body}");
        let answer: Value = serde_json::from_str(&body).context("the gateway's answer is no JSON")?;
        Ok(answer.get("wc_segments").and_then(Value::as_u64))
    }

    /// A client of a site.
    fn client(&self, site: usize) -> Result<IpAddr> {
        let network = self.lab.networks.get(site).context("a network for each site")?;
        network.addresses.first().copied().context("a client for each site")
    }

    /// What the agent says of a connection to a site now.
    pub fn explained(&self, site: usize, bytes: Option<u64>, mss: u64) -> Result<Explained> {
        self.product.explained(self.client(site)?, bytes, Some(mss))
    }

    /// Waits until the agent applies advice on all these sites, or a little.
    pub fn wait_for_advice(&mut self, sites: &[(usize, u64)]) -> Result<Vec<String>> {
        let place = |(site, mss): &(usize, u64)| Ok((self.client(*site)?, Some(*mss)));
        let places: Vec<(IpAddr, Option<u64>)> = sites.iter().map(place).collect::<Result<_>>()?;
        let explained = self.product.wait_for_advice(&places)?;
        Ok(explained.iter().map(|one| format!("{} segments ({})", one.cwnd_segments, one.outcome)).collect())
    }

    /// Starts recording at every host.
    pub fn record(&self) -> Result<Recording> {
        let tap = |(arm, host): (&Arm, &Host)| {
            let file = self.folder.join(format!("{}.pcap", arm.name()));
            let tap = Tap::start_at_host(&host.namespace, SERVER_DEVICE, &file)?;
            Ok((host.address, file, tap))
        };
        Ok(Recording { taps: self.hosts.iter().map(tap).collect::<Result<_>>()? })
    }

    /// Ends a recording and reads it.
    pub fn recorded(&self, recording: Recording) -> Result<Recorded> {
        let mut recorded = Recorded::default();
        for (address, file, tap) in recording.taps {
            let counts = tap.finish()?;
            recorded.packets.0 += counts.packets;
            recorded.packets.1 += counts.dropped;
            recorded.timelines.extend(timeline::read(&file, address, self.lab.port)?);
            if self.scratch.is_some() {
                std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
            }
        }
        Ok(recorded)
    }
}

/// Sets the congestion control and the initial window of a kind's host.
pub fn configure(host: &Namespace, arm: Arm) -> Result<()> {
    host.default_congestion_control(arm.congestion_control())?;
    let Some(window) = arm.initial_window() else { return Ok(()) };
    let output = host.command("ip").args(["-4", "route", "show", "default"]).output().context("cannot run `ip`")?;
    let route = String::from_utf8_lossy(&output.stdout);
    host.ip(&[&format!("route change {} initcwnd {window}", route.trim())])
}

/// Where a run's files lie while it lasts, and whether they go with it.
fn folder(keep: Option<&Path>) -> Result<(PathBuf, Option<TempDir>)> {
    if let Some(folder) = keep {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let folder = std::fs::canonicalize(folder).with_context(|| format!("cannot find {}", folder.display()))?;
        return Ok((folder, None));
    }
    let scratch = tempfile::Builder::new().prefix("spand-benefit-").tempdir().context("cannot make a folder")?;
    Ok((scratch.path().to_owned(), Some(scratch)))
}
