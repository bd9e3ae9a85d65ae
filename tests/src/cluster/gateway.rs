//! One gateway of several in a namespace: a process with a tap of its own.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::lab::link::{End, veth};
use crate::lab::namespace::Namespace;
use crate::memory::threads_time;
use crate::patience::PATIENCE;

/// Prefix of the hosts inside.
pub const INSIDE: &str = "10.0.0.0/8";

/// What a gateway is started with.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Its number among those that share; ports and devices follow from it.
    pub number: u16,
    /// The program.
    pub program: &'a Path,
    /// What comes before `--config`.
    pub arguments: Vec<String>,
    /// Where it shares; none: not at all.
    pub servers: Vec<String>,
    /// Lines of its `[share]` section besides.
    pub share: String,
    /// What reads its tap: `capture.backend`.
    pub backend: &'a str,
    /// Sections besides.
    pub more: String,
}

/// A running gateway; killed when dropped.
#[derive(Debug)]
pub struct Gateway {
    number: u16,
    process: Child,
    namespace: Namespace,
    program: PathBuf,
    arguments: Vec<String>,
    folder: TempDir,
}

/// What gateways that share know alike of a network. Connections and round trips of buckets without a sample leave a gateway only where
/// there is an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The share in bytes; none where there is no estimate.
    pub share: Option<f64>,
    /// Window samples behind it.
    pub samples: u64,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share {
            Some(share) => write!(f, "{share:.1} bytes of {} samples", self.samples),
            None => write!(f, "no estimate of {} samples", self.samples),
        }
    }
}

/// Values of metrics, by their line up to the value.
#[derive(Clone, Debug, Default)]
pub struct Metrics(BTreeMap<String, f64>);

impl Setup<'_> {
    fn toml(&self) -> String {
        let Self { number, servers, share, backend, more, .. } = self;
        let (tap, grpc, http) = (tap(*number), grpc(*number), http(*number));
        // All hosts come from one address, of which a gateway takes fewer by default.
        let mut text = format!(
            "[api]\ngrpc_listen = \"{grpc}\"\nhttp_listen = \"{http}\"\nconnections_per_peer = 10000\n\
             [capture]\ninterfaces = [\"{tap}\"]\nbackend = \"{backend}\"\n[traffic]\ninternal = [\"{INSIDE}\"]\n[store]\ndirectory = \"store\"\n"
        );
        if !servers.is_empty() {
            let servers: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
            _ = write!(
                text,
                "[share]\nservers = [{}]\ngateway = {number}\nsecret = \"share.secret\"\n{share}",
                servers.join(", ")
            );
        }
        text + more
    }
}

/// The mirror port of a gateway: frames sent here are what its tap sees.
pub fn port(number: u16) -> String {
    format!("span{number}")
}

fn tap(number: u16) -> String {
    format!("tap{number}")
}

/// Where a gateway answers agents, in its namespace.
pub fn grpc(number: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7_400 + number)
}

fn http(number: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8_400 + number)
}

