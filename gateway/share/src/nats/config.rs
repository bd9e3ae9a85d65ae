//! How a gateway reaches NATS: what is configured, and what of it cannot be.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use nkeys::{KeyPair, KeyPairType};
use spand_core::sharing::GatewayId;
use spand_proto::tls::{PemError, PemFile};

use super::fault::Fault;
use super::subjects::Subjects;
use crate::exchange::MESSAGE_BYTES;

/// Copies of a stream where nothing else is configured.
pub const DEFAULT_REPLICAS: usize = 3;
/// Most copies that NATS keeps.
pub const MOST_REPLICAS: usize = 5;
/// How long a stream keeps messages where nothing else is configured: a window of 300 s, and what is under way.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(330);
/// What a stream may hold where nothing else is configured.
pub const DEFAULT_STREAM_BYTES: u64 = 1 << 30;

/// Longest name of a cluster or a site.
const NAME_CHARACTERS: usize = 64;
/// Nobody answers for so long: not there.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// The client gives a connection up at the third tick where nothing came since the first. Its default, 60 s, takes three minutes.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Messages of a subscription that wait to be read; more are dropped by the client.
const SUBSCRIPTION_MESSAGES: usize = 256;
/// What waits in the client to be sent.
const COMMANDS: usize = 256;
/// Subscriptions: one for each topic, and one for a batch of each of the streams that are read at once, of which there are few.
const SUBSCRIPTIONS: usize = 12;

/// Bytes of what may wait in the client.
pub(crate) const fn most_bytes() -> usize {
    (COMMANDS + SUBSCRIPTIONS * SUBSCRIPTION_MESSAGES) * MESSAGE_BYTES
}

/// Where NATS is, who this gateway is there, and the stream of its site.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    /// `nats://host:4222` or `tls://host:4222`: all servers of the site. Others that they name are not used.
    pub servers: Vec<String>,
    /// Which gateways belong together: part of every subject.
    pub cluster: String,
    /// The servers' site: each has a stream of its own.
    pub site: String,
    /// This gateway.
    pub gateway: GatewayId,
    /// How it logs in.
    pub login: Option<NatsLogin>,
    /// How it knows the servers, and they it.
    pub tls: Option<NatsTls>,
    /// Copies of the stream where it is made here, 1 to [`MOST_REPLICAS`].
    pub replicas: usize,
    /// How long it keeps messages where it is made here.
    pub window: Duration,
    /// What it may hold where it is made here.
    pub stream_bytes: u64,
}

/// Who a gateway is to NATS. Secrets are in files, read again at each connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NatsLogin {
    /// A user with a password.
    Password {
        /// The user.
        user: String,
        /// Holds the password, and at most one end of line after it.
        password_file: PathBuf,
    },
    /// A key pair, or what `nsc` makes: a user's token with one.
    Credentials {
        /// Holds the seed alone, which begins with `SU`, or both.
        file: PathBuf,
    },
}

/// TLS to the servers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NatsTls {
    /// The authority that the servers' certificates are of, in PEM.
    pub ca: PathBuf,
    /// What the gateway shows.
    pub identity: Option<NatsIdentity>,
}

/// A client's certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NatsIdentity {
    /// The certificate, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// Something that cannot be configured so.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NatsConfigError {
    /// No server.
    #[error("no NATS server is named: name those of the site, such as tls://nats1.example.net:4222")]
    NoServer,
    /// No address of a server.
    #[error("`{0}` is no address of a NATS server: write tls://host:4222 or nats://host:4222")]
    Server(String),
    /// A secret where everybody reads it.
    #[error("the address of NATS server {0} has a user or password in it: they belong in settings of their own")]
    SecretInServer(String),
    /// A name that would break a subject.
    #[error(
        "`{name}` is no name of a {what}: it is part of NATS subjects, so write 1 to {NAME_CHARACTERS} letters, digits, `-` or `_`"
    )]
    Name {
        /// Cluster or site.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// More or fewer copies than NATS keeps.
    #[error(
        "{0} replicas of a NATS stream are not possible: 1 to {MOST_REPLICAS} are, and 3 survive the loss of a server"
    )]
    Replicas(usize),
    /// A stream that keeps nothing.
    #[error("a NATS stream that keeps messages for {0:?} in {1} bytes keeps nothing: both must be more than 0")]
    NothingKept(Duration, u64),
    /// A secret would cross the network in the clear.
    #[error(
        "the login to NATS server {0} would cross the network in the clear: use TLS, or a server on this machine's loopback"
    )]
    LoginInTheClear(String),
    /// TLS, and nothing to know the server by.
    #[error("NATS server {0} is reached by TLS, and there is no CA to know it by: name the file of its authority")]
    NoCa(String),
}

