//! Which tunnels are looked into, and between which endpoints.
//!
//! What a tunnel carries counts as if it had been seen on the wire, both directions of it. Anyone who can send a packet past
//! the mirror port could so write whole connections of others, from one address of their own. So a tunnel is looked into
//! only where its outer addresses, both of them, are those of endpoints that the operator named.

use std::net::IpAddr;

use ipnet::IpNet;
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::counters::Ignored;

/// An encapsulation that carries whole packets. VLAN tags, MPLS and PPPoE on the link are none: no router forwards them.
#[derive(Clone, Copy, Debug, EnumString, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TunnelKind {
    /// GRE (RFC 2784) on IP or on UDP port 4754 (RFC 8086), with IP, Ethernet, MPLS, PPP or ERSPAN inside; MPLS in IP
    /// (RFC 4023).
    Gre,
    /// VXLAN (RFC 7348) on UDP port 4789.
    Vxlan,
    /// Geneve (RFC 8926) on UDP port 6081.
    Geneve,
    /// GTP-U (3GPP TS 29.281) on UDP port 2152.
    Gtp,
    /// IP in IP and IPv6 in IPv4 (RFC 2003, RFC 4213); IPv6 in UDP by Teredo (RFC 4380, port 3544) and AYIYA (port 5072).
    IpInIp,
}

impl TunnelKind {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The reason for which a packet of this kind is ignored where no tunnel of the kind is configured.
    pub const fn not_configured(self) -> Ignored {
        match self {
            Self::Gre => Ignored::TunnelGreNotConfigured,
            Self::Vxlan => Ignored::TunnelVxlanNotConfigured,
            Self::Geneve => Ignored::TunnelGeneveNotConfigured,
            Self::Gtp => Ignored::TunnelGtpNotConfigured,
            Self::IpInIp => Ignored::TunnelIpInIpNotConfigured,
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
        }
    }
}

/// The tunnels that are looked into. Default: none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tunnels {
    gre: Taken,
    vxlan: Taken,
    geneve: Taken,
    gtp: Taken,
    ip_in_ip: Taken,
}

/// Which packets of one kind are looked into.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
enum Taken {
    #[default]
    None,
    /// Whatever their outer addresses are.
    FromAnyone,
    /// Those with both outer addresses in one of these sets.
    Between(Vec<Endpoints>),
}

impl Tunnels {
    /// None of them: the outermost IP header names the connection's ends.
    pub const NONE: Self =
        Self { gre: Taken::None, vxlan: Taken::None, geneve: Taken::None, gtp: Taken::None, ip_in_ip: Taken::None };
    /// Every kind, between any endpoints. For trusted captures; never for a mirror port.
    pub const ALL: Self = Self {
        gre: Taken::FromAnyone,
        vxlan: Taken::FromAnyone,
        geneve: Taken::FromAnyone,
        gtp: Taken::FromAnyone,
        ip_in_ip: Taken::FromAnyone,
    };

    /// Also decapsulates every tunnel of `kind`, between any endpoints.
    #[must_use]
    pub fn from_anyone(mut self, kind: TunnelKind) -> Self {
        *self.kind_mut(kind) = Taken::FromAnyone;
        self
    }

    /// Looks into tunnels of `kind` between `endpoints` too: both outer addresses have to lie in them. Several sets of one
    /// kind are alternatives; an address of one and an address of another are no pair.
    #[must_use]
    pub fn between(mut self, kind: TunnelKind, endpoints: &[IpNet]) -> Self {
        let endpoints = Endpoints::new(endpoints);
        match self.kind_mut(kind) {
            taken @ Taken::None => *taken = Taken::Between(vec![endpoints]),
            Taken::Between(all) => all.push(endpoints),
            Taken::FromAnyone => {}
        }
        self
    }

    /// Whether a packet of `kind` with these outer addresses is looked into.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub(crate) fn admit(&self, kind: TunnelKind, source: IpAddr, destination: IpAddr) -> Result<(), Ignored> {
        match self.kind(kind) {
            Taken::FromAnyone => Ok(()),
            Taken::Between(all) if all.iter().any(|one| one.contains(source) && one.contains(destination)) => Ok(()),
            Taken::Between(_) => Err(kind.unknown_endpoint()),
            Taken::None => Err(kind.not_configured()),
        }
    }

    const fn kind(&self, kind: TunnelKind) -> &Taken {
        match kind {
            TunnelKind::Gre => &self.gre,
            TunnelKind::Vxlan => &self.vxlan,
            TunnelKind::Geneve => &self.geneve,
            TunnelKind::Gtp => &self.gtp,
            TunnelKind::IpInIp => &self.ip_in_ip,
        }
    }

    const fn kind_mut(&mut self, kind: TunnelKind) -> &mut Taken {
        match kind {
            TunnelKind::Gre => &mut self.gre,
            TunnelKind::Vxlan => &mut self.vxlan,
            TunnelKind::Geneve => &mut self.geneve,
            TunnelKind::Gtp => &mut self.gtp,
            TunnelKind::IpInIp => &mut self.ip_in_ip,
        }
    }
}

/// A set of addresses: disjoint ranges in order, not adjacent to each other.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Endpoints(Box<[(IpAddr, IpAddr)]>);

impl Endpoints {
    fn new(prefixes: &[IpNet]) -> Self {
        let mut ranges: Vec<_> = IpNet::aggregate(&prefixes.to_vec())
            .into_iter()
            .map(|prefix| (prefix.network(), prefix.broadcast()))
            .collect();
        ranges.sort_unstable();
        Self(ranges.into_boxed_slice())
    }

    fn contains(&self, address: IpAddr) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= address);
        after.checked_sub(1).and_then(|index| self.0.get(index)).is_some_and(|(_, last)| address <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(prefixes: &[&str]) -> Vec<IpNet> {
        prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect()
    }

    fn admit(tunnels: &Tunnels, source: &str, destination: &str) -> Result<(), Ignored> {
        tunnels.admit(TunnelKind::Vxlan, source.parse().unwrap(), destination.parse().unwrap())
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
        assert_eq!(tunnels.admit(TunnelKind::Gre, one, one), Err(Ignored::TunnelGreNotConfigured));
    }

    #[test]
    fn every_kind_has_reasons_and_a_name_of_its_own_and_a_whole_family_is_that_family_alone() {
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), "2001:db8::1".parse().unwrap());
        for kind in TunnelKind::VARIANTS.iter().copied() {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.not_configured().name(), format!("tunnel_{}_not_configured", kind.name()));
            assert_eq!(kind.unknown_endpoint().name(), format!("tunnel_{}_unknown_endpoint", kind.name()));
            assert_eq!(Tunnels::NONE.admit(kind, one, one), Err(kind.not_configured()));
            assert_eq!(Tunnels::ALL.admit(kind, one, other), Ok(()));
            assert_eq!(Tunnels::NONE.from_anyone(kind).admit(kind, one, other), Ok(()));
            let family = Tunnels::NONE.between(kind, &endpoints(&["0.0.0.0/0"]));
            assert_eq!(family.admit(kind, one, one), Ok(()));
            assert_eq!(family.admit(kind, one, other), Err(kind.unknown_endpoint()));
            let nobody = Tunnels::NONE.between(kind, &[]);
            assert_eq!(nobody.admit(kind, one, one), Err(kind.unknown_endpoint()));
        }
    }
}
