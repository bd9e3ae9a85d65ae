//! Names in a certificate, as the command line gives them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest common name (RFC 5280 appendix A, `ub-common-name`).
const MOST_NAME_BYTES: usize = 64;
/// Longest host name, and longest of its labels (RFC 1035 section 2.3.4).
const MOST_HOST_BYTES: usize = 253;
const MOST_LABEL_BYTES: usize = 63;

/// What the host is called: a host name, in small letters, that is the name of a file as well.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Name(String);

/// An address or a host name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Address {
    Ip(IpAddr),
    Host(String),
}

impl Name {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Address {
    pub(super) const fn as_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Host(_) => None,
        }
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.parse::<IpAddr>().is_ok() {
            return Err("NAME is a host name, such as web-1.example.org; addresses go to --address".to_owned());
        }
        let name = host(text)?;
        if name.len() > MOST_NAME_BYTES {
            return Err(format!("it has {} characters, {MOST_NAME_BYTES} at most", name.len()));
        }
        if ["ca", "revoked"].contains(&name.as_str()) {
            return Err(format!("{name}.pem is a file of the authority: choose another name"));
        }
        Ok(Self(name))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() || address.is_multicast() => {
                Err("it is not the address of a machine".to_owned())
            }
            Ok(address) => Ok(Self::Ip(address.to_canonical())),
            Err(_) => host(text).map(Self::Host).map_err(|why| format!("neither an address nor a host name: {why}")),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Host(host) => f.write_str(host),
        }
    }
}

/// All names of a certificate, each once.
pub(super) fn all(name: &Name, addresses: &[Address]) -> Vec<Address> {
    let mut all = vec![Address::Host(name.0.clone())];
    for address in addresses {
        if !all.contains(address) {
            all.push(address.clone());
        }
    }
    all
}

/// A host name in small letters (RFC 1123 section 2.1).
fn host(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > MOST_HOST_BYTES {
        return Err(format!("it has {} characters, {MOST_HOST_BYTES} at most", text.len()));
    }
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    let mut labels = text.split('.');
    if !is_plain || labels.clone().any(|label| label.starts_with('-') || label.ends_with('-')) {
        return Err("a host name holds letters, digits, dots and, within, hyphens".to_owned());
    }
    if labels.any(|label| label.is_empty() || label.len() > MOST_LABEL_BYTES) {
        return Err(format!("between dots there are 1 to {MOST_LABEL_BYTES} characters"));
    }
    if text.rsplit('.').next().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit())) {
        return Err("its last part is a number, as of an address".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}
