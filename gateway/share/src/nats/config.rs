//! How a gateway reaches NATS. What is configured was checked by who read it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use nkeys::{KeyPair, KeyPairType};
use spand_cells::GatewayId;
use spand_proto::tls::{PemError, PemFile};
use tokio::io::AsyncReadExt;

use super::fault::Fault;
use super::subjects::Subjects;
use crate::exchange::MESSAGE_BYTES;

/// Copies of a stream where nothing else is configured.
pub const DEFAULT_REPLICAS: usize = 3;
/// How long a stream keeps messages where nothing else is configured: a window of 300 s, and what is under way.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(330);
/// What a stream may hold where nothing else is configured.
pub const DEFAULT_STREAM_BYTES: u64 = 1 << 30;

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
    /// Copies of the stream where it is made here, 1 to 5.
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

    /// The servers; why there are none, in a sentence.
    pub(super) fn addresses(&self) -> Result<Vec<ServerAddr>, String> {
        let address =
            |server: &String| server.parse().map_err(|_| format!("`{server}` is no address of a NATS server"));
        self.servers.iter().map(address).collect()
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

/// Largest file of a secret or certificate, in bytes: a device has no end.
const MOST_BYTES: u64 = 1 << 20;

async fn bytes(path: &Path, what: &str) -> Result<Vec<u8>, Fault> {
    let whole = async {
        let mut bytes = Vec::new();
        tokio::fs::File::open(path).await?.take(MOST_BYTES + 1).read_to_end(&mut bytes).await?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB, the most that is read"));
        }
        Ok(bytes)
    };
    whole.await.map_err(|error| Fault::of(format!("{} ({what}) cannot be read: {error}", path.display())))
}
