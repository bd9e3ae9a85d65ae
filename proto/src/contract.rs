//! Who speaks, and which version of the contract.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of the messages in `spand.v1`. It counts up with every change that an older peer would misread; a change
/// that it can ignore keeps the number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ContractVersion(u32);

impl ContractVersion {
    /// The version spoken here.
    pub const CURRENT: Self = Self(1);
    /// The oldest version still understood.
    pub const OLDEST: Self = Self(1);

    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The version of a peer, if it is supported here.
    pub fn of_peer(number: u32) -> Result<Self, UnsupportedVersion> {
        if (Self::OLDEST.0..=Self::CURRENT.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(UnsupportedVersion { number })
        }
    }
}

/// A contract version that is not spoken here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "contract version {number} is not spoken here, only {} to {}: bring gateway and agent to the same release",
    ContractVersion::OLDEST.0,
    ContractVersion::CURRENT.0
)]
pub struct UnsupportedVersion {
    /// The peer's version; 0 if it sent none.
    pub number: u32,
}

/// The name of a host in logs and on the dashboard. It gives no rights.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

/// Longest host name in bytes, as in the domain name system (RFC 1035 section 2.3.4).
pub const MAX_HOST_NAME_BYTES: usize = 255;

impl HostName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that cannot be a [`HostName`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is no host name: give 1 to {MAX_HOST_NAME_BYTES} bytes without control characters")]
pub struct NotAHostName;

impl TryFrom<String> for HostName {
    type Error = NotAHostName;

    fn try_from(name: String) -> Result<Self, NotAHostName> {
        let fits = (1..=MAX_HOST_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
        if fits { Ok(Self(name)) } else { Err(NotAHostName) }
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of gateways that share what they see. It gives no rights.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cluster(String);

/// Longest name of a cluster in bytes.
pub const MAX_CLUSTER_BYTES: usize = 64;

impl Cluster {
    /// The cluster of this name; `None` where it cannot be one: nothing, too long, or with control characters.
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        let fits = (1..=MAX_CLUSTER_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
        fits.then_some(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_in_range_are_spoken() {
        assert_eq!(ContractVersion::of_peer(ContractVersion::CURRENT.number()), Ok(ContractVersion::CURRENT));
        for number in [0, ContractVersion::CURRENT.number() + 1] {
            let error = ContractVersion::of_peer(number).unwrap_err();
            assert!(error.to_string().contains(&format!("version {number} ")), "{error}");
        }
    }

    #[test]
    fn a_cluster_is_a_short_name_or_none() {
        assert_eq!(Cluster::new("main").as_ref().map(Cluster::as_str), Some("main"));
        for bad in [String::new(), "two\nlines".to_owned(), "a".repeat(MAX_CLUSTER_BYTES + 1)] {
            assert_eq!(Cluster::new(bad), None);
        }
    }

    #[test]
    fn a_host_name_cannot_break_a_log_line() {
        assert!(HostName::try_from("web-1.example.net".to_owned()).is_ok());
        assert!(HostName::try_from("a".repeat(MAX_HOST_NAME_BYTES)).is_ok());
        for bad in [String::new(), "two\nlines".to_owned(), "a".repeat(MAX_HOST_NAME_BYTES + 1)] {
            assert_eq!(HostName::try_from(bad), Err(NotAHostName));
        }
    }
}
