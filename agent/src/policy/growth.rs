//! Which rule a connection's window grows by in slow start, as the administrator chose.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use spand_proto::growth::Growth;
use spand_proto::network::Network;
use spand_proto::start::Shape;

/// The rules: the longest prefix that covers the remote address, then the host's own address and port, then the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Growths {
    /// For connections that nothing else names.
    pub by_default: Growth,
    /// By remote network.
    pub prefixes: BTreeMap<Network, Growth>,
    /// By the host's own address and port.
    pub services: BTreeMap<SocketAddr, Growth>,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GrowthSource {
    /// `[start]`.
    Default,
    /// The entry of `[[start.for]]` with this prefix.
    Prefix(Network),
    /// That with this service.
    Service(SocketAddr),
}

impl Growths {
    /// Whether no connection has another rule than the kernel's own.
    pub fn is_standard(&self) -> bool {
        self.all().all(|(_, growth)| growth == Growth::Standard)
    }

    /// Every choice: the default, then prefixes, then services.
    pub fn all(&self) -> impl Iterator<Item = (GrowthSource, Growth)> {
        let prefixes = self.prefixes.iter().map(|(prefix, growth)| (GrowthSource::Prefix(*prefix), *growth));
        let services = self.services.iter().map(|(service, growth)| (GrowthSource::Service(*service), *growth));
        std::iter::once((GrowthSource::Default, self.by_default)).chain(prefixes).chain(services)
    }

    /// The rule for connections to `remote`, but for those of services that have one of their own, and where it comes from.
    pub fn of(&self, remote: IpAddr) -> (GrowthSource, Growth) {
        let covering = self.prefixes.iter().filter(|(prefix, _)| prefix.contains(remote));
        let longest = covering.max_by_key(|(prefix, _)| prefix.prefix().prefix_len());
        longest.map_or((GrowthSource::Default, self.by_default), |(prefix, growth)| {
            (GrowthSource::Prefix(*prefix), *growth)
        })
    }
}

/// A rule in words.
pub fn growth_words(growth: Growth) -> String {
    match growth {
        Growth::Standard => "standard".to_owned(),
        Growth::Dbc { dmax } => format!("dbc (dmax {dmax})"),
        Growth::Burst { f } => format!("burst (f {f})"),
    }
}

impl fmt::Display for GrowthSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("start.growth"),
            Self::Prefix(prefix) => write!(f, "start.for {prefix}"),
            Self::Service(service) => write!(f, "start.for {service}"),
        }
    }
}

// What starts are made of, as the administrator chose.

/// The shapes: the longest prefix that covers the network, then the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shapes {
    /// For networks that no prefix covers.
    pub by_default: Shape,
    /// By remote network.
    pub prefixes: BTreeMap<Network, Shape>,
}

impl Shapes {
    /// Whether every start is the share's, paced.
    pub fn is_standard(&self) -> bool {
        self.by_default == Shape::Paced && self.prefixes.values().all(|shape| *shape == Shape::Paced)
    }

    /// The shape of starts to a network.
    pub fn of(&self, network: Network) -> Shape {
        let covers = |prefix: &Network| {
            prefix.prefix().prefix_len() <= network.prefix().prefix_len() && prefix.contains(network.prefix().addr())
        };
        let covering = self.prefixes.iter().filter(|(prefix, _)| covers(prefix));
        covering.max_by_key(|(prefix, _)| prefix.prefix().prefix_len()).map_or(self.by_default, |(_, shape)| *shape)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn the_longest_prefix_wins_and_one_family_says_nothing_about_the_other() {
        let dbc = |dmax| Growth::Dbc { dmax: NonZeroU32::new(dmax).unwrap() };
        let mut growths = Growths::default();
        assert!(growths.is_standard());
        for (prefix, growth) in [
            ("192.0.2.0/24", dbc(2)),
            ("192.0.2.128/25", dbc(3)),
            ("192.0.2.129/32", Growth::Standard),
            ("::/0", dbc(4)),
        ] {
            growths.prefixes.insert(prefix.parse().unwrap(), growth);
        }
        assert!(!growths.is_standard());
        let of = |remote: &str| growths.of(remote.parse().unwrap()).1;
        assert_eq!([of("192.0.2.1"), of("192.0.2.128"), of("192.0.2.129")], [dbc(2), dbc(3), Growth::Standard]);
        assert_eq!([of("198.51.100.1"), of("2001:db8::1")], [Growth::Standard, dbc(4)]);
        assert_eq!(growths.of("198.51.100.1".parse().unwrap()).0, GrowthSource::Default);
    }

    #[test]
    fn the_longest_prefix_that_covers_the_whole_network_decides() {
        let prefix = |text: &str| text.parse::<Network>().unwrap();
        let shapes = Shapes {
            by_default: Shape::Threshold,
            prefixes: BTreeMap::from([
                (prefix("10.0.0.0/8"), Shape::Jump),
                (prefix("10.1.0.0/16"), Shape::Paced),
                (prefix("10.2.3.128/25"), Shape::Measured),
            ]),
        };
        for (network, shape) in [
            ("10.9.9.0/24", Shape::Jump),
            ("10.1.9.0/24", Shape::Paced),
            ("10.2.3.0/24", Shape::Jump),
            ("10.2.3.129/32", Shape::Measured),
            ("192.0.2.0/24", Shape::Threshold),
            ("2001:db8::/48", Shape::Threshold),
        ] {
            assert_eq!(shapes.of(prefix(network)), shape, "{network}");
        }
        assert!(!shapes.is_standard() && Shapes::default().is_standard());
    }
}
