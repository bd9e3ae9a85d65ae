//! A network with QUIC alone: the share that the gateway learns from reports of real connections is that of their path.
//!
//! What a path's share is, the wire shows beside it: each path exists twice, and over the second one the same transfers go by TCP CUBIC,
//! without advice. TCP never passes the first one. Gateway and agent are the product's, and the QUIC server is the example of
//! `docs/explain/applications.md`.
//!
//! A program of its own: started under the name of one of the product's programs it is that program. Needs root.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spand_proto::units::BytesPerSecond;
use spand_tests::lab::host::{Host, Mirrored};
use spand_tests::lab::namespace::Namespace;
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::topology::{ClientNetwork, NetworkPlan, Topology};
use spand_tests::lab::traffic::{Client, Conduct, Plan, Server};
use spand_tests::patience::PATIENCE;
use spand_tests::product::standing_in::{Case, link_programs, run_cases, stand_in};
use spand_tests::product::{Agent, AgentSetup, ApplyMethod, GatewaySetup, Mode, Product};

/// How many servers send to a network over QUIC, what its path holds without a queue, and its twin of TCP.
const CASES: [(u8, u64, &str, &str); 2] =
    [(1, 1_250_000, "198.51.100.0/24", "203.0.113.0/24"), (2, 2_500_000, "198.18.1.0/24", "198.18.2.0/24")];
/// In bytes.
const QUEUE: u64 = 62_500;
const PORT: u16 = 4_433;
/// Clients of a network; they take turns.
const CLIENTS: u8 = 3;
const TRANSFERS: u32 = 16;
/// From the smallest transfer to the largest, evenly by factor. quinn's slow start overshoots, and the loss after its reduction shows a window
/// that the path does not hold: smaller transfers end with that one.
const BYTES: (f64, f64) = (300e3, 10e6);
/// How far a share may be from the path's.
const OFF: f64 = 0.15;

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| {
        let cases: [Case; 1] = [("shares of two networks", learns)];
        run_cases("quic_alone", cases)
    })
}

/// A round trip of 50 ms; rate in bytes per second.
fn path(rate: u64) -> PathConfig {
    PathConfig::bottleneck(BytesPerSecond(rate), Duration::from_millis(25), Queue::Bytes(QUEUE))
}

/// The example's server on a host, with the agent that it asks.
struct Served {
    host: Host,
    child: Child,
    certificate: PathBuf,
    _agent: Agent,
}

impl Served {
    fn start(lab: &Topology, number: u8, programs: &Path) -> Result<Self> {
        let host = if number == 0 { lab.server_host() } else { second_host(lab)? };
        let folder = programs.join(format!("host{number}"));
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("applications.sock");
        let setup = AgentSetup {
            method: ApplyMethod::Route,
            mode: Mode::Careful,
            include: CASES.iter().map(|(_, _, quic, _)| quic.parse()).collect::<Result<_, _>>()?,
            cgroup: None,
            control_fraction: 0.0,
            number,
            gateways: Vec::new(),
            more: format!("[applications]\nsocket = \"{}\"\n", socket.display()),
        };
        let mut agent = Agent::start(&host.namespace, &programs.join("spand-agent"), &setup, &folder)?;
        wait("the agent's socket", || {
            agent.check()?;
            Ok(socket.exists().then_some(()))
        })?;
        let certificate = folder.join("certificate");
        let address = SocketAddr::new(host.address, PORT).to_string();
        let mut command = host.namespace.command(env!("CARGO_BIN_EXE_quic"));
        command.args(["serve", &address]).arg(&certificate).arg(&socket).stdout(Stdio::null());
        let child = command.spawn().context("cannot run the QUIC server")?;
        wait("the QUIC server", || Ok(certificate.exists().then_some(())))?;
        Ok(Self { host, child, certificate, _agent: agent })
    }

