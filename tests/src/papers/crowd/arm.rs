//! One of what is compared: its host, its path and, with the product, its gateway and its agent.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ipnet::{IpNet, Ipv4Net};
use spand_proto::estimate::RuleKind;
use spand_proto::start::Shape;
use tempfile::TempDir;

use super::connections::Start;
use super::{Carried, Connection, Crowd, FIRST, Tally};
use crate::accuracy::result::Health;
use crate::lab::host::Mirrored;
use crate::lab::namespace::Cgroup;
use crate::lab::topology::{ClientNetwork, NetworkPlan, SERVER_V4, Topology};
use crate::lab::traffic::{Client, Conduct, Plan, Server, Step};
use crate::papers::row::Programs;
use crate::product::{AgentSetup, ApplyMethod, GatewaySetup, Mode, Product, interrupt};

/// Payload of a segment, with timestamps.
pub(super) const MSS: u64 = 1_448;
/// Bytes that a host's connection holds unsent at most: what is left when its life ends still goes out.
const UNSENT_MAX: &str = "32768";
/// More than this part of the connections that start unlike their host, and a run says nothing.
const UNLIKE_MAX: f64 = 0.02;
/// The longest that the kernel is waited for to remember a route's threshold.
const REMEMBERED_MAX: Duration = Duration::from_secs(10);
/// The longest that a server is asked to send at a time.
const STREAM_MAX: Duration = Duration::from_secs(500);

/// How a host's connections start by themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Initial window in segments.
    pub window: u32,
    /// Slow-start threshold in segments, where the route gives one.
    pub threshold: Option<u32>,
}

impl Host {
    /// Whether a start is the host's own.
    pub(super) fn is_own(self, start: &Start) -> bool {
        start.window == self.window && start.threshold == self.threshold
    }
}

/// The product's part.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    /// Rule of the gateway.
    pub rule: RuleKind,
    /// Shape of the agent's starts.
    pub shape: Shape,
    /// Its mode.
    pub mode: Mode,
}

/// One of what is compared. Its senders are Reno's.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Its name in figures.
    pub name: &'static str,
    /// Its host.
    pub host: Host,
    /// The product, where it has it.
    pub advice: Option<Advice>,
}

impl Arm {
    /// Without the product, connections must have started as their host says.
    pub(super) fn check(&self, starts: &[Start]) -> Result<()> {
        ensure!(!starts.is_empty(), "{}: no start was observed", self.name);
        let others: Vec<&Start> =
            starts.iter().filter(|start| self.advice.is_none() && !self.host.is_own(start)).collect();
        let share = others.len() as f64 / starts.len() as f64;
        ensure!(
            share <= UNLIKE_MAX,
            "{}: {} of {} connections did not start as {:?}, one with {:?}",
            self.name,
            others.len(),
            starts.len(),
            self.host,
            others.first()
        );
        Ok(())
    }
}

/// The prefix of an arm: of the addresses for benchmarks (RFC 2544).
fn prefix(number: u8) -> Result<IpNet> {
    Ok(Ipv4Net::new([198, 18, number, 0].into(), 24)?.into())
}

/// Whose client has this address.
pub(super) fn number_of(client: IpAddr) -> Option<u8> {
    match client {
        IpAddr::V4(address) if address.octets().starts_with(&[198, 18]) => Some(address.octets()[2]),
        _ => None,
    }
}

/// An arm that stands. Its programs end with the thread that built it.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) arm: Arm,
    pub(super) number: u8,
    product: Option<Product>,
    other: SocketAddr,
    server: SocketAddr,
    lab: Topology,
    _servers: [Server; 2],
    _cgroup: Option<Cgroup>,
    _folder: TempDir,
}

impl Stand {
    pub(super) fn build(arm: &Arm, number: u8, crowd: &Crowd, programs: &Programs) -> Result<Self> {
        let prefix = prefix(number)?;
        let lab = Topology::build(&[NetworkPlan { prefix, clients: crowd.clients, path: crowd.path }])?;
        lab.server.default_congestion_control("reno")?;
        let window = arm.host.window;
        lab.server.ip(&[&format!("route change default via 192.0.2.1 initcwnd {window}")])?;
        let cgroup = arm.advice.map(|_| Cgroup::make(&format!("spand-crowd-{number}"))).transpose()?;
        let listen = || {
            lab.server.sysctl("ipv4/tcp_notsent_lowat", UNSENT_MAX)?;
            Server::start_with(&lab.server, lab.port, &Conduct::default())
        };
        let server = match &cgroup {
            Some(cgroup) => cgroup.enter(listen)?,
            None => listen()?,
        };
        let other = lab.add_host(0, "others", Mirrored::No)?;
        other.namespace.default_congestion_control("reno")?;
        let others = Server::start_with(&other.namespace, lab.port, &Conduct::default())?;
        let folder = tempfile::Builder::new().prefix("spand-crowd-").tempdir().context("cannot make a folder")?;
        let product =
            arm.advice.map(|advice| product(&lab, advice, arm.host, number, cgroup.as_ref(), programs, &folder));
        let stand = Self {
            arm: *arm,
            number,
            product: product.transpose()?,
            other: SocketAddr::new(other.address, lab.port),
            server: SocketAddr::new(SERVER_V4.into(), lab.port),
            lab,
            _servers: [server, others],
            _cgroup: cgroup,
            _folder: folder,
        };
        stand.arm.host.threshold.map_or(Ok(()), |threshold| stand.fix_threshold(threshold))?;
        Ok(stand)
    }

    pub(super) fn port(&self) -> u16 {
        self.lab.port
    }

    fn clients(&self) -> Result<&ClientNetwork> {
        self.lab.networks.first().context("an arm has a network of clients")
    }

