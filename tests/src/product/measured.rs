//! The gateway as a user has it, its own process, and what its metrics and the kernel say of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Api;
use crate::lab::namespace::Namespace;
use crate::networks::fill_store;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};
use tempfile::TempDir;

use crate::memory::resident_bytes;
use crate::patience::PATIENCE;

const HTTP_PORT: u16 = 7480;

/// A running gateway; killed when dropped.
#[derive(Debug)]
pub struct MeasuredGateway {
    process: Child,
    api: Api,
    _folder: TempDir,
}

impl MeasuredGateway {
    /// Starts `program` on `interface`, with estimates for the networks of `known`, and returns when it is ready. Its threads run where the calling one may.
    pub fn start(
        namespace: &Namespace,
        program: &Path,
        interface: &str,
        capture: &str,
        known: &[IpAddr],
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("gateway.toml");
        let enabled = !known.is_empty();
        if enabled {
            fill_store(&folder.path().join("store"), known)?;
        }
        let text = format!(
            "[capture]\ninterfaces = [\"{interface}\"]\n{capture}\n[traffic]\ninternal = [\"10.0.0.0/8\"]\n\
             [api]\ngrpc_listen = \"127.0.0.1:7400\"\n[store]\nenabled = {enabled}\ndirectory = \"store\"\n[log]\nfilter = \"warn\"\n"
        );
        std::fs::write(&file, text)?;
        let mut command = namespace.command(program);
        command.arg("run").arg("--config").arg(&file).stdin(Stdio::null());
        let process = command.spawn().with_context(|| format!("cannot run {}: build it first", program.display()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP_PORT));
        let gateway = Self { process, api: Api { namespace: namespace.clone(), address }, _folder: folder };
        let deadline = Instant::now() + PATIENCE;
        while !gateway.api.get("/readyz").is_ok_and(|(status, _)| status == 200) {
            ensure!(Instant::now() < deadline, "the gateway is not ready after {PATIENCE:?}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(gateway)
    }

    /// Its counters of capture and engine by name, labels included, once they stand still.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = self.scrape()?;
        loop {
            thread::sleep(Duration::from_millis(1_500));
            let now = self.scrape()?;
            if now == last {
                return Ok(now);
            }
            ensure!(Instant::now() < deadline, "the gateway's counters still move after {PATIENCE:?}");
            last = now;
        }
    }

    /// The same as they are now.
    pub fn scrape(&self) -> Result<BTreeMap<String, u64>> {
        let (_, text) = self.api.get("/metrics")?;
        let lines = text.lines().filter(|line| line.starts_with("spand_capture_") || line.starts_with("spand_engine_"));
        Ok(lines
            .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok().map(|n| (line.to_owned(), n)))
            .map(named)
            .collect())
    }

    /// Processor time of all its threads so far.
    pub fn processor(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // Behind the name, which may hold blanks: user and system time are the 14th and 15th field (proc(5)).
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let per_second = sysconf(SysconfVar::CLK_TCK)?.context("the kernel's ticks have no length")?;
        Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
    }

    /// What it holds in memory.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(&self.process.id().to_string())
    }

    /// Stops it in order.
    pub fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.process.id())?), Signal::SIGTERM)?;
        let status = self.process.wait()?;
        ensure!(status.success(), "the gateway ended with {status}");
        Ok(())
    }
}

fn named((line, count): (String, u64)) -> (String, u64) {
    (line.rsplit_once(' ').map_or(line.as_str(), |(name, _)| name).to_owned(), count)
}

impl Drop for MeasuredGateway {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            drop(self.process.kill());
            drop(self.process.wait());
        }
    }
}
