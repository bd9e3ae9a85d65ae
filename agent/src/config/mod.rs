//! The configuration of an agent: one TOML file, every option typed, every fault one readable line.
//!
//! Keys carry their unit (`_s`, `_ms`, `_segments`); a key or section that is not known is refused, so a typing error
//! never becomes a silent default. Paths are relative to the file. `docs/reference/agent.example.toml` holds every option with its
//! default and why it is that.
//!
//! Does not: reach the gateway, the kernel or the state directory. `run` finds faults of the environment.

mod check;
mod gateways;
mod place;
mod reload;
mod sections;
mod start;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spand_confine::Process;
use spand_proto::operator::{self, ConfigError, Log, Renamed};
use spand_proto::start::Mode;

pub(crate) use gateways::socket_of;
pub(crate) use place::Place;
pub(crate) use reload::Reloaded;
pub use sections::{
    Applications, ApplyMethod, Bbr, Bpf, Destinations, Fallback, Gateway, Holdout, Limits, Metrics, Namespaces, Policy,
    Route, Tls, Variant,
};
#[cfg(test)]
pub(crate) use start::MOST_NAMED;
pub use start::{GrowthRule, Start, StartFor};

/// Default of `--config`.
pub const DEFAULT_PATH: &str = "/etc/spand/agent.toml";

/// Names of the release before.
const RENAMED: Renamed<'_> = Renamed {
    keys: &[
        ("gateway", "silence_s", "idle_timeout_s"),
        ("holdout", "share", "fraction"),
        ("bpf", "control_share", "control_fraction"),
    ],
    values: &[],
};

/// The configuration of an agent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How far starts may go: `observe`, `careful` or `paper`. Default `careful`.
    pub mode: Mode,
    /// How a start is applied. Default `dry_run`: nothing on a host changes until its administrator sets another.
    pub apply: ApplyMethod,
    /// The host's own addresses. Default none: those of the machine's interfaces, followed as they change.
    pub addresses: Vec<IpAddr>,
    /// Name of this host for the gateway's logs. Default empty: the machine's own name.
    pub host_name: String,
    /// Folder of the ledger, the control socket and a pause, made where it is missing. Default /var/lib/spand/agent.
    pub state_dir: PathBuf,
    /// The gateway.
    pub gateway: Gateway,
    /// What is shown to it, and by what it is proven.
    pub tls: Tls,
    /// Limits of a start.
    pub policy: Policy,
    /// How a connection goes on from its start.
    pub start: Start,
    /// Which destinations may be advised.
    pub destinations: Destinations,
    /// The part that is left alone for comparison.
    pub holdout: Holdout,
    /// The applier `route`.
    pub route: Route,
    /// The applier `bpf`.
    pub bpf: Bpf,
    /// The socket for applications.
    pub applications: Applications,
    /// How large each table may grow.
    pub limits: Limits,
    /// Where Prometheus asks.
    pub metrics: Metrics,
    /// What the program may still do once it runs.
    pub process: Process,
    /// What is logged.
    pub log: Log,
    /// A warning for each old name in the file.
    #[serde(skip)]
    pub renamed: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            apply: ApplyMethod::default(),
            addresses: Vec::new(),
            host_name: String::new(),
            state_dir: PathBuf::from("/var/lib/spand/agent"),
            gateway: Gateway::default(),
            tls: Tls::default(),
            policy: Policy::default(),
            start: Start::default(),
            destinations: Destinations::default(),
            holdout: Holdout::default(),
            route: Route::default(),
            bpf: Bpf::default(),
            applications: Applications::default(),
            limits: Limits::default(),
            metrics: Metrics::default(),
            process: Process::default(),
            log: Log::default(),
            renamed: Vec::new(),
        }
    }
}

impl Config {
    /// The file that exists while advice is paused.
    pub fn pause_file(&self) -> PathBuf {
        self.state_dir.join("pause.json")
    }

    /// Reads and checks `path`; relative paths inside become relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = operator::text(spand_confine::read(path), path)?;
        let mut config = Self::parse(&text, path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.state_dir = folder.join(&config.state_dir);
        config.tls.anchor(folder);
        if let Some(socket) = &mut config.applications.socket {
            *socket = folder.join(&*socket);
        }
        Ok(config)
    }

    /// Reads and checks the text of a configuration; `path` only names it in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = operator::parse(text, path)?;
        config.renamed = RENAMED.warnings(text);
        config.gateway.fill_in();
        config.start.check(config.mode).map_err(|fault| ConfigError::at(path, text, fault.at, fault.message))?;
        config.check().map_err(|message| ConfigError::Contradiction { path: path.to_owned(), message })?;
        Ok(config)
    }

    /// The configured name of this host, else the machine's.
    pub(crate) fn own_name(&self) -> String {
        if !self.host_name.is_empty() {
            return self.host_name.clone();
        }
        // A machine that cannot say its name cannot run an agent either, and says so there.
        nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The socket by which the commands reach a running agent.
    pub fn control_socket(&self) -> PathBuf {
        self.state_dir.join("control.sock")
    }

    /// The record of what the agent changed.
    pub fn ledger_file(&self) -> PathBuf {
        self.state_dir.join("ledger.jsonl")
    }
}

#[cfg(test)]
mod tests;
