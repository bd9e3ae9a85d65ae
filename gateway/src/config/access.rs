//! The sections about who is let in: `[tls]`, `[agents]` and `[admin]`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spand_proto::network::Network;

use super::Config;

/// `[tls]`: what the gateway shows, and by what agents are proven. Read again when they change.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The gateway's certificate and its chain, in PEM. Default none: no TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The authority of the agents' certificates, in PEM. With it every agent must show one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Certificates of that authority that hold no more: its revocation list, in PEM. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<PathBuf>,
}

/// `[agents]`: how agents prove themselves.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agents {
    /// Let agents in without TLS although others than this machine reach `api.grpc_listen`. Default off.
    pub plain_text: bool,
    /// Whose word is taken for an address. Default `auto`.
    pub identity: Identity,
    /// Addresses that hosts are authorised for besides those in their certificates: by host name, `*` for every host.
    pub addresses: BTreeMap<String, Vec<Network>>,
}

/// Whose word is taken for an address.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// `certificate` with TLS, else `none`.
    #[default]
    Auto,
    /// That of the agent whose certificate names it.
    Certificate,
    /// The one that the agent connects from.
    PeerAddress,
    /// Anyone's.
    None,
}

/// `[admin]`: how people and scripts prove themselves at `api.http_listen`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Speak HTTPS, with the certificate of `[tls]`. Default off.
    pub tls: bool,
    /// File of names and password hashes; with it everyone must show one. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passwords: Option<PathBuf>,
    /// Let everyone in although other machines reach it. Default off.
    pub open: bool,
    /// Take passwords without TLS although other machines reach it. Default off.
    pub plain_text: bool,
    /// Names by which browsers may ask, beside addresses, `localhost` and the machine's own name. Default none.
    pub hosts: Vec<String>,
}

impl Tls {
    /// Makes relative paths start at `folder`.
    pub(super) fn anchor(&mut self, folder: &Path) {
        for path in [&mut self.certificate, &mut self.key, &mut self.ca, &mut self.revoked].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Whether agents have to show a certificate.
    pub const fn proves_agents(&self) -> bool {
        self.ca.is_some()
    }
}

impl Config {
    /// Whether an agent's certificate says for which addresses it may speak.
    pub(crate) const fn takes_certificates(&self) -> bool {
        self.tls.proves_agents() && matches!(self.agents.identity, Identity::Auto | Identity::Certificate)
    }

    /// The first contradiction, as a sentence.
    pub(super) fn check_access(&self) -> Result<(), String> {
        let tls = &self.tls;
        if tls.certificate.is_some() != tls.key.is_some() {
            return Err("tls.certificate and tls.key go together: name both or neither".to_owned());
        }
        if tls.ca.is_some() && tls.certificate.is_none() {
            return Err("tls.ca proves agents, but the gateway has nothing to show them: name tls.certificate and \
                        tls.key too"
                .to_owned());
        }
        if tls.revoked.is_some() && tls.ca.is_none() {
            return Err("tls.revoked is a list of the authority in tls.ca: name that too".to_owned());
        }
        if !tls.proves_agents() && self.agents.identity == Identity::Certificate {
            return Err(
                "agents.identity is \"certificate\", but agents show none: name tls.ca, or choose \"peer_address\""
                    .to_owned(),
            );
        }
        if !self.agents.addresses.is_empty() && !self.takes_certificates() {
            return Err(
                "agents.addresses gives addresses to the hosts of certificates, and none are asked for: name tls.ca, \
                        or remove it"
                    .to_owned(),
            );
        }
        self.check_people()?;
        if tls.proves_agents() && self.agents.plain_text {
            return Err("agents.plain_text is on although tls.ca proves agents: remove one of them".to_owned());
        }
        if let Some(Listen(listen)) = self.api.grpc_listen
            && !tls.proves_agents()
            && !self.agents.plain_text
            && is_reached_by_others(listen)
        {
            return Err(format!(
                "api.grpc_listen {listen} is reached by other machines, and nothing proves who they are: name \
                 tls.certificate, tls.key and tls.ca, or say agents.plain_text = true where that network is trusted"
            ));
        }
        Ok(())
    }
}

impl Config {
    fn check_people(&self) -> Result<(), String> {
        let (admin, listen) = (&self.admin, self.api.http_listen.0);
        if admin.tls && self.tls.certificate.is_none() {
            return Err("admin.tls is on without a certificate: name tls.certificate and tls.key".to_owned());
        }
        if admin.open && admin.passwords.is_some() {
            return Err(
                "admin.open lets everyone in although admin.passwords asks for one: remove one of them".to_owned()
            );
        }
        if !is_reached_by_others(listen) {
            return Ok(());
        }
        if admin.passwords.is_none() && !admin.open {
            return Err(format!(
                "api.http_listen {listen} is reached by other machines, and nobody has to prove anything there: name \
                 admin.passwords, or say admin.open = true where all of them may see everything"
            ));
        }
        if admin.passwords.is_some() && !admin.tls && !admin.plain_text {
            return Err(format!(
                "api.http_listen {listen} would take passwords that others on the way can read: say admin.tls = true, or \
                 admin.plain_text = true where that network is trusted"
            ));
        }
        Ok(())
    }
}

/// Whether others than this machine can connect.
const fn is_reached_by_others(listen: SocketAddr) -> bool {
    !listen.ip().is_loopback()
}

// An address to listen on, as it is written in the configuration.

/// An address to listen on.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "SocketAddr")]
pub struct Listen(pub SocketAddr);

/// A text that names no address to listen on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no address to listen on: write one with a port, such as 127.0.0.1:7400 or [::1]:7400")]
pub struct NotAListenAddress(String);

impl TryFrom<String> for Listen {
    type Error = NotAListenAddress;

    fn try_from(text: String) -> Result<Self, NotAListenAddress> {
        text.parse().map(Self).map_err(|_| NotAListenAddress(text))
    }
}

impl From<Listen> for SocketAddr {
    fn from(listen: Listen) -> Self {
        listen.0
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
