//! The tables `[[traffic.tunnel]]`: tunnels that are looked into.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::num::NonZeroU16;

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};
use spand_core::config::{Encapsulation, Tunnels};
use spand_core::types::TunnelKind as EngineKind;
use spand_proto::network::Network;
use strum::VariantArray;

use super::Traffic;

/// Tunnels that are looked into; each packet of one that is not may be compared with all of them.
const MAX_TUNNELS: usize = 32;
/// Prefixes of endpoints of one tunnel.
const MAX_ENDPOINTS: usize = 256;
/// No organisation's own endpoints lie in a shorter prefix: the largest blocks of IPv4 were /8, and of IPv6 none is /16.
const WIDE_IPV4_PREFIX_LEN: u8 = 8;
const WIDE_IPV6_PREFIX_LEN: u8 = 16;
/// Addresses of IPv6 that no router of the Internet forwards (RFC 4193, RFC 4291): endpoints may lie anywhere there.
const LOCAL_IPV6: [Ipv6Net; 2] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
];
/// What stands for the operator's endpoints in a line that is proposed: no network, so that it is not taken as it is.
const PLACEHOLDER: &str = "PREFIX";

/// A tunnel that is looked into.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnel {
    /// Its encapsulation.
    pub kind: TunnelKind,
    /// The UDP port on which its packets arrive, where that is not the encapsulation's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// Prefixes in which its endpoints lie: both outer addresses of a packet have to.
    pub endpoints: Vec<Network>,
}

/// A kind of tunnel by its name.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "&'static str")]
pub struct TunnelKind(EngineKind);

impl TryFrom<String> for TunnelKind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        kind_named(&name).map(Self)
    }
}

impl From<TunnelKind> for &'static str {
    fn from(kind: TunnelKind) -> Self {
        kind.0.name()
    }
}

/// The kind of this name.
///
/// # Errors
/// There is none: a sentence with the names that there are.
pub(crate) fn kind_named(name: &str) -> Result<EngineKind, String> {
    name.parse().map_err(|_| {
        let kinds: Vec<_> = EngineKind::VARIANTS.iter().map(|kind| kind.name()).collect();
        format!("`{name}` is no kind of tunnel: choose among {}", kinds.join(", "))
    })
}

impl From<&Tunnel> for Encapsulation {
    fn from(tunnel: &Tunnel) -> Self {
        let kind = tunnel.kind.0;
        tunnel.port.map_or_else(|| kind.into(), |port| (kind, port.get()).into())
    }
}

/// An entry of `traffic.tunnel` for tunnels of `kind`, to be completed.
pub(crate) fn proposed(kind: EngineKind) -> String {
    format!("{{ kind = \"{}\", endpoints = [\"{PLACEHOLDER}\"] }}", kind.name())
}

/// The line of `[traffic]` with such entries. One line, so that it may take the place of another one anywhere in the section.
pub(crate) fn proposed_line(kinds: impl IntoIterator<Item = EngineKind>) -> String {
    let entries: Vec<String> = kinds.into_iter().map(proposed).collect();
    format!("tunnel = [{}]", entries.join(", "))
}

impl Traffic {
    /// The tunnels, as the engine takes them.
    pub(super) fn engine_tunnels(&self) -> Tunnels {
        let prefixes = |tunnel: &Tunnel| tunnel.endpoints.iter().map(|network| network.prefix()).collect::<Vec<_>>();
        self.tunnel.iter().fold(Tunnels::NONE, |all, tunnel| all.between(tunnel, &prefixes(tunnel)))
    }

    /// The first contradiction, as a sentence.
    pub(super) fn check_tunnels(&self) -> Result<(), String> {
        if let Some(kinds) = &self.tunnels {
            return Err(outdated(kinds));
        }
        if self.tunnel.len() > MAX_TUNNELS {
            let count = self.tunnel.len();
            return Err(format!(
                "traffic.tunnel has {count} entries: at most {MAX_TUNNELS}; endpoints of the same fabric go in one entry"
            ));
        }
        for Tunnel { kind, port, endpoints } in &self.tunnel {
            let another = self.tunnel.iter().find(|one| port.is_some() && one.port == *port && one.kind != *kind);
            if let (Some(another), Some(port)) = (another, port) {
                let [one, other] = [*kind, another.kind].map(|kind| kind.0.name());
                return Err(format!(
                    "traffic.tunnel names UDP port {port} for {one} and for {other}: a port is one kind's, so remove one of the entries"
                ));
            }
            let kind = kind.0.name();
            if endpoints.is_empty() {
                return Err(format!(
                    "traffic.tunnel of kind {kind} names no endpoints: list the prefixes of both its ends, or remove the entry"
                ));
            }
            if endpoints.len() > MAX_ENDPOINTS {
                let count = endpoints.len();
                return Err(format!(
                    "traffic.tunnel of kind {kind} names {count} endpoints: at most {MAX_ENDPOINTS} prefixes, so name shorter ones"
                ));
            }
        }
        Ok(())
    }

    /// Endpoints that let more in than one's own: a sentence for each kind.
    pub fn wide_tunnels(&self) -> Vec<String> {
        let wide = |tunnel: &Tunnel| {
            let prefixes: Vec<IpNet> = tunnel.endpoints.iter().map(|network| network.prefix()).collect();
            let wide = IpNet::aggregate(&prefixes).into_iter().find(is_wide)?;
            let kind = tunnel.kind.0.name();
            Some(format!(
                "traffic.tunnel of kind {kind} takes packets between any addresses of {wide}: anyone who can send from there past \
                 the mirror port can write any connection, and with it estimates"
            ))
        };
        self.tunnel.iter().filter_map(wide).collect()
    }
}

fn is_wide(prefix: &IpNet) -> bool {
    match prefix {
        IpNet::V4(prefix) => prefix.prefix_len() < WIDE_IPV4_PREFIX_LEN,
        IpNet::V6(prefix) => {
            prefix.prefix_len() < WIDE_IPV6_PREFIX_LEN && !LOCAL_IPV6.iter().any(|local| local.contains(prefix))
        }
    }
}

/// The option of this name took tunnels from anyone.
fn outdated(kinds: &[TunnelKind]) -> String {
    let kinds: BTreeSet<TunnelKind> = kinds.iter().copied().collect();
    if kinds.is_empty() {
        return "traffic.tunnels is no option any more: remove the line, no tunnel is looked into without a traffic.tunnel"
            .to_owned();
    }
    let line = proposed_line(kinds.into_iter().map(|kind| kind.0));
    format!(
        "traffic.tunnels is no option any more, since tunnels of anyone were taken for the mirror's: remove the line where no \
         mirror or fabric of yours wraps packets, else write in its place: {line} with the prefixes of both ends of your own \
         tunnels for {PLACEHOLDER}"
    )
}