impl Gateway {
    /// Starts one with a mirror port of its own, and returns when it is ready. `prepare` gets its folder before.
    ///
    /// # Errors
    /// Where the port cannot be made, or it does not become ready.
    pub fn start(namespace: &Namespace, setup: &Setup<'_>, prepare: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let Setup { number, program, arguments, .. } = setup;
        let (port, tap) = (port(*number), tap(*number));
        let end = |device, station| End { namespace, device, station };
        let station = u8::try_from(2 * number).context("a number below 128")?;
        veth(end(&port, station), end(&tap, station + 1))?;
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("gateway.toml"), setup.toml())?;
        fs::write(folder.path().join("share.secret"), "00112233445566778899aabbccddeeff\n")?;
        prepare(folder.path())?;
        let process = run(namespace, program, arguments, folder.path())?;
        let mut gateway = Self {
            number: *number,
            process,
            namespace: namespace.clone(),
            program: (*program).to_owned(),
            arguments: arguments.clone(),
            folder,
        };
        gateway.wait_ready()?;
        Ok(gateway)
    }

    /// Starts it again, after [`Self::kill`] or [`Self::stop`], with what it saved.
    ///
    /// # Errors
    /// Where it does not become ready.
    pub fn start_again(&mut self) -> Result<()> {
        self.process = run(&self.namespace, &self.program, &self.arguments, self.folder.path())?;
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<()> {
        let latest = Instant::now() + PATIENCE;
        while !self.get("/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            if let Some(status) = self.process.try_wait()? {
                bail!("gateway {} ended early ({status}): {}", self.number, self.log());
            }
            ensure!(Instant::now() < latest, "gateway {} is not ready after {PATIENCE:?}", self.number);
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Its number.
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Its configuration, and where it is.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn config(&self) -> Result<(String, PathBuf)> {
        let path = self.folder.path().join("gateway.toml");
        Ok((fs::read_to_string(&path)?, path))
    }

    /// Its standard input, once.
    pub const fn stdin(&mut self) -> Option<ChildStdin> {
        self.process.stdin.take()
    }

    /// Its metrics now.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn metrics(&self) -> Result<Metrics> {
        let answer = self.get("/metrics")?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{}", answer.lines().next().unwrap_or_default());
        let lines = answer.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        Ok(Metrics(lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()))
    }

    /// A JSON document of it.
    ///
    /// # Errors
    /// Where it does not answer with one.
    pub fn json(&self, path: &str) -> Result<Value> {
        let answer = self.get(path)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {}", head.lines().next().unwrap_or_default());
        serde_json::from_str(body).with_context(|| format!("{path} is not JSON"))
    }

    /// What it knows of every network.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn known(&self) -> Result<BTreeMap<String, Known>> {
        let (mut all, mut offset) = (BTreeMap::new(), Some(0));
        while let Some(from) = offset {
            let page = self.json(&format!("/v1/networks?limit=1000&offset={from}"))?;
            for network in page["networks"].as_array().context("no networks in the answer")? {
                let samples = network["samples"].as_u64().unwrap_or_default();
                let known = Known { share: network["wc_bytes"].as_f64(), samples };
                all.insert(network["prefix"].as_str().context("a network without a prefix")?.to_owned(), known);
            }
            offset = page["next_offset"].as_u64();
        }
        Ok(all)
    }

    /// Processor time of its threads by name; those of one name together.
    ///
    /// # Errors
    /// Where `/proc` does not say.
    pub fn processor_time(&self) -> Result<BTreeMap<String, Duration>> {
        threads_time(&self.pid().to_string())
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// Where it does not end by itself, or not well.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        let latest = Instant::now() + PATIENCE;
        let status: ExitStatus = loop {
            if let Some(status) = self.process.try_wait()? {
                break status;
            }
            ensure!(Instant::now() < latest, "gateway {} does not stop", self.number);
            std::thread::sleep(Duration::from_millis(10));
        };
        ensure!(status.success(), "gateway {} ended with {status}: {}", self.number, self.log());
        Ok(())
    }

    /// Ends it at once.
    ///
    /// # Errors
    /// Where it runs no more.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Has it stand still, with its connections open.
    ///
    /// # Errors
    /// Where it runs no more.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it run again.
    ///
    /// # Errors
    /// Where it runs no more.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid())?), signal)?)
    }

    fn get(&self, path: &str) -> Result<String> {
        self.namespace.enter(|| {
            let mut connection = TcpStream::connect(http(self.number))?;
            connection.set_read_timeout(Some(PATIENCE))?;
            write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer)?;
            Ok(answer)
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Already gone after `stop` and `kill`.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn run(namespace: &Namespace, program: &Path, arguments: &[String], folder: &Path) -> Result<Child> {
    let log = File::options().create(true).append(true).open(folder.join("log"))?;
    namespace
        .command(program)
        .args(arguments)
        .arg("--config")
        .arg(folder.join("gateway.toml"))
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}: build it first", program.display()))
}

impl Metrics {
    /// The value of a metric, `name` with its labels as they are written; 0 where there is none.
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// All of them.
    pub fn lines(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(line, value)| (line.as_str(), *value))
    }

    /// The sum over all labels of a metric.
    pub fn sum(&self, name: &str) -> f64 {
        let is_it = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
        self.0.iter().filter(|(line, _)| is_it(line)).map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels_and_over_no_other() {
        let values = [("cells{topic=\"open\"}", 2.0), ("cells{topic=\"closed\"}", 3.0), ("cells_lost", 7.0)];
        let metrics = Metrics(values.map(|(name, value)| (name.to_owned(), value)).into());
        assert!((metrics.sum("cells") - 5.0).abs() < f64::EPSILON);
        assert!((metrics.get("cells_lost") - 7.0).abs() < f64::EPSILON);
        assert!(metrics.get("cells").abs() < f64::EPSILON);
    }
}
