//! Which tunnels are looked into, and between which endpoints.
//!
//! What a tunnel carries counts as if it had been seen on the wire, both directions of it. Anyone who can send a packet past
//! the mirror port could so write whole connections of others, from one address of their own. So a tunnel is looked into
//! only where its outer addresses, both of them, are those of endpoints that the operator named.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::joint::JointPrefixSet;

use crate::counters::Ignored;
use crate::types::TunnelKind;

impl TunnelKind {
    /// The reason for which a packet of this kind is ignored where no tunnel of the kind is configured.
    pub const fn not_configured(self) -> Ignored {
        match self {
            Self::Gre => Ignored::TunnelGreNotConfigured,
            Self::Vxlan => Ignored::TunnelVxlanNotConfigured,
            Self::Geneve => Ignored::TunnelGeneveNotConfigured,
            Self::Gtp => Ignored::TunnelGtpNotConfigured,
            Self::IpInIp => Ignored::TunnelIpInIpNotConfigured,
            Self::Tzsp => Ignored::TunnelTzspNotConfigured,
        }
    }

    /// The reason where some are configured, but none with both of its outer addresses.
    pub const fn unknown_endpoint(self) -> Ignored {
        match self {
            Self::Gre => Ignored::TunnelGreUnknownEndpoint,
            Self::Vxlan => Ignored::TunnelVxlanUnknownEndpoint,
            Self::Geneve => Ignored::TunnelGeneveUnknownEndpoint,
            Self::Gtp => Ignored::TunnelGtpUnknownEndpoint,
            Self::IpInIp => Ignored::TunnelIpInIpUnknownEndpoint,
            Self::Tzsp => Ignored::TunnelTzspUnknownEndpoint,
        }
    }
}

/// A kind of tunnel, and where its packets are found.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Encapsulation {
    /// The kind.
    pub(crate) kind: TunnelKind,
    /// The UDP destination port, where it is another one than the kind's own.
    port: Option<u16>,
}

impl From<TunnelKind> for Encapsulation {
    fn from(kind: TunnelKind) -> Self {
        Self { kind, port: None }
    }
}

impl From<(TunnelKind, u16)> for Encapsulation {
    fn from((kind, port): (TunnelKind, u16)) -> Self {
        Self { kind, port: (TunnelKind::of_port(port) != Some(kind)).then_some(port) }
    }
}

/// The tunnels that are looked into. Default: none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tunnels {
    /// Every kind where it has its own place, between any endpoints.
    all: bool,
    /// In order of the encapsulations. Several sets of endpoints of one are alternatives.
    taken: Vec<(Encapsulation, JointPrefixSet<IpNet>)>,
}

impl Tunnels {
    /// None of them: the outermost IP header names the connection's ends.
    pub const NONE: Self = Self { all: false, taken: Vec::new() };
    /// Every kind on its own ports, between any endpoints. For trusted captures; never for a mirror port.
    pub const ALL: Self = Self { all: true, taken: Vec::new() };

    /// Also decapsulates every kind on its own ports, between any endpoints.
    #[must_use]
    pub fn and_all(mut self) -> Self {
        self.all = true;
        self
    }

    /// Also decapsulates every such tunnel, between any endpoints.
    #[must_use]
    pub fn from_anyone(self, tunnel: impl Into<Encapsulation>) -> Self {
        self.between(tunnel, &[Ipv4Net::default().into(), Ipv6Net::default().into()])
    }

    /// Looks into such tunnels between `endpoints` too: both outer addresses have to lie in them. Several sets of one
    /// encapsulation are alternatives; an address of one and an address of another are no pair.
    #[must_use]
    pub fn between(mut self, tunnel: impl Into<Encapsulation>, endpoints: &[IpNet]) -> Self {
        self.taken.push((tunnel.into(), endpoints.iter().copied().collect()));
        self.taken.sort_by_key(|(one, _)| *one);
        self
    }

    /// What datagrams to `port` carry: what is configured for it, else the kind whose own port it is.
    pub(crate) fn on_port(&self, port: u16) -> Option<Encapsulation> {
        let configured = self.taken.iter().map(|(one, _)| *one).find(|one| one.port == Some(port));
        configured.or_else(|| TunnelKind::of_port(port).map(Encapsulation::from))
    }

    /// Whether a packet of such a tunnel with these outer addresses is looked into.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub(crate) fn admit(&self, tunnel: Encapsulation, source: IpAddr, destination: IpAddr) -> Result<(), Ignored> {
        if self.all && tunnel.port.is_none() {
            return Ok(());
        }
        let mut taken = self.taken.iter().filter(|(one, _)| *one == tunnel).peekable();
        if taken.peek().is_none() {
            return Err(tunnel.kind.not_configured());
        }
        let ends = [source, destination].map(IpNet::from);
        let admits = taken.any(|(_, endpoints)| ends.iter().all(|end| endpoints.get_lpm(end).is_some()));
        if admits { Ok(()) } else { Err(tunnel.kind.unknown_endpoint()) }
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    fn endpoints(prefixes: &[&str]) -> Vec<IpNet> {
        prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect()
    }

