//! Certificates, keys and lists of revoked certificates in PEM (RFC 7468).

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::Certificate;

/// A file that was read, and what it is to be.
#[derive(Clone, Eq, PartialEq)]
pub struct PemFile {
    /// The key of the configuration that names it.
    pub key: &'static str,
    /// Where it lies.
    pub path: PathBuf,
    /// What it holds.
    pub text: Vec<u8>,
}

/// A file that holds something else than it should.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PemError {
    /// Not one certificate in it.
    #[error("{} ({key}) holds no certificate: it should begin with -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// The key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A certificate that cannot be read.
    #[error("{} ({key}) is damaged: copy it again", path.display())]
    Damaged {
        /// The key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// No key, or one that a password protects.
    #[error("{} ({key}) holds no private key without a password: make one with `openssl pkey`", path.display())]
    NoKey {
        /// The key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// No list.
    #[error("{} ({key}) holds no list of revoked certificates: make one with `spand-gateway cert revoke`", path.display())]
    NoList {
        /// The key of the configuration.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
}

impl PemFile {
    /// Largest file that is taken: hundreds of certificates.
    pub const MOST_BYTES: u64 = 4 << 20;

    /// Reads a file that was opened, and refuses one that is larger.
    pub fn read(key: &'static str, path: &Path, opened: impl Read) -> io::Result<Self> {
        let mut text = Vec::new();
        opened.take(Self::MOST_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > Self::MOST_BYTES {
            return Err(io::Error::other(format!(
                "it is longer than {} bytes, which no certificates are",
                Self::MOST_BYTES
            )));
        }
        Ok(Self { key, path: path.to_owned(), text })
    }

    /// The certificates, in the file's order: for a chain the own one first.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        let found = found.map_err(|_| PemError::Damaged { key: self.key, path: self.path.clone() })?;
        if found.is_empty() {
            return Err(PemError::NoCertificate { key: self.key, path: self.path.clone() });
        }
        Ok(found)
    }

    /// The content of the first certificate.
    pub fn first_certificate(&self) -> Result<Certificate, PemError> {
        let found = self.certificates()?.first().and_then(|der| Certificate::read(der));
        found.ok_or_else(|| PemError::Damaged { key: self.key, path: self.path.clone() })
    }

    /// The private key.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        PrivateKeyDer::from_pem_slice(&self.text)
            .map_err(|_| PemError::NoKey { key: self.key, path: self.path.clone() })
    }

    /// The lists of revoked certificates.
    pub fn revocation_lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
        let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&self.text).collect();
        let found = found.map_err(|_| PemError::Damaged { key: self.key, path: self.path.clone() })?;
        if found.is_empty() {
            return Err(PemError::NoList { key: self.key, path: self.path.clone() });
        }
        Ok(found)
    }
}

/// Without the text: a key must not reach a log.
impl std::fmt::Debug for PemFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemFile").field("key", &self.key).field("path", &self.path).finish_non_exhaustive()
    }
}