impl NatsConfig {
    /// Without a login or TLS, with the usual stream.
    pub fn new(servers: Vec<String>, cluster: &str, site: &str, gateway: GatewayId) -> Self {
        Self {
            servers,
            cluster: cluster.to_owned(),
            site: site.to_owned(),
            gateway,
            login: None,
            tls: None,
            replicas: DEFAULT_REPLICAS,
            window: DEFAULT_WINDOW,
            stream_bytes: DEFAULT_STREAM_BYTES,
        }
    }

    /// Whether it can be so. Reads no files.
    pub fn check(&self) -> Result<(), NatsConfigError> {
        self.addresses()?;
        check_name("cluster", &self.cluster)?;
        check_name("site", &self.site)?;
        if !(1..=MOST_REPLICAS).contains(&self.replicas) {
            return Err(NatsConfigError::Replicas(self.replicas));
        }
        if self.window.is_zero() || self.stream_bytes == 0 {
            return Err(NatsConfigError::NothingKept(self.window, self.stream_bytes));
        }
        Ok(())
    }

    /// The servers.
    pub(super) fn addresses(&self) -> Result<Vec<ServerAddr>, NatsConfigError> {
        let addresses: Vec<ServerAddr> =
            self.servers.iter().map(|server| self.address(server)).collect::<Result<_, _>>()?;
        if addresses.is_empty() { Err(NatsConfigError::NoServer) } else { Ok(addresses) }
    }

    fn address(&self, server: &str) -> Result<ServerAddr, NatsConfigError> {
        let refused = || NatsConfigError::Server(server.to_owned());
        let address: ServerAddr = server.parse().map_err(|_| refused())?;
        if address.has_user_pass() || address.password().is_some() {
            // Without the secret.
            return Err(NatsConfigError::SecretInServer(address.host().to_owned()));
        }
        if !["nats", "tls"].contains(&address.scheme()) || address.host().is_empty() {
            return Err(refused());
        }
        if address.tls_required() && self.tls.is_none() {
            return Err(NatsConfigError::NoCa(server.to_owned()));
        }
        if self.login.is_some() && self.tls.is_none() && !is_loopback(address.host()) {
            return Err(NatsConfigError::LoginInTheClear(server.to_owned()));
        }
        Ok(address)
    }

    /// How to connect, once: the session makes every connection itself. Files are read now, so that renewed ones count.
    pub(super) async fn options(&self, subjects: &Subjects) -> Result<ConnectOptions, Fault> {
        let mut options = ConnectOptions::new()
            .name(format!("spand-gateway {}", self.gateway.0))
            .no_echo()
            .max_reconnects(1)
            .ignore_discovered_servers()
            .connection_timeout(CONNECT_WITHIN)
            .ping_interval(PING_INTERVAL)
            .custom_inbox_prefix(subjects.answers())
            .client_capacity(COMMANDS)
            .subscription_capacity(SUBSCRIPTION_MESSAGES);
        if let Some(tls) = &self.tls {
            read(&tls.ca, "CA of NATS").await?.certificates().map_err(unusable)?;
            options = options.require_tls(true).add_root_certificates(tls.ca.clone());
            if let Some(NatsIdentity { certificate, key }) = &tls.identity {
                read(certificate, "certificate for NATS").await?.certificates().map_err(unusable)?;
                read(key, "key for NATS").await?.private_key().map_err(unusable)?;
                options = options.add_client_certificate(certificate.clone(), key.clone());
            }
        }
        Ok(match &self.login {
            None => options,
            Some(NatsLogin::Password { user, password_file }) => {
                options.user_and_password(user.clone(), secret(password_file, "password for NATS").await?)
            }
            Some(NatsLogin::Credentials { file }) => {
                let text = secret(file, "credentials for NATS").await?;
                let is_user =
                    |seed: &str| KeyPair::from_seed(seed).is_ok_and(|pair| pair.key_pair_type() == KeyPairType::User);
                if is_user(&text) {
                    return Ok(options.nkey(text));
                }
                let neither = |_| {
                    Fault::of(format!(
                        "{} holds neither the seed of a user nor credentials: write what `nk -gen user` or `nsc generate creds` prints",
                        file.display()
                    ))
                };
                // The client wants the end of the last line, which `secret` took.
                options.credentials(&format!("{text}\n")).map_err(neither)?
            }
        })
    }
}