    fn admit(tunnels: &Tunnels, source: &str, destination: &str) -> Result<(), Ignored> {
        tunnels.admit(TunnelKind::Vxlan.into(), source.parse().unwrap(), destination.parse().unwrap())
    }

    #[test]
    fn both_ends_have_to_lie_in_one_set_of_the_kind() {
        let fabric = endpoints(&["192.0.2.0/25", "192.0.2.128/25", "198.51.100.7/32", "2001:db8:1::/48"]);
        let mirror = endpoints(&["203.0.113.9/32", "203.0.113.10/32"]);
        let tunnels = Tunnels::NONE.between(TunnelKind::Vxlan, &fabric).between(TunnelKind::Vxlan, &mirror);
        for (source, destination) in [
            ("192.0.2.0", "192.0.2.255"),
            ("192.0.2.128", "198.51.100.7"),
            ("198.51.100.7", "2001:db8:1:ffff:ffff:ffff:ffff:ffff"),
            ("203.0.113.9", "203.0.113.10"),
        ] {
            assert_eq!(admit(&tunnels, source, destination), Ok(()), "{source} {destination}");
            assert_eq!(admit(&tunnels, destination, source), Ok(()), "{destination} {source}");
        }
        for (source, destination) in [
            ("192.0.1.255", "192.0.2.1"),
            ("192.0.3.0", "192.0.2.1"),
            ("198.51.100.6", "198.51.100.7"),
            ("198.51.100.8", "198.51.100.7"),
            ("2001:db8:2::", "2001:db8:1::"),
            ("203.0.113.9", "192.0.2.1"),
            ("0.0.0.0", "255.255.255.255"),
            ("::", "::ffff:192.0.2.1"),
        ] {
            for (source, destination) in [(source, destination), (destination, source)] {
                let refused = Err(Ignored::TunnelVxlanUnknownEndpoint);
                assert_eq!(admit(&tunnels, source, destination), refused, "{source} {destination}");
            }
        }
        let one = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(tunnels.admit(TunnelKind::Gre.into(), one, one), Err(Ignored::TunnelGreNotConfigured));
    }

    #[test]
    fn every_kind_has_reasons_and_a_name_of_its_own_and_a_whole_family_is_that_family_alone() {
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), "2001:db8::1".parse().unwrap());
        for kind in TunnelKind::VARIANTS.iter().copied() {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.not_configured().name(), format!("tunnel_{}_not_configured", kind.name()));
            assert_eq!(kind.unknown_endpoint().name(), format!("tunnel_{}_unknown_endpoint", kind.name()));
            assert_eq!(Tunnels::NONE.admit(kind.into(), one, one), Err(kind.not_configured()));
            assert_eq!(Tunnels::ALL.admit(kind.into(), one, other), Ok(()));
            assert_eq!(Tunnels::NONE.from_anyone(kind).admit(kind.into(), one, other), Ok(()));
            let family = Tunnels::NONE.between(kind, &endpoints(&["0.0.0.0/0"]));
            assert_eq!(family.admit(kind.into(), one, one), Ok(()));
            assert_eq!(family.admit(kind.into(), one, other), Err(kind.unknown_endpoint()));
            let nobody = Tunnels::NONE.between(kind, &[]);
            assert_eq!(nobody.admit(kind.into(), one, one), Err(kind.unknown_endpoint()));
        }
    }

    #[test]
    fn a_port_of_one_s_own_is_the_kind_s_that_it_is_configured_for() {
        let one = IpAddr::from([192, 0, 2, 1]);
        let prefix = endpoints(&["192.0.2.0/24"]);
        let tunnels = Tunnels::NONE.between((TunnelKind::Vxlan, 8472), &prefix).between(TunnelKind::Gtp, &prefix);
        let on = |port| tunnels.on_port(port).map(|tunnel| (tunnel.kind, tunnels.admit(tunnel, one, one)));
        assert_eq!(on(8472), Some((TunnelKind::Vxlan, Ok(()))));
        assert_eq!(on(4789), Some((TunnelKind::Vxlan, Err(Ignored::TunnelVxlanNotConfigured))), "not this one");
        assert_eq!(on(2152), Some((TunnelKind::Gtp, Ok(()))));
        assert_eq!(on(8473), None);
        let far = "203.0.113.1".parse().unwrap();
        assert_eq!(tunnels.admit((TunnelKind::Vxlan, 8472).into(), one, far), Err(Ignored::TunnelVxlanUnknownEndpoint));
        let own = Tunnels::NONE.between((TunnelKind::Vxlan, 4789), &prefix);
        assert_eq!(own, Tunnels::NONE.between(TunnelKind::Vxlan, &prefix), "its own port is no other");
        let taken = Tunnels::NONE.between((TunnelKind::Vxlan, 6081), &prefix);
        assert_eq!(taken.on_port(6081).map(|tunnel| tunnel.kind), Some(TunnelKind::Vxlan));
        assert_eq!(Tunnels::ALL.on_port(8472), None);
    }
}
