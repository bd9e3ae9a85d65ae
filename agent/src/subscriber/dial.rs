//! The path to the gateway: a connection, proven on both sides where the gateway is at `https://`.
//!
//! The files of `[tls]` are looked at before each connection. What changed comes into force; what cannot be used leaves
//! the previous ones, logged once and counted.

use std::error::Error as _;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spand_proto::tls::{PemError, PemFile};
use spand_proto::v1::spand_client::SpandClient;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tracing::{error, info};

use super::MOST_MESSAGE_BYTES;
use crate::config::{self, Config, Gateway};
use crate::destination::resolve;

/// Knows where the gateway is and how to prove both ends.
#[derive(Debug)]
pub struct Dialer {
    gateway: Gateway,
    tls: Option<std::sync::Mutex<Kept>>,
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
    /// A dialer for the configured gateway. Reads the files of `[tls]` where they are needed.
    pub fn new(config: &Config) -> Result<Self, TlsError> {
        let gateway = config.gateway.clone();
        if !gateway.url.starts_with("https:") {
            return Ok(Self { gateway, tls: None });
        }
        let named = config.tls.clone();
        let files = Files::read(&named)?;
        let in_force = prove(&gateway, &named, &files)?;
        let kept = Kept { named, tried: Ok(files), in_force, failures: 0 };
        Ok(Self { gateway, tls: Some(std::sync::Mutex::new(kept)) })
    }

    /// Where the gateway is, and how patiently it is asked.
    pub const fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// How its TLS is.
    pub fn status(&self) -> TlsStatus {
        self.kept(|kept| TlsStatus { ends_unix_s: Some(kept.in_force.ends_unix_s), failures: kept.failures })
            .unwrap_or_default()
    }

    /// A client of the gateway. The error is its innermost words: the outer ones say "transport error".
    pub async fn connect(&self) -> Result<SpandClient<Channel>, String> {
        let timeout = Duration::from_millis(self.gateway.timeout_ms.get());
        let mut endpoint = endpoint(&self.gateway)?;
        // The name is looked up again below, as at every connection; here its failure gets a sentence and an end of its own.
        let host = endpoint.uri().host().unwrap_or_default().trim_matches(['[', ']']);
        if host.parse::<IpAddr>().is_err() {
            resolve(host, timeout).await?;
        }
        endpoint = endpoint
            .connect_timeout(timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(self.gateway.idle_timeout_s.get()) / 3)
            .keep_alive_timeout(timeout);
        if let Some(proof) = self.kept(|kept| kept.look(&self.gateway)) {
            endpoint = endpoint.tls_config(proof).map_err(|error| innermost(&error))?;
        }
        let channel = endpoint.connect().await.map_err(|error| innermost(&error))?;
        Ok(SpandClient::new(channel).max_decoding_message_size(MOST_MESSAGE_BYTES))
    }

    fn kept<T>(&self, take: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        // Nothing in here panics; should it, what is in force is still whole.
        let mut kept = self.tls.as_ref()?.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Some(take(&mut kept))
    }
}

impl Kept {
    /// What is in force after a look at the files.
    fn look(&mut self, gateway: &Gateway) -> ClientTlsConfig {
        let read = Files::read(&self.named).map_err(|error| error.to_string());
        if read != self.tried {
            let proved = read.as_ref().map_err(Clone::clone).and_then(|files| {
                let proved = prove(gateway, &self.named, files);
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
        self.in_force.config.clone()
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
fn prove(gateway: &Gateway, named: &config::Tls, files: &Files) -> Result<Proof, TlsError> {
    files.ca.certificates()?;
    files.key.private_key()?;
    let ends_unix_s = files.certificate.first_certificate()?.not_after_unix_s;
    let endpoint = endpoint(gateway).map_err(TlsError::Unusable)?;
    let host = endpoint.uri().host().unwrap_or_default().trim_matches(['[', ']']);
    let config = ClientTlsConfig::new()
        .domain_name(named.name.as_deref().unwrap_or(host))
        .ca_certificate(Certificate::from_pem(&files.ca.text))
        .identity(Identity::from_pem(&files.certificate.text, &files.key.text));
    endpoint.tls_config(config.clone()).map_err(|error| TlsError::Unusable(innermost(&error)))?;
    Ok(Proof { config, ends_unix_s })
}

fn endpoint(gateway: &Gateway) -> Result<Endpoint, String> {
    Endpoint::from_shared(gateway.url.clone()).map_err(|error| innermost(&error))
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
