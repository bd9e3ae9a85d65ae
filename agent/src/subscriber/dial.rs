//! The paths to the gateways: connections, proven on both sides where a gateway is at `https://`.
//!
//! The files of `[tls]` are looked at before each connection. What changed comes into force; what cannot be used leaves
//! the previous ones, logged once and counted.

use std::error::Error as _;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use spand_proto::tls::{PemError, PemFile};
use spand_proto::v1::spand_client::SpandClient;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tracing::{error, info};

use super::MOST_MESSAGE_BYTES;
use super::socket::Connector;
use crate::config::{self, Config, Gateway, socket_of};
use crate::destination::resolve;

/// What requests over a Unix socket name as their host: HTTP/2 has them name one.
const ANY_HOST: &str = "http://localhost";

/// How soon a dead gateway is noticed, and how hosts spread out. Tests take shorter times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    /// Silence on an open stream after which the agent sends an HTTP/2 PING.
    pub ping_after: Duration,
    /// Longest wait for its acknowledgement.
    pub ping_timeout: Duration,
    /// Hosts that lost a gateway reconnect within this time, but never later than `gateway.retry_max_ms`.
    pub spread: Duration,
    /// Mean time between two attempts to return to a gateway earlier in the list.
    pub failback: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ping_after: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            spread: Duration::from_secs(2),
            failback: Duration::from_secs(120),
        }
    }
}

/// Connects to the gateways, and holds which of them this host is subscribed to.
#[derive(Debug)]
pub struct Dialer {
    gateway: Gateway,
    urls: Vec<String>,
    /// The one in use, else the first.
    seat: AtomicUsize,
    timing: Timing,
    tls: Option<Mutex<Kept>>,
}

/// What is in force of `[tls]`.
#[derive(Debug)]
struct Kept {
    named: config::Tls,
    /// What the last look found: nothing is tried or logged twice.
    tried: Result<Files, String>,
    in_force: Proof,
    failures: u64,
}

#[derive(Clone, Debug)]
struct Proof {
    config: ClientTlsConfig,
    ends_unix_s: i64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Files {
    certificate: PemFile,
    key: PemFile,
    ca: PemFile,
}

/// Files of `[tls]` that prove nothing.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("cannot read {} ({key}): {source}; the agent's user needs the right to", path.display())]
    Unreadable {
        /// The key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file that holds something else.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The parts do not go together.
    #[error("tls.certificate, tls.key and tls.ca cannot be used together: {0}")]
    Unusable(String),
}

/// How TLS to the gateway is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TlsStatus {
    /// When this host's certificate ends, in seconds since 1970-01-01 00:00 UTC.
    pub ends_unix_s: Option<i64>,
    /// Times changed files could not be used.
    pub failures: u64,
}

impl Dialer {
    /// A dialer for the configured gateways. Reads the files of `[tls]` where they are needed.
    pub fn new(config: &Config) -> Result<Self, TlsError> {
        let gateway = config.gateway.clone();
        let urls = gateway.list().into_iter().map(str::to_owned).collect();
        let mut dialer = Self { gateway, urls, seat: AtomicUsize::new(0), timing: Timing::default(), tls: None };
        if let Some(proven) = dialer.urls.iter().find(|url| url.starts_with("https:")) {
            let named = config.tls.clone();
            let files = Files::read(&named)?;
            let in_force = prove(proven, &named, &files)?;
            dialer.tls = Some(Mutex::new(Kept { named, tried: Ok(files), in_force, failures: 0 }));
        }
        Ok(dialer)
    }

    /// With these times instead of the usual ones.
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// How patiently gateways are asked.
    pub const fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The gateways in the order in which they are tried.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The gateway at this position of the list.
    pub(crate) fn url(&self, at: usize) -> &str {
        self.urls.get(at).map(String::as_str).unwrap_or_default()
    }

    pub(crate) const fn timing(&self) -> Timing {
        self.timing
    }

    /// How its TLS is.
    pub fn status(&self) -> TlsStatus {
        self.kept(|kept| TlsStatus { ends_unix_s: Some(kept.in_force.ends_unix_s), failures: kept.failures })
            .unwrap_or_default()
    }

    /// The position of the gateway that this host is subscribed to, else of the first.
    pub(crate) fn seat(&self) -> usize {
        self.seat.load(Ordering::Relaxed)
    }

    /// This host is subscribed to the gateway at this position.
    pub(crate) fn set_seat(&self, at: usize) {
        self.seat.store(at, Ordering::Relaxed);
    }

    /// This host is subscribed to the gateway at `url`, by another process.
    pub(crate) fn take_seat(&self, url: &str) {
        if let Some(at) = self.urls.iter().position(|known| known == url) {
            self.set_seat(at);
        }
    }

    /// A client of the gateway that this host is subscribed to, else of the first. The error is its innermost words:
    /// the outer ones say "transport error".
    pub async fn connect(&self) -> Result<SpandClient<Channel>, String> {
        self.connect_to(self.seat()).await
    }