    fn fetch(&self, client: &Namespace, from: IpAddr, bytes: u64) -> Result<()> {
        let mut command = client.command(env!("CARGO_BIN_EXE_quic"));
        command.args(["fetch", &SocketAddr::new(self.host.address, PORT).to_string()]).arg(&self.certificate);
        let status = command.args([bytes.to_string(), from.to_string()]).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "the QUIC client: {status}");
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A second host, whose agent reaches the gateway by way of the first one.
fn second_host(lab: &Topology) -> Result<Host> {
    let host = lab.add_host(0, "second", Mirrored::No)?;
    lab.server.sysctl("ipv4/ip_forward", "1")?;
    lab.edge.ip(&["route add 10.255.0.1/32 via 192.0.2.2"])?;
    lab.gateway.ip(&["route add 198.19.255.0/24 via 10.255.0.2"])?;
    Ok(host)
}

fn wait<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The sizes of the transfers. Their order is the same in each run, and small ones alternate with large ones.
fn sizes() -> Vec<u64> {
    let part = |n: u32| f64::from(n * 7 % TRANSFERS) / f64::from(TRANSFERS - 1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of transfers")]
    let size = |n| (BYTES.0 * (BYTES.1 / BYTES.0).powf(part(n))) as u64;
    (0..TRANSFERS).map(size).collect()
}

/// All transfers to a network, one after the other; `transfer` has its number, its client and its size.
fn transfers(network: &ClientNetwork, transfer: impl Fn(usize, IpAddr, u64) -> Result<()>) -> Result<()> {
    for (n, (bytes, from)) in sizes().into_iter().zip(network.addresses.iter().cycle()).enumerate() {
        transfer(n, *from, bytes)?;
        // Until its end has come to the server.
        thread::sleep(network.plan.path.base_rtt() * 2);
    }
    Ok(())
}

fn network(product: &Product, prefix: &str) -> Result<Value> {
    product.api().json(&format!("/v1/networks/{prefix}"))
}

/// Sum of the values of a metric.
fn metric(product: &Product, name: &str) -> Result<f64> {
    let (_, text) = product.api().get("/metrics")?;
    let values = text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit_once(' '));
    Ok(values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum())
}

/// All transfers of both networks of a case, at the same time.
fn exchange(lab: &Topology, served: &[Served], quic: &ClientNetwork, tcp: &ClientNetwork) -> Result<()> {
    thread::scope(|scope| {
        let of_quic = scope.spawn(|| {
            transfers(quic, |n, from, bytes| {
                served.get(n % served.len()).context("a server")?.fetch(&quic.namespace, from, bytes)
            })
        });
        transfers(tcp, |_, from, bytes| {
            let server = lab.server_address(tcp.plan.prefix);
            tcp.namespace.enter(|| Client::connect(from, server)?.ask(&Plan::transfer(Plan::AS_THE_HOST, bytes)))?;
            Ok(())
        })?;
        of_quic.join().map_err(|_| anyhow::anyhow!("the QUIC clients panicked"))?
    })
}

fn learns() -> Result<()> {
    let folder = tempfile::tempdir()?;
    link_programs(folder.path())?;
    let plan =
        |prefix: &str, rate| anyhow::Ok(NetworkPlan { prefix: prefix.parse()?, clients: CLIENTS, path: path(rate) });
    let plans: Vec<NetworkPlan> =
        CASES.iter().flat_map(|(_, rate, quic, tcp)| [plan(quic, *rate), plan(tcp, *rate)]).collect::<Result<_>>()?;
    let lab = Topology::build(&plans)?;
    let gateway = folder.path().join("spand-gateway");
    let mut product = Product::start_gateway(&lab, &gateway, &GatewaySetup::default(), folder.path())?;
    let served: Vec<Served> = (0..2).map(|n| Served::start(&lab, n, folder.path())).collect::<Result<_>>()?;
    let conduct = Conduct { congestion_control: Some("cubic".to_owned()), ..Conduct::default() };
    let _server = Server::start_with(&lab.server, lab.port, &conduct)?;
    thread::scope(|scope| {
        let pairs = lab.networks.chunks_exact(2).zip(CASES);
        let exchanges: Vec<_> = pairs
            .filter_map(|(pair, (servers, ..))| match pair {
                [quic, tcp] => Some((quic, tcp, served.get(..usize::from(servers))?)),
                _ => None,
            })
            .map(|(quic, tcp, served)| scope.spawn(|| exchange(&lab, served, quic, tcp)))
            .collect();
        exchanges.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a case panicked"))?)
    })?;
    wait("every connection's report", || {
        product.check()?;
        let names = ["spand_engine_reported_samples_total", "spand_engine_reports_refused_total"];
        let reports = names.iter().map(|name| metric(&product, name)).sum::<Result<f64>>()?;
        Ok((reports >= f64::from(TRANSFERS) * CASES.len() as f64).then_some(()))
    })?;
    for (servers, rate, quic, tcp) in CASES {
        judge(servers, rate, &network(&product, quic)?, &network(&product, tcp)?)?;
    }
    Ok(())
}

/// Holds the share that reports gave against the one of the wire.
fn judge(servers: u8, rate: u64, quic: &Value, tcp: &Value) -> Result<()> {
    let share = |network: &Value| network.get("wc_bytes").and_then(Value::as_f64).context("no share");
    let [by_reports, by_wire] = [share(quic)?, share(tcp)?];
    let bdp = path(rate).bdp_bytes().context("a bottleneck")?;
    let off = by_reports / by_wire - 1.0;
    println!(
        "{servers} servers, an empty path of {bdp:.0} bytes: {by_reports:.0} by {} samples that they reported, {by_wire:.0} by {} on the \
         wire: {off:+.3}",
        quic["reported_samples"], tcp["samples"]
    );
    ensure!(quic["by_reports"] == true && tcp["by_reports"] == false, "estimates of another source: {quic} {tcp}");
    ensure!(quic["samples"] == 0 && quic["reported_hosts"] == servers, "another source than the servers: {quic}");
    ensure!(off.abs() <= OFF, "the share is off by {off:+.3}: {quic}, {tcp}");
    Ok(())
}
