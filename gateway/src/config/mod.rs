//! The configuration of a gateway: one TOML file, every option typed, every fault one readable line.
//!
//! Keys carry their unit (`_s`, `_ms`, `_bytes`, `_mib`); a key or section that is not known is refused, so a typing
//! error never becomes a silent default. Paths are relative to the file. `docs/reference/gateway.example.toml` holds every option
//! with its default, `docs/reference/configuration.md` says why each default is what it is.
//!
//! Does not open interfaces, ports or the store: faults of the environment are found by `run`.

mod access;
mod capture;
mod check;
mod convert;
mod gone;
mod memory;
mod prefix_list;
mod sections;
mod share;
mod tunnel;

use std::path::Path;

use serde::{Deserialize, Serialize};
use spand_confine::Process;
use spand_proto::operator::{self, ConfigError, Log, salvage};

pub use access::{Admin, Agents, Identity, Listen, NotAListenAddress, Tls};
pub use capture::{Capture, CaptureBackend, PfRingClusterType};
pub use convert::EngineOptions;
pub(crate) use convert::{mib, warnings as renamed_warnings};
pub use memory::{Item, Memory};
pub use prefix_list::{MAX_PREFIXES, PrefixListError, load_prefix_list};
pub(crate) use prefix_list::{MOST_MIB, read_prefixes};
pub(crate) use sections::DEFAULT_SOCKET;
pub use sections::{Api, Engine, Estimate, Limits, Names, Publish, Store, Traffic};
pub use share::{SecretError, Share};
pub use tunnel::{Tunnel, TunnelKind};
pub(crate) use tunnel::{kind_named, proposed, proposed_line};

/// Default configuration file of `run` and `check-config`.
pub const DEFAULT_PATH: &str = "/etc/spand/gateway.toml";

/// The configuration of a gateway.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where packets come from.
    pub capture: Capture,
    /// Which packets belong to whom.
    pub traffic: Traffic,
    /// What networks are called.
    pub names: Names,
    /// How samples become estimates.
    pub estimate: Estimate,
    /// How the work is shared out.
    pub engine: Engine,
    /// How large each table may grow.
    pub limits: Limits,
    /// How estimates are sent to subscribed hosts.
    pub publish: Publish,
    /// Who may ask, and where.
    pub api: Api,
    /// What the gateway shows, and by what agents are proven.
    pub tls: Tls,
    /// How agents prove themselves.
    pub agents: Agents,
    /// How people and scripts prove themselves.
    pub admin: Admin,
    /// Other gateways whose cells count here too.
    pub share: Share,
    /// What survives a restart.
    pub store: Store,
    /// What the program may still do once it runs.
    pub process: Process,
    /// What is logged.
    pub log: Log,
}

impl Config {
    /// Reads and checks `path`; relative paths inside become relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = operator::text(spand_confine::read(path), path)?;
        let mut config = Self::parse(&text, path)?;
        config.anchor(path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    /// The defaults, with what of the file at `path` a command needs to find the gateway and its store, where that can be read
    /// out of it: `store.enabled`, `store.directory` and `api.http_listen`.
    pub(crate) fn salvaged(path: &Path) -> Self {
        let mut config = Self::default();
        let text = spand_confine::read_to_string(path).unwrap_or_default();
        if let (Some(enabled), _) = salvage(&text, &["store", "enabled"]) {
            config.store.enabled = enabled;
        }
        if let (Some(directory), _) = salvage(&text, &["store", "directory"]) {
            config.store.directory = directory;
        }
        if let (Some(listen), _) = salvage(&text, &["api", "http_listen"]) {
            config.api.http_listen = listen;
        }
        config.anchor(path.parent().unwrap_or(Path::new("")));
        config
    }

    /// Reads and checks the text of a configuration; `path` only names it in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let refused = |message| ConfigError::Contradiction { path: path.to_owned(), message };
        operator::refuse_gone(text, gone::GONE).map_err(refused)?;
        let mut config: Self = operator::parse(text, path)?;
        config.api.fill_in();
        config.check().map_err(refused)?;
        Ok(config)
    }

    /// A sentence for each file of a secret that others than its owner have rights to.
    pub(crate) fn exposed_secrets(&self) -> impl Iterator<Item = String> {
        let own = [&self.tls.key, &self.admin.passwords].into_iter().flatten();
        own.chain(self.share.secrets()).filter_map(|path| spand_confine::exposed(path))
    }

    /// Makes relative paths start at `folder`.
    fn anchor(&mut self, folder: &Path) {
        if let Some(list) = &mut self.traffic.prefix_list {
            *list = folder.join(&*list);
        }
        if let Some(library) = &mut self.capture.pf_ring_library {
            *library = folder.join(&*library);
        }
        for names in [&mut self.names.list, &mut self.names.asn_database].into_iter().flatten() {
            *names = folder.join(&*names);
        }
        self.tls.anchor(folder);
        if let Some(passwords) = &mut self.admin.passwords {
            *passwords = folder.join(&*passwords);
        }
        if let Some(socket) = &mut self.api.grpc_socket {
            *socket = folder.join(&*socket);
        }
        self.share.anchor(folder);
        self.store.directory = folder.join(&self.store.directory);
    }
}

#[cfg(test)]
mod tests;
