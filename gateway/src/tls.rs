//! TLS of the listeners: which certificate the gateway shows, which ones it takes, and how new files come into force
//! without a restart.
//!
//! Only TLS 1.3 (RFC 8446). What is in force is built whole from the files or not at all: a broken file leaves what was
//! there, logged once and counted.
//!
//! Knows nothing about what a peer may ask: it hands on the names of a certificate that was proven.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use spand_proto::operator::Failure;
use spand_proto::tls::{Certificate, PemError, PemFile};
use tokio::sync::watch;

use crate::config;

/// What is in force: built as a whole.
#[derive(Clone, Debug)]
pub struct Credentials {
    agents: Option<Arc<ServerConfig>>,
    people: Arc<ServerConfig>,
    /// What the gateway's own certificate says.
    pub certificate: Certificate,
    /// When the first certificate of the authority ends, where there is one.
    pub ca_not_after_unix_s: Option<i64>,
    trust: Trust,
}

/// Which certificates are taken. Where this changes, a connection was proven by something that may no longer hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trust(Option<(PemFile, Option<PemFile>)>);

impl Credentials {
    /// Builds both sides' settings.
    pub fn build(files: &Files) -> Result<Self, TlsError> {
        let agents = files.ca.as_ref().map(|ca| server(files, Some(ca), b"h2")).transpose()?;
        let ca_ends = files.ca.as_ref().map(PemFile::first_certificate).transpose()?;
        Ok(Self {
            agents,
            people: server(files, None, b"http/1.1")?,
            certificate: files.certificate.first_certificate()?,
            ca_not_after_unix_s: ca_ends.map(|ca| ca.not_after_unix_s),
            trust: Trust(files.ca.clone().map(|ca| (ca, files.revoked.clone()))),
        })
    }

    /// Settings for agents: they must show a certificate of the authority. `None` without one.
    pub const fn agents(&self) -> Option<&Arc<ServerConfig>> {
        self.agents.as_ref()
    }

    /// Settings for people and scripts, who prove themselves by other means.
    pub const fn people(&self) -> &Arc<ServerConfig> {
        &self.people
    }

    /// By what agents are proven.
    pub const fn trust(&self) -> &Trust {
        &self.trust
    }
}

fn server(files: &Files, ca: Option<&PemFile>, protocol: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|why| mismatch(files, why))?;
    let builder = match ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let refused = |why: String| TlsError::Trust { path: ca.path.clone(), why };
            let mut roots = RootCertStore::empty();
            for certificate in ca.certificates()? {
                roots.add(certificate).map_err(|why| refused(why.to_string()))?;
            }
            let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            if let Some(revoked) = &files.revoked {
                // An authority without a list has revoked nothing; its intermediates are its own affair.
                verifier = verifier
                    .with_crls(revoked.revocation_lists()?)
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status();
            }
            builder.with_client_cert_verifier(verifier.build().map_err(|why| refused(why.to_string()))?)
        }
    };
    let mut config = builder
        .with_single_cert(files.certificate.certificates()?, files.key.private_key()?)
        .map_err(|why| mismatch(files, why))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    // A resumed session would be taken without looking at the certificate again, after it ended or was revoked.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn mismatch(files: &Files, why: rustls::Error) -> TlsError {
    TlsError::Mismatch { certificate: files.certificate.path.clone(), key: files.key.path.clone(), why }
}

// The files of `[tls]`, read.

/// What the files of `[tls]` hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Files {
    certificate: PemFile,
    key: PemFile,
    ca: Option<PemFile>,
    revoked: Option<PemFile>,
}

/// Files that give no working TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("cannot read {} ({key}): {source}; the gateway's user needs the right to", path.display())]
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
    /// The key is another certificate's, or of a kind that is not known.
    #[error("{} (tls.key) is not the key of {} (tls.certificate): {why}", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls says.
        why: rustls::Error,
    },
    /// The certificates of the authority, or its list, cannot be used to prove others.
    #[error("{} (tls.ca) cannot be used to prove agents: {why}", path.display())]
    Trust {
        /// The authority's file.
        path: PathBuf,
        /// What rustls says.
        why: String,
    },
}

