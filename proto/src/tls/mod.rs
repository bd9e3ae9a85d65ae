//! What gateway and agent show each other to prove who they are: certificates and keys from the bytes of PEM files, the
//! names a certificate holds, and when it ends.
//!
//! Does not: read files, know the time, or speak TLS. The programs do.

use std::collections::BTreeSet;
use std::io;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

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

// A certificate's names and validity.

/// What is used of a certificate (RFC 5280).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// Whom it names.
    pub names: Names,
    /// Before this second since 1970-01-01 00:00 UTC it does not hold.
    pub not_before_unix_s: i64,
    /// After this second since 1970-01-01 00:00 UTC it does not hold.
    pub not_after_unix_s: i64,
}

/// The subject's alternative names (RFC 5280 section 4.2.1.6). The common name is none (RFC 9525 section 2).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// Host names, in small letters.
    pub hosts: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
}

impl Certificate {
    /// Reads a certificate in DER. `None` if it is not one, or repeats an extension.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names = Names::default();
        if let Some(extension) = certificate.subject_alternative_name().ok()? {
            for name in &extension.value.general_names {
                match name {
                    GeneralName::DNSName(host) => names.hosts.push(host.to_ascii_lowercase()),
                    GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        let validity = certificate.validity();
        Some(Self {
            names,
            not_before_unix_s: validity.not_before.timestamp(),
            not_after_unix_s: validity.not_after.timestamp(),
        })
    }
}

impl Names {
    /// All names, with a comma between two: hosts, then addresses, each sorted and once. The same for a certificate and the one
    /// that renews it, and for no other host's. `None` where there is no name.
    pub fn identity(&self) -> Option<String> {
        let hosts: BTreeSet<String> = self.hosts.iter().cloned().collect();
        let addresses: BTreeSet<IpAddr> = self.addresses.iter().map(IpAddr::to_canonical).collect();
        let names: Vec<String> = hosts.into_iter().chain(addresses.iter().map(ToString::to_string)).collect();
        (!names.is_empty()).then(|| names.join(","))
    }

    /// One name for logs: the first host, else the first address. Several certificates may have it.
    pub fn first(&self) -> Option<String> {
        self.hosts.first().cloned().or_else(|| self.addresses.first().map(ToString::to_string))
    }
}

/// 4 bytes are IPv4, 16 are IPv6; anything else is refused.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
