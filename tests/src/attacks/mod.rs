//! One peer that attacks a gateway's listeners, and what honest agents and a supervisor get meanwhile.
//!
//! Three processes: the gateway's listeners with a thread that announces starts as an engine does, the attacker, and the one
//! that measures. The attacker is nicer than the others: elsewhere it would have a processor of its own, and here it takes what gateway
//! and honest agents leave. So a rise is what the gateway does for it, and not a processor that it lacks.

mod attacker;
mod honest;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use spand_proto::v1::spand_client::SpandClient;

pub use attacker::{Counts, Look, Row};
use honest::Agent;

/// What the peer does, as fast as it can.
#[derive(Clone, Copy, Debug, EnumString, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Attack {
    /// Subscribes, and resets the stream when its first message has come.
    SubscribeReset,
    /// Reports of 1,024 connections each.
    Reports,
    /// HTTP connections with half a head.
    HalfHeads,
    /// Connections to the TLS listener on which nothing comes.
    SilentTls,
    /// `GET /metrics` 50 times on each connection, of which no answer is read.
    SlowReaders,
    /// Lists of all networks by share, one behind the other on each connection.
    Lists,
}

impl Attack {
    /// Its name in the table.
    pub const fn words(self) -> &'static str {
        match self {
            Self::SubscribeReset => "subscribes and resets",
            Self::Reports => "reports of 1,024 connections",
            Self::HalfHeads => "half-sent HTTP heads",
            Self::SilentTls => "silent connections to the TLS listener",
            Self::SlowReaders => "`GET /metrics` x 50, nothing read",
            Self::Lists => "`GET /v1/networks?sort=wc` without pause",
        }
    }
}

/// What a started process does.
const ROLE: &str = "SPAND_ATTACKS_ROLE";
/// Where the gateway is.
const TARGET: &str = "SPAND_ATTACKS_TARGET";
/// Networks with an estimate, which every agent receives.
pub const NETWORKS: u16 = 10_000;
/// Time between two starts that are announced to the host.
const START_EVERY: Duration = Duration::from_millis(2);
/// The host to which starts are announced, that of snapshots, and the attacker's.
const HOSTS: [&str; 3] = ["203.0.113.1", "203.0.113.2", "203.0.113.66"];
/// Files of their certificates.
const NAMES: [&str; 3] = ["host", "newcomer", "hostile"];
/// Where the attacker connects from.
const HOSTILE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
/// Where the supervisor asks from: not the address of anyone else.
const SUPERVISOR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));

/// Where a gateway listens, and what it takes to connect.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Target {
    grpc: SocketAddr,
    http: SocketAddr,
    /// Certificates and keys.
    folder: PathBuf,
    /// The packet clock less the machine's monotonic one, in nanoseconds.
    clock_ns: u64,
}

impl Target {
    /// A client that proves itself with a certificate of this name, from an address of the machine.
    async fn client(&self, name: &str, from: Option<IpAddr>) -> Result<SpandClient<Channel>> {
        let read = |file: String| std::fs::read(self.folder.join(file));
        let identity = Identity::from_pem(read(format!("{name}.pem"))?, read(format!("{name}.key"))?);
        let authority = Certificate::from_pem(read("ca.pem".to_owned())?);
        let tls = ClientTlsConfig::new().domain_name("localhost").ca_certificate(authority).identity(identity);
        let endpoint = Endpoint::from_shared(format!("https://{}", self.grpc))?.tls_config(tls)?;
        Ok(SpandClient::new(endpoint.local_address(from).connect().await?))
    }

    async fn connect(
        &self,
        to: SocketAddr,
        from: IpAddr,
        buffer: Option<u32>,
    ) -> std::io::Result<tokio::net::TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(SocketAddr::new(from, 0))?;
        socket.connect(to).await
    }
}

/// Does what this process was started for, where it was started by [`Stage`]. `None` where it is the test itself.
pub fn role() -> Option<Result<()>> {
    let role = std::env::var(ROLE).ok()?;
    Some(match role.parse::<Attack>() {
        Ok(attack) => target().and_then(|target| attacker::run(attack, &target)),
        Err(_) => honest::run(),
    })
}

fn target() -> Result<Target> {
    let text = std::env::var(TARGET).context("no target")?;
    Ok(serde_json::from_str(&text)?)
}

/// This program again, in another role.
fn again(role: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

/// A running process, killed when dropped.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone where it failed.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A gateway under attack, and honest ones beside it.
#[derive(Debug)]
pub struct Stage {
    gateway: Process,
    target: Target,
    agent: Agent,
    runtime: Runtime,
}

/// How long, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each attack, each after one without.
    pub turns: u32,
    /// How long each of them is.
    pub turn: Duration,
}

impl Stage {
    /// Starts a gateway, and an agent to which starts are pushed.
    pub fn start() -> Result<Self> {
        let mut gateway = Process(again("gateway")?.spawn()?);
        let output = gateway.0.stdout.take().context("its output")?;
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)?;
        let target: Target = serde_json::from_str(&line).context("the gateway did not start")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let agent = runtime.block_on(Agent::subscribe(&target))?;
        Ok(Self { gateway, target, agent, runtime })
    }

    /// Plays an attack.
    pub fn play(&mut self, attack: Attack, plan: Plan) -> Result<Row> {
        let mut row = Row::new(attack);
        for _ in 0..plan.turns {
            let quiet = self.runtime.block_on(honest::look(&self.target, &mut self.agent, plan.turn))?;
            row.undisturbed.add(quiet);
            let before = self.runtime.block_on(honest::counts(&self.target))?;
            let target = serde_json::to_string(&self.target)?;
            let attacker = Process(again(attack.into())?.env(TARGET, target).stdout(Stdio::inherit()).spawn()?);
            // It has begun when something of it has come.
            self.runtime.block_on(honest::until_more(&self.target, &before))?;
            let seen = self.runtime.block_on(honest::look(&self.target, &mut self.agent, plan.turn))?;
            row.disturbed.add(seen);
            drop(attacker);
            let after = self.runtime.block_on(honest::counts(&self.target))?;
            row.came.add(&before, &after);
            if let Some(status) = self.gateway.0.try_wait()? {
                bail!("the gateway ended: {status}");
            }
            // What is left of it goes before the next turn.
            self.runtime.block_on(honest::skip(&mut self.agent, Duration::from_millis(300)))?;
        }
        Ok(row)
    }
}