    /// A client of the gateway at this position of the list.
    pub(crate) async fn connect_to(&self, at: usize) -> Result<SpandClient<Channel>, String> {
        let url = self.urls.get(at).ok_or("no such gateway")?;
        let timeout = Duration::from_millis(self.gateway.timeout_ms.get());
        if let Some(socket) = socket_of(url) {
            let endpoint = self.patient(Endpoint::from_static(ANY_HOST));
            let channel = endpoint.connect_with_connector(Connector(socket.to_owned())).await;
            return Ok(client(channel.map_err(|error| innermost(&error))?));
        }
        let mut endpoint = endpoint(url)?;
        // The name is looked up again below, as at every connection; here its failure gets a sentence and an end of its own.
        let host = host_of(&endpoint).to_owned();
        if host.parse::<IpAddr>().is_err() {
            resolve(&host, timeout).await?;
        }
        endpoint = self.patient(endpoint).tcp_nodelay(true);
        if endpoint.uri().scheme_str() == Some("https")
            && let Some(proof) = self.kept(|kept| kept.look(url))
        {
            endpoint = endpoint.tls_config(proof).map_err(|error| innermost(&error))?;
        }
        Ok(client(endpoint.connect().await.map_err(|error| innermost(&error))?))
    }

    /// With limits on how long a gateway may take.
    fn patient(&self, endpoint: Endpoint) -> Endpoint {
        endpoint
            .connect_timeout(Duration::from_millis(self.gateway.timeout_ms.get()))
            .http2_keep_alive_interval(self.timing.ping_after)
            .keep_alive_timeout(self.timing.ping_timeout)
    }

    fn kept<T>(&self, take: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        // Nothing in here panics; should it, what is in force is still whole.
        let mut kept = self.tls.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(take(&mut kept))
    }
}

fn client(channel: Channel) -> SpandClient<Channel> {
    SpandClient::new(channel).max_decoding_message_size(MOST_MESSAGE_BYTES)
}

impl Kept {
    /// What is in force for the gateway at `url` after a look at the files.
    fn look(&mut self, url: &str) -> ClientTlsConfig {
        let read = Files::read(&self.named).map_err(|error| error.to_string());
        if read != self.tried {
            let proved = read.as_ref().map_err(Clone::clone).and_then(|files| {
                let proved = prove(url, &self.named, files);
                proved.map_err(|error| error.to_string())
            });
            self.tried = read;
            match proved {
                Ok(proof) => {
                    info!(ends_unix_s = proof.ends_unix_s, "new TLS files are in force");
                    self.in_force = proof;
                }
                Err(why) => {
                    self.failures += 1;
                    error!(%why, "changed TLS files cannot be used: those before stay in force");
                }
            }
        }
        // The name is the gateway's own, unless one is configured.
        let host = endpoint(url).map(|endpoint| host_of(&endpoint).to_owned()).unwrap_or_default();
        self.in_force.config.clone().domain_name(self.named.name.clone().unwrap_or(host))
    }
}

impl Files {
    fn read(tls: &config::Tls) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read("tls.certificate", tls.certificate.as_deref())?,
            key: read("tls.key", tls.key.as_deref())?,
            ca: read("tls.ca", tls.ca.as_deref())?,
        })
    }
}

fn read(key: &'static str, path: Option<&Path>) -> Result<PemFile, TlsError> {
    let path = path.unwrap_or(Path::new(""));
    let read = File::open(path).and_then(|file| PemFile::read(key, path, file));
    read.map_err(|source| TlsError::Unreadable { key, path: path.to_owned(), source })
}

/// Tries the files out: a key of another certificate shows only when all are put together.
fn prove(url: &str, named: &config::Tls, files: &Files) -> Result<Proof, TlsError> {
    files.ca.certificates()?;
    files.key.private_key()?;
    let ends_unix_s = files.certificate.first_certificate()?.not_after_unix_s;
    let endpoint = endpoint(url).map_err(TlsError::Unusable)?;
    let config = ClientTlsConfig::new()
        .domain_name(named.name.as_deref().unwrap_or(host_of(&endpoint)))
        .ca_certificate(Certificate::from_pem(&files.ca.text))
        .identity(Identity::from_pem(&files.certificate.text, &files.key.text));
    endpoint.tls_config(config.clone()).map_err(|error| TlsError::Unusable(innermost(&error)))?;
    Ok(Proof { config, ends_unix_s })
}

fn endpoint(url: &str) -> Result<Endpoint, String> {
    Endpoint::from_shared(url.to_owned()).map_err(|error| innermost(&error))
}

/// The name or address of a gateway.
fn host_of(endpoint: &Endpoint) -> &str {
    endpoint.uri().host().unwrap_or_default().trim_matches(['[', ']'])
}

/// The text of a refusal. A gateway refuses a certificate once the connection is established, and then the text lies
/// deeper than the status.
pub(crate) fn words(status: &tonic::Status) -> String {
    match status.source() {
        Some(source) => format!("{}; for TLS see the gateway's log too", innermost(source)),
        None => status.message().to_owned(),
    }
}

/// The innermost words of an error.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
