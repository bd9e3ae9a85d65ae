//! The files of `[tls]`, read.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use spand_proto::operator::Failure;
use spand_proto::tls::{PemError, PemFile};

use crate::config;

/// What the files of `[tls]` hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Files {
    pub(super) certificate: PemFile,
    pub(super) key: PemFile,
    pub(super) ca: Option<PemFile>,
    pub(super) revoked: Option<PemFile>,
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
