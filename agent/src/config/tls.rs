//! The section `[tls]`: what the agent shows, and by what it proves the gateway.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tonic::transport::Uri;

use super::Gateway;
use super::gateways::socket_of;

/// `[tls]`: for gateways at `https://`. The files are read again when they change.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// This host's certificate and its chain, in PEM: it names the addresses that the agent may claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The authority of the gateways' certificates, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Name or address that the certificates of all gateways must hold. Default none: each the one in its URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Tls {
    /// Makes relative paths start at `folder`.
    pub(super) fn anchor(&mut self, folder: &Path) {
        for path in [&mut self.certificate, &mut self.key, &mut self.ca].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// The first contradiction with where the gateways are, as a sentence.
    pub(super) fn check(&self, gateway: &Gateway) -> Result<(), String> {
        gateway.groups().concat().into_iter().try_for_each(|url| self.check_one(gateway, url))
    }

    fn check_one(&self, gateway: &Gateway, url: &str) -> Result<(), String> {
        let key = gateway.key();
        if let Some(socket) = socket_of(url) {
            return if socket.is_absolute() {
                Ok(())
            } else {
                Err(format!("{key} `{url}` names no socket from the root: write unix:/run/spand/gateway.sock"))
            };
        }
        let uri: Option<Uri> = url.parse().ok();
        let host = uri.as_ref().and_then(Uri::host);
        let (Some(host), Some(scheme)) = (host, uri.as_ref().and_then(Uri::scheme_str)) else {
            return Err(format!(
                "{key} `{url}` is no address of a gateway: write https://HOST:PORT, or unix:/PATH on this machine"
            ));
        };
        match scheme {
            "https" if self.certificate.is_none() || self.key.is_none() || self.ca.is_none() => Err(format!(
                "{key} begins with https: name tls.certificate and tls.key, which the gateway asks for, and tls.ca, which \
                 proves the gateway"
            )),
            "https" => Ok(()),
            "http" if is_this_machine(host) || gateway.plain_text => Ok(()),
            "http" => Err(format!(
                "{key} `{url}` is another machine without TLS: write https, or say gateway.plain_text = true where the \
                 network to it is trusted"
            )),
            _ => Err(format!(
                "{key} `{url}` is no address of a gateway: write https://HOST:PORT, or unix:/PATH on this machine"
            )),
        }
    }
}

/// Whether a host as a URL names it is loopback.
fn is_this_machine(host: &str) -> bool {
    let address: Option<std::net::IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host.eq_ignore_ascii_case("localhost") || address.is_some_and(|address| address.is_loopback())
}
