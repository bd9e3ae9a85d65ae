//! Who is let in: what the configuration asks of each listener.

use std::sync::Arc;

use tokio::sync::watch;

use super::listener::Expected;
use super::owners::Owners;
use crate::config::{Config, Identity};
use crate::tls::{Credentials, Tls, TlsError};

/// What is asked of those who connect. The default asks nothing: the listeners are then loopback's.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tls: Option<Arc<Tls>>,
    /// Whether agents have to show a certificate.
    agents_prove: bool,
    owners: Owners,
}

impl Access {
    /// What the configuration asks, with the TLS that it names.
    pub fn new(config: &Config, tls: Option<Arc<Tls>>) -> Result<Self, TlsError> {
        let owners = match config.agents.identity {
            _ if config.takes_certificates() => {
                let given = config.agents.addresses.iter();
                Owners::Certificate(given.map(|(host, own)| (host.to_ascii_lowercase(), own.clone())).collect())
            }
            Identity::PeerAddress => Owners::PeerAddress,
            Identity::Auto | Identity::Certificate | Identity::None => Owners::Anyone,
        };
        Ok(Self { tls, agents_prove: config.tls.proves_agents(), owners })
    }

    pub(super) const fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// For which addresses an agent may speak.
    pub(super) const fn owners(&self) -> &Owners {
        &self.owners
    }

    /// What a listener speaks.
    pub(super) fn tls_for(&self, expected: Expected) -> Option<watch::Receiver<Arc<Credentials>>> {
        let speaks = match expected {
            Expected::Agents => self.agents_prove,
            Expected::People => false,
        };
        self.tls.as_ref().filter(|_| speaks).map(|tls| tls.in_force())
    }
}
