//! What starts are made of, as the administrator chose.

use std::collections::BTreeMap;

use spand_proto::network::Network;
use spand_proto::start::Shape;

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
    use super::*;

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