impl Files {
    /// Reads them; `None` where `[tls]` names none.
    pub fn read(tls: &config::Tls) -> Result<Option<Self>, TlsError> {
        let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else { return Ok(None) };
        let optional = |key, path: &Option<PathBuf>| path.as_deref().map(|path| read(key, path)).transpose();
        Ok(Some(Self {
            certificate: read("tls.certificate", certificate)?,
            key: read("tls.key", key)?,
            ca: optional("tls.ca", &tls.ca)?,
            revoked: optional("tls.revoked", &tls.revoked)?,
        }))
    }

    /// The gateway's own certificate.
    pub(crate) fn own_certificate(&self) -> Result<CertificateDer<'static>, TlsError> {
        let PemFile { key, path, .. } = &self.certificate;
        let own = self.certificate.certificates()?.into_iter().next();
        own.ok_or_else(|| PemError::NoCertificate { key, path: path.clone() }.into())
    }
}

fn read(key: &'static str, path: &Path) -> Result<PemFile, TlsError> {
    let read = File::open(path).and_then(|file| PemFile::read(key, path, file));
    read.map_err(|source| TlsError::Unreadable { key, path: path.to_owned(), source })
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Unreadable { .. } => Self::environment(error),
            TlsError::Pem(_) | TlsError::Mismatch { .. } | TlsError::Trust { .. } => Self::Usage(error.to_string()),
        }
    }
}

// What is in force, kept in step with the files.

/// TLS that is in force, and the files it comes from.
#[derive(Debug)]
pub struct Tls {
    named: config::Tls,
    /// What the last attempt found: unchanged files are neither tried nor logged again.
    tried: Mutex<Result<Files, String>>,
    in_force: watch::Sender<Arc<Credentials>>,
    measures: TlsMeasures,
}

/// What is counted of changes.
#[derive(Clone, Debug, Default)]
pub struct TlsMeasures(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    reloads: AtomicU64,
    failures: AtomicU64,
}

impl TlsMeasures {
    /// Times new files came into force.
    pub fn reloads(&self) -> u64 {
        self.0.reloads.load(Ordering::Relaxed)
    }

    /// Times changed files could not be used.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }
}

impl Tls {
    /// Reads the files that the configuration names; `None` where it names none.
    pub fn open(named: &config::Tls) -> Result<Option<Self>, TlsError> {
        let Some(files) = Files::read(named)? else { return Ok(None) };
        let (in_force, _) = watch::channel(Arc::new(Credentials::build(&files)?));
        let tried = Mutex::new(Ok(files));
        Ok(Some(Self { named: named.clone(), tried, in_force, measures: TlsMeasures::default() }))
    }

    /// What is in force, now and later.
    pub fn in_force(&self) -> watch::Receiver<Arc<Credentials>> {
        self.in_force.subscribe()
    }

    /// What is counted.
    pub const fn measures(&self) -> &TlsMeasures {
        &self.measures
    }

    /// Looks at the files: changed ones come into force, or are logged as broken, once.
    pub fn look(&self) {
        let read = match Files::read(&self.named) {
            Ok(Some(files)) => Ok(files),
            Ok(None) => return,
            Err(error) => Err(error.to_string()),
        };
        let mut tried = self.tried.lock();
        if *tried == read {
            return;
        }
        let built = read.as_ref().map_err(Clone::clone).and_then(|files| {
            let built = Credentials::build(files);
            built.map_err(|error| error.to_string())
        });
        *tried = read;
        drop(tried);
        match built {
            Ok(credentials) => {
                self.measures.0.reloads.fetch_add(1, Ordering::Relaxed);
                let ends_unix_s = credentials.certificate.not_after_unix_s;
                tracing::info!(expires_unix_s = ends_unix_s, "TLS files reloaded");
                self.in_force.send_replace(Arc::new(credentials));
            }
            Err(why) => {
                self.measures.0.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%why, "cannot reload TLS files; the previous ones stay in force");
            }
        }
    }
}
