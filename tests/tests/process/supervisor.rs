//! What a service manager is sent, by programs that are confined.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spand_tests::lab::namespace::Namespace;
use spand_tests::patience::PATIENCE;
use spand_tests::product::Daemon;

use super::Case;
use super::stage::Folder;

pub(super) const CASES: &[Case] = &[
    ("a service manager hears of a gateway's start, life and stop", gateway),
    ("a service manager hears of an agent's start, life and stop", agent),
];

fn gateway() -> Result<()> {
    let config = "[capture]\ninterfaces = [\"lo\"]\n\n[traffic]\ninternal = [\"198.51.100.0/24\"]\n\n\
                  [api]\ngrpc_socket = \"gateway.sock\"\n\n[store]\ndirectory = \"state/store\"\n";
    let mut manager = Manager::of("spand-gateway", config)?;
    manager.wait_for("STATUS=ready")?;
    // A program that is stopped gives no sign: what came before it stopped may be there still.
    manager.signal(Signal::SIGSTOP)?;
    manager.socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    while manager.next().is_ok() {}
    manager.signal(Signal::SIGCONT)?;
    manager.live_and_stop()
}

fn agent() -> Result<()> {
    let config = "state_dir = \"state/agent\"\n\n[gateway]\nurl = \"http://127.0.0.1:7400\"\n";
    Manager::of("spand-agent", config)?.live_and_stop()
}

struct Manager {
    socket: UnixDatagram,
    daemon: Daemon,
    _folder: Folder,
    _namespace: Namespace,
}

impl Manager {
    /// Starts a program as a service that is watched, and waits until it is ready.
    fn of(name: &'static str, config: &str) -> Result<Self> {
        let namespace = Namespace::create("manager")?;
        namespace.ip(&["addr add 198.51.100.1/32 dev lo", "link set lo up"])?;
        let folder = Folder::new()?;
        let socket = UnixDatagram::bind(folder.path("notify"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let file = folder.write(&format!("{name}.toml"), config)?;
        let notify = format!("NOTIFY_SOCKET={}", folder.path("notify").display());
        let [program, file] = [folder.path(name), file].map(|path| path.display().to_string());
        let arguments = [&notify, "WATCHDOG_USEC=600000", &program, "run", "--config", &file];
        let daemon = Daemon::start(name, "env".as_ref(), &arguments, &namespace, &folder.path(""))?;
        let mut manager = Self { socket, daemon, _folder: folder, _namespace: namespace };
        ensure!(manager.next()? == "READY=1", "readiness comes first");
        Ok(manager)
    }

    fn next(&mut self) -> Result<String> {
        let mut message = [0; 1_024];
        let length = self.socket.recv(&mut message)?;
        Ok(String::from_utf8_lossy(&message[..length]).trim_end().to_owned())
    }

    fn wait_for(&mut self, wanted: &str) -> Result<()> {
        loop {
            let message = self.next().with_context(|| format!("no {wanted}: {}", self.daemon.log_end()))?;
            if message == wanted {
                return Ok(());
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.daemon.pid().try_into()?), signal)?)
    }

    fn live_and_stop(mut self) -> Result<()> {
        self.socket.set_read_timeout(Some(PATIENCE))?;
        for _ in 0..3 {
            self.wait_for("WATCHDOG=1")?;
        }
        self.signal(Signal::SIGTERM)?;
        self.wait_for("STOPPING=1")
    }
}
