//! Who is let in: what the configuration asks of each listener.

use std::sync::Arc;

use spand_proto::operator::Failure;
use tokio::sync::watch;

use super::owners::Owners;
use super::passwords::{Passwords, PasswordsError};
use crate::config::{Config, Identity};
use crate::tls::{Credentials, Tls, TlsError};

/// Who is expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Expected {
    /// Agents, over gRPC.
    Agents,
    /// People and scripts, over HTTP.
    People,
}

impl Expected {
    /// Its name as a label.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Agents => "grpc",
            Self::People => "http",
        }
    }
}

/// What is asked of those who connect. The default asks nothing: the listeners are then loopback's.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tls: Option<Arc<Tls>>,
    /// Whether agents have to show a certificate.
    agents_prove: bool,
    /// Whether people speak TLS.
    people_tls: bool,
    owners: Owners,
    passwords: Option<Arc<Passwords>>,
    hosts: Vec<String>,
}

/// Files that give no working access.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Those of `[tls]`.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// That of `admin.passwords`.
    #[error(transparent)]
    Passwords(#[from] PasswordsError),
}

impl Access {
    /// Reads the files that the configuration names.
    pub fn open(config: &Config) -> Result<Self, AccessError> {
        let owners = match config.agents.identity {
            _ if config.takes_certificates() => {
                let given = config.agents.addresses.iter();
                Owners::Certificate(given.map(|(host, own)| (host.to_ascii_lowercase(), own.clone())).collect())
            }
            Identity::PeerAddress => Owners::PeerAddress,
            Identity::Auto | Identity::Certificate | Identity::None => Owners::Anyone,
        };
        let passwords = config.admin.passwords.as_deref().map(Passwords::open).transpose()?;
        Ok(Self {
            tls: Tls::open(&config.tls)?.map(Arc::new),
            agents_prove: config.tls.proves_agents(),
            people_tls: config.admin.tls,
            owners,
            passwords: passwords.map(Arc::new),
            hosts: config.admin.hosts.clone(),
        })
    }

    /// Looks at the files; what changed comes into force, or is said to be broken, once.
    pub fn look(&self) {
        if let Some(tls) = &self.tls {
            tls.look();
        }
        if let Some(passwords) = &self.passwords {
            passwords.look();
        }
    }

    pub(super) const fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// For which addresses an agent may speak.
    pub(super) const fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Passwords of people, where they are asked for one.
    pub(super) const fn passwords(&self) -> Option<&Arc<Passwords>> {
        self.passwords.as_ref()
    }

    /// Names by which people may ask.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// What a listener speaks.
    pub(super) fn tls_for(&self, expected: Expected) -> Option<watch::Receiver<Arc<Credentials>>> {
        let speaks = match expected {
            Expected::Agents => self.agents_prove,
            Expected::People => self.people_tls,
        };
        self.tls.as_ref().filter(|_| speaks).map(|tls| tls.in_force())
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Tls(error) => error.into(),
            AccessError::Passwords(error) => error.into(),
        }
    }
}
