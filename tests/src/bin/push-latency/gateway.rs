//! The gateway under test: a process with a store in which every network has an estimate.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spand_tests::lab::namespace::Namespace;
use spand_tests::networks::fill_store;
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
        let remotes: Vec<_> = (0..networks).map(|number| IpAddr::V4(super::remote(number, networks))).collect();
        fill_store(&folder.path().join("store"), &remotes)?;
        let file = folder.path().join("gateway.toml");
        // Here all hosts come from one address, of which a gateway takes fewer.
        let text = format!(
            "[api]\nconnections_per_peer = 10000\nstreams_per_peer = 10000\n[capture]\ninterfaces = [\"{interface}\"]\nbackend = \"{backend}\"\n[traffic]\ninternal = [\"10.99.0.0/16\"]\n\
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
            write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
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
