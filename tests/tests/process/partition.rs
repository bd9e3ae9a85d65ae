//! Silence between agent and gateway that closes no connection: the network swallows what they send, or one of them does not run.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spand_agent::control::{Reply, Request, Status, ask};
use spand_core::event::Event;
use spand_gateway::api::Api;
use spand_gateway::config::Config;
use spand_gateway::publisher::{Batch, MonotonicClock, PacketClock, Published};
use spand_proto::made_up;
use spand_proto::units::Window;
use spand_tests::lab::link::{End, veth};
use spand_tests::lab::namespace::Namespace;
use spand_tests::patience::PATIENCE;
use spand_tests::product::Daemon;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Case;
use super::stage::{Folder, wait};

pub(super) const CASES: &[Case] = &[
    ("the network swallows everything between agent and gateway", swallowed),
    ("a gateway does not run for longer than its advice lives", gateway_stands_still),
    ("an agent does not run for longer than its advice lives", agent_stands_still),
];

const GATEWAY: &str = "198.51.100.1";
const LISTEN: &str = "198.51.100.1:7400";
const HOST: &str = "198.51.100.2";
/// Where advice is about.
pub(super) const NETWORK: &str = "203.0.113.0/24";
/// Hardware addresses of both ends, and one that neither has.
const STATIONS: [u8; 3] = [1, 2, 0x99];

/// A host with a gateway as its only way out.
struct Site {
    gateway: Namespace,
    host: Namespace,
    folder: Folder,
}

impl Site {
    fn build() -> Result<Self> {
        let (gateway, host) = (Namespace::create("gateway")?, Namespace::create("host")?);
        let end = |namespace, device, station| End { namespace, device, station };
        veth(end(&gateway, "inner", STATIONS[0]), end(&host, "outer", STATIONS[1]))?;
        gateway.ip(&[&format!("addr add {GATEWAY}/24 dev inner")])?;
        host.ip(&[&format!("addr add {HOST}/24 dev outer"), &format!("route add default via {GATEWAY} dev outer")])?;
        let site = Self { gateway, host, folder: Folder::new()? };
        site.join(true)?;
        Ok(site)
    }

    /// Has each end send to the other, or to nobody.
    fn join(&self, joined: bool) -> Result<()> {
        let neighbour = |address: &str, device: &str, station: u8| {
            let station = if joined { station } else { STATIONS[2] };
            format!("neigh replace {address} lladdr 02:00:00:00:00:{station:02x} dev {device} nud permanent")
        };
        self.gateway.ip(&[&neighbour(HOST, "inner", STATIONS[1])])?;
        self.host.ip(&[&neighbour(GATEWAY, "outer", STATIONS[0])])
    }

    /// In the mode without budgets: no start is announced here that a host could be given one for.
    fn agent(&self) -> Result<Daemon> {
        let config = format!(
            "mode = \"paper\"\napply = \"route\"\nstate_dir = \"state\"\n\n[gateway]\nurl = \"http://{GATEWAY}:7400\"\nplain_text = \
             true\nidle_timeout_s = 3\ntimeout_ms = 500\nretry_max_ms = 500\n\n[policy]\nlifetime_s = 4\n\n[destinations]\ninclude = [\"{NETWORK}\"]\n\n\
             [holdout]\nfraction = 0.0\n"
        );
        self.folder.start("spand-agent", &config, &self.host)
    }

