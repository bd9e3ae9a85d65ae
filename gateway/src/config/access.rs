//! The sections about who is let in: `[tls]` and `[agents]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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
        let listen = self.api.grpc_listen.0;
        if tls.proves_agents() && self.agents.plain_text {
            return Err("agents.plain_text is on although tls.ca proves agents: remove one of them".to_owned());
        }
        if !tls.proves_agents() && !self.agents.plain_text && is_reached_by_others(listen) {
            return Err(format!(
                "api.grpc_listen {listen} is reached by other machines, and nothing proves who they are: name \
                 tls.certificate, tls.key and tls.ca, or say agents.plain_text = true where that network is trusted"
            ));
        }
        Ok(())
    }
}

/// Whether others than this machine can connect.
const fn is_reached_by_others(listen: SocketAddr) -> bool {
    !listen.ip().is_loopback()
}
