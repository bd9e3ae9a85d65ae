//! The gateway under test: a process with a store in which every network has an estimate.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spand_core::config::WindowConfig;
use spand_core::flow::sample::{ConnectionId, Phase, SampleReason, WindowSample};
use spand_core::window::table::NetworkTable;
use spand_gateway::publisher::{MonotonicClock, PacketClock};
use spand_gateway::store::{EstimateStore, SledStore};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Window};
use spand_tests::lab::namespace::Namespace;
use tempfile::TempDir;

/// Where it answers gRPC; the namespace is its own.
pub(super) const GRPC: &str = "127.0.0.1:7400";
const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7480);

/// A running gateway; killed when dropped.
#[derive(Debug)]
pub(super) struct Gateway {
    process: Child,
    namespace: Namespace,
    _folder: TempDir,
}

impl Gateway {
    /// Starts `program` on an interface with a backend, with `networks` estimates in its store, and returns when it is ready.
    pub(super) fn start(
        namespace: &Namespace,
        program: &Path,
        (interface, backend): (&str, &str),
        networks: usize,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fill_store(&folder.path().join("store"), networks)?;
        let file = folder.path().join("gateway.toml");
        let text = format!(
            "[capture]\ninterfaces = [\"{interface}\"]\nbackend = \"{backend}\"\n[traffic]\ninternal = [\"10.99.0.0/16\"]\n\
             [store]\ndirectory = \"store\"\n[log]\nfilter = \"warn\"\n"
        );
        std::fs::write(&file, text)?;
        let process = namespace.command(program).arg("run").arg("--config").arg(&file).spawn();
        let process = process.with_context(|| format!("cannot start {}: build it first", program.display()))?;
        let gateway = Self { process, namespace: namespace.clone(), _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !gateway.get("/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            ensure!(Instant::now() < deadline, "the gateway is not ready after 30 s");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(gateway)
    }

    /// Stops it in order and gives its last metrics.
    pub(super) fn stop(mut self) -> Result<String> {
        let metrics = self.get("/metrics")?;
        kill(Pid::from_raw(i32::try_from(self.process.id())?), Signal::SIGTERM)?;
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the gateway ended with {status}");
        }
        Ok(metrics)
    }

    fn get(&self, path: &str) -> Result<String> {
        self.namespace.enter(|| {
            let mut connection = TcpStream::connect(HTTP)?;
            write!(connection, "GET {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer)?;
            Ok(answer)
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Already gone after `stop`.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Writes a store in which each network has three samples of three connections, taken just now.
fn fill_store(folder: &Path, networks: usize) -> Result<()> {
    let now = MonotonicClock::from_wall_clock().now();
    let limit = NonZeroUsize::new(networks).context("no networks")?;
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
    for number in 0..networks {
        let remote = IpAddr::V4(super::remote(number, networks));
        for connection in 0..3u64 {
            table.add(&WindowSample {
                at: now,
                network: Network::of(remote),
                remote,
                connection: ConnectionId(number as u64 * 3 + connection),
                window: Window::from_bytes(30_000.0).unwrap_or_default(),
                mss: Bytes(1_448),
                reason: SampleReason::Loss,
                sawtooth: None,
                phase: Phase::CongestionAvoidance,
                transfer: Bytes(1_000_000),
                advised: false,
                rtt_min: Some(Micros(20_000)),
            });
        }
    }
    let records = table.changed_records(networks);
    ensure!(records.len() == networks, "{} of {networks} networks were recorded", records.len());
    let mut store = SledStore::open(folder)?.store;
    store.save(&records)?;
    store.flush()?;
    Ok(())
}
