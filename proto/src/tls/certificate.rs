//! A certificate's names and validity.

use std::collections::BTreeSet;
use std::net::IpAddr;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

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