    fn status(&self) -> Option<Status> {
        match ask(&self.folder.path("state/control.sock"), &Request::Status) {
            Ok(Reply::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// The host's own route to the network, as the kernel has it.
    fn route(&self) -> Result<String> {
        let output = self.host.command("ip").args(["route", "show", NETWORK]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A gateway's listener for agents that runs.
pub(super) struct Served {
    pub(super) published: Published,
    runtime: Handle,
}

/// Starts a gateway's listener for agents, which has an estimate of one network. Advice lives for four seconds and is renewed every second.
pub(super) fn serve(namespace: &Namespace, listen: &'static str, stop: watch::Receiver<bool>) -> Result<Served> {
    let (ready, started) = mpsc::channel();
    // It ends with the test: the runtime's thread is not waited for.
    drop(namespace.spawn("gateway", move || {
        let text = "[publish]\nlifetime_s = 4\nrenewal_s = 1\n";
        let config = Config::parse(text, Path::new("gateway.toml"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let clock = MonotonicClock::from_wall_clock();
            let published = Published::new(config.publisher(), clock);
            tokio::spawn(published.clone().run());
            let network = NETWORK.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
            let share = Window::from_bytes(28_960.0).context("a window")?;
            let estimate = Event::estimate(made_up::estimate(network, share, clock.now()));
            published.apply(Batch { events: vec![estimate], ..Batch::new() });
            let listener = TcpListener::bind(listen).await?;
            let api = Api::new(config.api(), published.clone(), None);
            ready.send(Served { published, runtime: Handle::current() }).ok().context("nobody waits")?;
            api.serve_grpc(listener, stop).await;
            Ok(())
        })
    })?);
    started.recv_timeout(PATIENCE).context("the gateway does not start")
}

/// Waits until the agent has a subscription, or none, and this many networks in force.
fn wait_in_force(agent: &mut Daemon, site: &Site, what: &str, connected: bool, count: usize) -> Result<()> {
    wait(agent, what, || {
        let there = site.status().filter(|s| s.gateway.connected == connected && s.in_force.len() == count);
        Ok(there.map(|_| ()))
    })
}

/// The gateway's kernel acknowledges what comes meanwhile.
fn gateway_stands_still() -> Result<()> {
    let site = Site::build()?;
    let (_stop, stopped) = watch::channel(false);
    let served = serve(&site.gateway, LISTEN, stopped)?;
    let mut agent = site.agent()?;
    wait_in_force(&mut agent, &site, "advice is in force", true, 1)?;
    let (runs, still) = mpsc::channel::<()>();
    served.runtime.spawn(async move { still.recv() });
    wait_in_force(&mut agent, &site, "it is back to plain TCP", false, 0)?;
    ensure!(site.route()?.is_empty(), "left in force: {}", site.route()?);
    drop(runs);
    wait_in_force(&mut agent, &site, "advice is in force again", true, 1)?;
    ensure!(served.published.subscriber_count() == 1, "{} subscriptions", served.published.subscriber_count());
    Ok(())
}

/// Its guard removes the routes, which no kernel removes by itself.
fn agent_stands_still() -> Result<()> {
    let site = Site::build()?;
    let (_stop, stopped) = watch::channel(false);
    let served = serve(&site.gateway, LISTEN, stopped)?;
    let mut agent = site.agent()?;
    wait_in_force(&mut agent, &site, "advice is in force", true, 1)?;
    let pid = Pid::from_raw(agent.pid().try_into()?);
    kill(pid, Signal::SIGSTOP)?;
    wait(&mut agent, "the route is gone", || Ok(site.route()?.is_empty().then_some(())))?;
    wait(&mut agent, "the gateway forgot the agent", || Ok((served.published.subscriber_count() == 0).then_some(())))?;
    kill(pid, Signal::SIGCONT)?;
    wait(&mut agent, "the route is there again", || Ok(site.route()?.contains("initcwnd").then_some(())))?;
    wait_in_force(&mut agent, &site, "advice is in force again", true, 1)?;
    ensure!(served.published.subscriber_count() == 1, "{} subscriptions", served.published.subscriber_count());
    let end = agent.stop();
    ensure!(end.contains("exit status: 0") && site.route()?.is_empty(), "{end}");
    Ok(())
}

fn swallowed() -> Result<()> {
    let site = Site::build()?;
    let (_stop, stopped) = watch::channel(false);
    let published = serve(&site.gateway, LISTEN, stopped)?.published;
    let mut agent = site.agent()?;
    wait_in_force(&mut agent, &site, "advice is in force", true, 1)?;
    ensure!(site.route()?.contains("initcwnd"), "the kernel has no such route: {}", site.route()?);

    site.join(false)?;
    wait_in_force(&mut agent, &site, "it noticed and is back to plain TCP", false, 0)?;
    ensure!(site.route()?.is_empty(), "left in force: {}", site.route()?);
    let why = site.status().and_then(|status| status.gateway.last_error).unwrap_or_default();
    ensure!(!why.is_empty() && agent.log().contains("lost the gateway; "), "it does not say why:\n{}", agent.log());
    println!("process: what the agent says of it: {why}");
    // The gateway forgets a subscriber that answers no ping.
    wait(&mut agent, "the gateway forgot the agent", || Ok((published.subscriber_count() == 0).then_some(())))?;

    site.join(true)?;
    wait_in_force(&mut agent, &site, "advice is in force again", true, 1)?;
    ensure!(published.subscriber_count() == 1, "{} subscriptions of one agent", published.subscriber_count());
    thread::sleep(Duration::from_secs(1));
    let end = agent.stop();
    ensure!(end.contains("exit status: 0") && site.route()?.is_empty(), "{end}");
    Ok(())
}