impl NatsLogin {
    /// Whom the server refuses, and where the secret is.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Password { user, password_file } => {
                format!("user `{user}` with the password in {}", password_file.display())
            }
            Self::Credentials { file } => format!("the credentials in {}", file.display()),
        }
    }
}

fn check_name(what: &'static str, name: &str) -> Result<(), NatsConfigError> {
    let fits = (1..=NAME_CHARACTERS).contains(&name.len());
    if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        Ok(())
    } else {
        Err(NatsConfigError::Name { what, name: name.to_owned() })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unusable(error: PemError) -> Fault {
    Fault::of(error.to_string())
}

async fn read(path: &Path, key: &'static str) -> Result<PemFile, Fault> {
    Ok(PemFile { key, path: path.to_owned(), text: bytes(path, key).await? })
}

async fn secret(path: &Path, what: &str) -> Result<String, Fault> {
    let text = String::from_utf8(bytes(path, what).await?);
    let text = text.map_err(|_| Fault::of(format!("{} ({what}) is not text", path.display())))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

async fn bytes(path: &Path, what: &str) -> Result<Vec<u8>, Fault> {
    let read = tokio::fs::read(path).await;
    read.map_err(|error| Fault::of(format!("{} ({what}) cannot be read: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(server: &str) -> NatsConfig {
        NatsConfig::new(vec![server.to_owned()], "c", "s", GatewayId(1))
    }

    fn with_login(server: &str) -> NatsConfig {
        let password_file = "/nowhere".into();
        NatsConfig { login: Some(NatsLogin::Password { user: "u".to_owned(), password_file }), ..config(server) }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        let refused = |config: NatsConfig| config.check().unwrap_err().to_string();
        assert_eq!(config("nats://192.0.2.1:4222").check(), Ok(()));
        assert!(refused(NatsConfig { servers: vec![], ..config("") }).starts_with("no NATS server"));
        for server in ["http://192.0.2.1", "ws://192.0.2.1", "nats://", "nats://:x"] {
            assert!(refused(config(server)).contains(server), "{server}");
        }
        let secret = refused(config("nats://user:word@192.0.2.1"));
        assert!(secret.contains("192.0.2.1") && !secret.contains("word@"), "{secret}");
        for name in ["", "a.b", "a b", "*", ">"] {
            assert!(refused(NatsConfig { site: name.to_owned(), ..config("nats://h") }).contains("name of a site"));
        }
        assert!(refused(NatsConfig { replicas: 6, ..config("nats://h") }).starts_with("6 replicas"));
        assert!(refused(NatsConfig { stream_bytes: 0, ..config("nats://h") }).contains("keeps nothing"));
    }

    #[test]
    fn a_login_goes_by_tls_or_stays_on_the_machine() {
        for loopback in ["nats://127.0.0.1:4222", "nats://[::1]:4222", "nats://localhost"] {
            assert_eq!(with_login(loopback).check(), Ok(()), "{loopback}");
        }
        let server = "nats://nats.example.net:4222";
        assert_eq!(with_login(server).check(), Err(NatsConfigError::LoginInTheClear(server.to_owned())));
        let tls = Some(NatsTls { ca: "/nowhere".into(), identity: None });
        assert_eq!(NatsConfig { tls, ..with_login(server) }.check(), Ok(()));
        assert_eq!(config("tls://h").check(), Err(NatsConfigError::NoCa("tls://h".to_owned())));
    }
}
