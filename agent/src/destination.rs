//! Where a command's question is about: an address, or a host name, which is resolved here. The gateway resolves nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use procfs::net::TcpState;

/// Longest wait for a resolver: twice the five seconds after which it asks its next server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Addresses of a name that are looked at.
const MOST_ADDRESSES: usize = 16;

/// An address or a host name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Destination {
    Address(IpAddr),
    Name(String),
}

/// A text that is neither.
#[derive(Debug, thiserror::Error)]
#[error("give an address or a host name, such as 192.0.2.7, 2001:db8::7 or www.example.org")]
pub(crate) struct NotADestination;

impl FromStr for Destination {
    type Err = NotADestination;

    fn from_str(text: &str) -> Result<Self, NotADestination> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        // RFC 1123 section 2.1, and the underscore that is used all the same. A last label of digits alone is a broken address.
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let name = text.strip_suffix('.').unwrap_or(text);
        let last_is_a_number =
            name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if name.len() <= 253 && name.split('.').all(label) && !last_is_a_number {
            Ok(Self::Name(text.to_owned()))
        } else {
            Err(NotADestination)
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Destination {
    /// Its name, where it is not an address.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Address(_) => None,
            Self::Name(name) => Some(name),
        }
    }

    /// Its addresses in the resolver's order, each once, at most [`MOST_ADDRESSES`].
    pub(crate) async fn resolve(&self) -> Result<Vec<IpAddr>, String> {
        match self {
            Self::Address(address) => Ok(vec![*address]),
            Self::Name(name) => resolve(name, PATIENCE).await,
        }
    }
}

/// The addresses of a name, at least one. The error is a sentence.
pub(crate) async fn resolve(name: &str, patience: Duration) -> Result<Vec<IpAddr>, String> {
    let found = tokio::time::timeout(patience, tokio::net::lookup_host((name, 0))).await;
    let found = found.map_err(|_| {
        format!(
            "the name {name} was not resolved within {patience:?}: look at this host's resolver, or give an address"
        )
    })?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for socket in found.map_err(|error| format!("cannot resolve {name}: {error}"))? {
        let address = socket.ip().to_canonical();
        if addresses.len() < MOST_ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err(format!("{name} has no address")) } else { Ok(addresses) }
}

// Destinations of this host's connections: those that people ask about.

/// Most destinations that are returned.
const MOST: usize = 32;

/// Remote ends of the connections on the addresses `own`, in order. Connections in `TIME_WAIT` are among them.
pub(crate) fn open(own: &[IpAddr]) -> BTreeSet<IpAddr> {
    let (v4, v6) = (procfs::net::tcp().unwrap_or_default(), procfs::net::tcp6().unwrap_or_default());
    let all = v4.into_iter().chain(v6).filter(|socket| !matches!(socket.state, TcpState::Listen | TcpState::SynSent));
    let inside = |address: IpAddr| own.contains(&address);
    all.filter_map(|socket| {
        let remote = socket.remote_address.ip().to_canonical();
        (inside(socket.local_address.ip().to_canonical()) && !inside(remote)).then_some(remote)
    })
    .take(MOST)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_distinguished_and_the_rest_is_refused() {
        for text in ["192.0.2.7", "2001:db8::7"] {
            assert_eq!(text.parse::<Destination>().unwrap().name(), None);
        }
        for text in ["localhost", "www.example.org", "_dns.example.org.", "xn--bcher-kva.example", "7.example"] {
            assert_eq!(text.parse::<Destination>().unwrap().name(), Some(text));
        }
        let long = "a".repeat(64);
        for text in ["", ".", "192.0.2.300", "192.0.2", "2001:db8::g", "a..b", "-a.example", "a b", "http://a", &long] {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_is_resolved_here_and_an_unknown_one_is_an_error() {
        let addresses = "localhost".parse::<Destination>().unwrap().resolve().await.unwrap();
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
        // RFC 6761: no resolver may find it.
        let nobody = "nobody.invalid".parse::<Destination>().unwrap().resolve().await.unwrap_err();
        assert!(nobody.contains("nobody.invalid"), "{nobody}");
    }
}
