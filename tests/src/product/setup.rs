//! The configuration files of the programs.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::ValueEnum;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::running::{GRPC_PORT, HTTP_PORT};
use crate::lab::topology::{GATEWAY_MANAGEMENT, MIRROR_DEVICE, SERVER_V4, SERVER_V6};

/// How the agent applies starts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ApplyMethod {
    /// No agent at all: what is measured is then the lab itself.
    None,
    /// Routes with an initial window.
    Route,
    /// A congestion control of its own.
    Bpf,
}

/// The agent's mode.
#[derive(Clone, Copy, Debug, Deserialize, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Mode {
    /// TCP/SPAND as published.
    Paper,
    /// The default.
    Careful,
}

/// What the agent's starts are made of. All but the default need the programs in the kernel.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, Serialize, ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StartVariant {
    /// The default: the share's window, paced.
    #[default]
    Plain,
    /// The same, with the bottleneck's buffer as a bound of what is not paced.
    Buffer,
    /// The host's own window, with a slow-start threshold by the last sender to the network: of the rules for openings one that
    /// has an opening for a sender that is alone.
    Threshold,
    /// Careful Resume, by the rule of RFC 9959.
    Rfc9959,
}

impl ApplyMethod {
    /// As configurations and files name it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Mode {
    /// As configurations and files name it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl StartVariant {
    /// As files name it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Lines of the agent's configuration; none by default.
    pub const fn agent_lines(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Buffer => "[start]\nbuffer = true\n",
            Self::Threshold => "[start]\nshape = \"threshold\"\n",
            Self::Rfc9959 => "[start]\nrule = \"rfc9959\"\n",
        }
    }

    /// The gateway's rule of estimates, where it is not the default.
    pub const fn rule(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Buffer | Self::Rfc9959 => None,
            Self::Threshold => Some("cached"),
        }
    }
}

/// The gateway's configuration.
#[derive(Clone, Debug)]
pub struct GatewaySetup {
    /// Prefixes whose senders are followed.
    pub internal: Vec<IpNet>,
    /// Its rule of estimates; `None`: the default.
    pub rule: Option<&'static str>,
    /// How it captures.
    pub backend: &'static str,
    /// Its address on the way to the server, where its interfaces listen.
    pub management: Ipv4Addr,
    /// With whom it shares; `None`: with nobody.
    pub sharing: Option<Sharing>,
}

/// How a gateway shares with others.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// The NATS server.
    pub server: String,
    /// Its number.
    pub gateway: u16,
}

impl Default for GatewaySetup {
    fn default() -> Self {
        Self {
            internal: vec![IpNet::from(std::net::IpAddr::V4(SERVER_V4)), IpNet::from(std::net::IpAddr::V6(SERVER_V6))],
            rule: None,
            backend: "auto",
            management: GATEWAY_MANAGEMENT,
            sharing: None,
        }
    }
}

impl GatewaySetup {
    /// Its configuration file.
    pub(super) fn toml(&self) -> String {
        let (management, backend) = (self.management, self.backend);
        let mut text = format!(
            "[capture]\ninterfaces = [\"{MIRROR_DEVICE}\"]\nbackend = \"{backend}\"\n\n[traffic]\ninternal = {}\n\n[api]\ngrpc_listen = \
             \"{management}:{GRPC_PORT}\"\nhttp_listen = \"{management}:{HTTP_PORT}\"\n\n[agents]\nplain_text = true\n\n[admin]\nopen = true\n\n[store]\n\
             directory = \"store\"\n",
            list(&self.internal)
        );
        if let Some(rule) = self.rule {
            write!(text, "\n[estimate]\nrule = \"{rule}\"\n").ok();
        }
        if let Some(Sharing { server, gateway }) = &self.sharing {
            write!(
                text,
                "\n[share]\nservers = [\"{server}\"]\ngateway = {gateway}\nsecret = \"share.secret\"\nkept_mib = 200\n"
            )
            .ok();
        }
        text
    }
}

/// The configuration of the agent. No network is held out: in a measurement that would only hide one at random.
#[derive(Clone, Debug)]
pub struct AgentSetup {
    /// How it applies starts.
    pub method: ApplyMethod,
    /// Its mode.
    pub mode: Mode,
    /// Networks that it may advise; empty: all.
    pub include: Vec<IpNet>,
    /// Version 2 cgroup whose sockets it takes, if its method distinguishes them.
    pub cgroup: Option<PathBuf>,
    /// Part of the connections that are the control group, if its method distinguishes them.
    pub control_fraction: f64,
    /// Which of the agents that this process runs it is, from 0.
    pub number: u8,
    /// Its gateways in order of preference, by their addresses; empty: the lab's own.
    pub gateways: Vec<Ipv4Addr>,
    /// Lines added to its configuration as they are.
    pub more: String,
}

impl AgentSetup {
    /// Its configuration file.
    pub(super) fn toml(&self) -> String {
        let url = |gateway: &Ipv4Addr| format!("\"http://{gateway}:{GRPC_PORT}\"");
        let gateways: Vec<String> = self.gateways.iter().map(url).collect();
        let gateways = if gateways.is_empty() {
            format!("url = {}", url(&GATEWAY_MANAGEMENT))
        } else {
            format!("urls = [{}]", gateways.join(", "))
        };
        let mut text = format!(
            "mode = \"{}\"\napply = \"{}\"\nstate_dir = \"agent\"\n\n[gateway]\n{gateways}\nplain_text = true\n\n[holdout]\nfraction = 0.0\n",
            self.mode.name(),
            self.method.name()
        );
        if !self.include.is_empty() {
            write!(text, "\n[destinations]\ninclude = {}\n", list(&self.include)).ok();
        }
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| self.method == ApplyMethod::Bpf) {
            // Names of congestion controls are the whole machine's.
            let letter = char::from(b'a'.saturating_add(self.number));
            let (name, cgroup) = (format!("b{}{letter}", std::process::id()), cgroup.display());
            let control = self.control_fraction;
            write!(text, "\n[bpf]\ncgroup = \"{cgroup}\"\nname = \"{name}\"\ncontrol_fraction = {control:?}\n").ok();
        }
        text + "\n" + &self.more
    }
}

fn list(prefixes: &[IpNet]) -> String {
    let words: Vec<String> = prefixes.iter().map(|prefix| format!("\"{prefix}\"")).collect();
    format!("[{}]", words.join(", "))
}