    /// Gives the host's connections a slow-start threshold. The kernel takes a route's only from what it remembers of a destination, and
    /// remembers one only after a connection to it.
    fn fix_threshold(&self, segments: u32) -> Result<()> {
        let window = self.arm.host.window;
        self.lab
            .server
            .ip(&[&format!("route change default via 192.0.2.1 initcwnd {window} ssthresh lock {segments}")])?;
        self.lab.server.sysctl("ipv4/tcp_no_ssthresh_metrics_save", "0")?;
        self.lab.server.sysctl("ipv4/tcp_no_metrics_save", "0")?;
        let clients = self.clients()?;
        for from in &clients.addresses {
            let plan = Plan::transfer(Plan::AS_THE_HOST, MSS);
            clients.namespace.enter(|| Client::connect(*from, self.server)?.ask(&plan))?;
        }
        let begin = Instant::now();
        // Remembered when the last acknowledgement of a connection has come.
        while self.remembered(segments)? < clients.addresses.len() {
            ensure!(begin.elapsed() < REMEMBERED_MAX, "the kernel remembers no threshold of its routes");
            thread::sleep(Duration::from_millis(100));
        }
        self.lab.server.sysctl("ipv4/tcp_no_metrics_save", "1")
    }

    /// For how many destinations the kernel remembers this threshold.
    fn remembered(&self, segments: u32) -> Result<usize> {
        let output = self.lab.server.command("ip").args(["tcp_metrics", "show"]).output().context("cannot run `ip`")?;
        let threshold = format!(" ssthresh {segments} ");
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains(&threshold)).count())
    }

    /// Begins `count` connections of other senders that stay until `end`.
    pub(super) fn others<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        count: u8,
        end: Instant,
    ) -> Result<()> {
        let network = self.clients()?;
        for client in 0..count {
            let from = self.client(client)?;
            let steps = streams(end.saturating_duration_since(Instant::now()));
            let work = move || {
                network.namespace.join_thread()?;
                Client::connect(from, self.other)?.ask_watched(&Plan::new(Plan::AS_THE_HOST, steps), |_, _| quiet())
            };
            thread::Builder::new()
                .name("other".to_owned())
                .spawn_scoped(scope, work)
                .context("cannot start a thread")?;
        }
        Ok(())
    }

    fn client(&self, number: u8) -> Result<IpAddr> {
        let addresses = &self.clients()?.addresses;
        addresses.get(usize::from(number) % addresses.len().max(1)).copied().context("a path without clients")
    }

    /// Begins a connection; what it gets through goes to `tally` when it is over.
    pub(super) fn connect<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        connection: Connection,
        tally: &'scope Mutex<Tally>,
    ) -> Result<()> {
        let work = move || {
            let carried = self.carry(connection);
            if let Ok(mut tally) = tally.lock() {
                match carried {
                    Ok(carried) => tally.carried.push(carried),
                    Err(_) => tally.broken += 1,
                }
            }
        };
        thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, work).context("cannot start a client")?;
        Ok(())
    }

    /// One connection's life. What has come to the client a time after its request is acknowledged at the sender as long after that began.
    fn carry(&self, connection: Connection) -> Result<Carried> {
        self.clients()?.namespace.join_thread()?;
        let mut client = Client::connect(self.client(connection.client)?, self.server)?;
        let plan = Plan::new(Plan::AS_THE_HOST, streams(connection.life));
        let mut carried = Carried::default();
        client.ask_watched(&plan, |since, bytes| {
            if since <= connection.life {
                carried.all = bytes;
            }
            if since <= connection.life.min(FIRST) {
                carried.first = bytes;
            }
            quiet()
        })?;
        Ok(carried)
    }

    /// Fails where its path was not as it is set to be.
    pub(super) fn check_path(&self) -> Result<()> {
        Health::check_paths(&self.lab.emulator).with_context(|| self.arm.name.to_owned())
    }

    /// Fails where a program of the product has ended meanwhile, and stops it.
    pub(super) fn stop(&mut self) -> Result<()> {
        let Some(mut product) = self.product.take() else { return Ok(()) };
        product.check()?;
        product.stop(&self.lab);
        Ok(())
    }
}

fn product(
    lab: &Topology,
    advice: Advice,
    host: Host,
    number: u8,
    cgroup: Option<&Cgroup>,
    programs: &Programs,
    folder: &TempDir,
) -> Result<Product> {
    let setup = GatewaySetup { rule: Some(advice.rule.name()), ..GatewaySetup::default() };
    let mut product = Product::start_gateway(lab, &programs.gateway, &setup, folder.path())?;
    let setup = AgentSetup {
        method: ApplyMethod::Bpf,
        mode: advice.mode,
        include: Vec::new(),
        cgroup: cgroup.map(|cgroup| cgroup.folder().to_owned()),
        control_fraction: 0.0,
        number,
        gateways: Vec::new(),
        more: format!(
            "[start]\nshape = \"{}\"\n\n[policy]\ninitial_window_segments = {}\n",
            advice.shape.name(),
            host.window
        ),
    };
    product.start_agent(lab, &programs.agent, &setup)?;
    product.wait_for_agent()?;
    Ok(product)
}

/// As many steps of streaming as this takes.
fn streams(time: Duration) -> Vec<Step> {
    let mut left = time;
    let mut steps = Vec::new();
    while left > STREAM_MAX {
        steps.push(Step::Stream(STREAM_MAX));
        left = left.saturating_sub(STREAM_MAX);
    }
    steps.push(Step::Stream(left));
    steps
}

fn quiet() -> Result<()> {
    ensure!(!interrupt::came(), "interrupted");
    Ok(())
}
