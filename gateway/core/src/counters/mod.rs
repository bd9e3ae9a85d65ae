//! What the engine saw, and every thing it ignored, by a bounded reason.

mod ignored;
mod other_protocol;

use strum::VariantArray;

pub use self::ignored::Ignored;
use crate::types::Flows;

pub use self::other_protocol::{Content, OTHER_PROTOCOLS, OtherProtocol, ProtocolNumber};

/// Takes the struct of counters as it is to be; writes with it what every counter takes part in, so that none is left out.
macro_rules! counted {
    (
        $(#[$of_all:meta])*
        pub struct $counters:ident {
            $($(#[$of_one:meta])* pub $name:ident: u64,)+
        }
    ) => {
        $(#[$of_all])*
        pub struct $counters {
            $($(#[$of_one])* pub $name: u64,)+
            ignored: [u64; Ignored::VARIANTS.len()],
            other_protocols: [u64; OTHER_PROTOCOLS.len()],
        }

        impl Default for $counters {
            fn default() -> Self {
                Self {
                    $($name: 0,)+
                    ignored: [0; Ignored::VARIANTS.len()],
                    other_protocols: [0; OTHER_PROTOCOLS.len()],
                }
            }
        }

        impl $counters {
            /// Every count but those of ignored things, with its stable name, in the order of declaration.
            pub fn named(&self) -> [(&'static str, u64); [$(stringify!($name)),+].len()] {
                [$((stringify!($name), self.$name)),+]
            }

            /// Adds another engine's counts (one engine per shard).
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
                let counts = self.ignored.iter_mut().chain(&mut self.other_protocols);
                for (count, more) in counts.zip(other.ignored.iter().chain(&other.other_protocols)) {
                    *count += more;
                }
            }
        }
    };
}

counted! {
    /// Counters of an engine; they only rise.
    #[derive(Clone, Debug, Eq, PartialEq)]
    pub struct Counters {
        /// Frames handed in.
        pub frames: u64,
        /// Bytes of them on the wire.
        pub wire_bytes: u64,
        /// TCP segments among them.
        pub segments: u64,
        /// Connections seen.
        pub connections: u64,
        /// Connections that closed (FIN both ways, RST) or were idle too long.
        pub connections_ended: u64,
        /// Connections that had to go because the table was full.
        pub connections_evicted: u64,
        /// Of them, those that were established: they may still be alive.
        pub established_evicted: u64,
        /// Connections whose start was not seen.
        pub connections_midstream: u64,
        /// Connections of which only one direction was seen, counted at their end.
        pub connections_one_sided: u64,
        /// Networks that had to go because the table was full.
        pub networks_evicted: u64,
        /// Samples that were added to another connection's place because their bucket had no room for one more.
        pub contributions_shared: u64,
        /// Round-trip times at which an address lost its place to another because their bucket had no room for one more.
        pub rtts_shared: u64,
        /// Reports of senders under way that were only added to their network's sums because older ones had all places.
        pub live_shared: u64,
        /// Window samples taken.
        pub window_samples: u64,
        /// Lower bounds taken.
        pub lower_bounds: u64,
        /// Round-trip time samples taken.
        pub rtt_samples: u64,
        /// Loss events recognised (one per window).
        pub loss_events: u64,
        /// Retransmission timeouts recognised.
        pub timeouts: u64,
        /// Imminent starts announced.
        pub imminent_starts: u64,
        /// Sizes of whole transfers taken for their service.
        pub service_sizes: u64,
        /// Segments with new data in which their sender reported its window, where the option is read.
        pub window_options: u64,
        /// Window samples that took the reported window of the sender.
        pub window_option_samples: u64,
        /// Payload bytes towards networks, as handed over to them.
        pub traffic_out_bytes: u64,
        /// Of them, retransmitted ones.
        pub traffic_out_retransmitted_bytes: u64,
        /// Of them, those towards networks that had an estimate.
        pub traffic_out_covered_bytes: u64,
        /// TCP segments towards networks.
        pub traffic_out_packets: u64,
        /// Payload bytes from networks.
        pub traffic_in_bytes: u64,
        /// Of them, retransmitted ones.
        pub traffic_in_retransmitted_bytes: u64,
        /// TCP segments from networks.
        pub traffic_in_packets: u64,
    }
}

impl Counters {
    /// Counts what passed to and from a network, which has an estimate or not.
    pub(crate) fn count_traffic(&mut self, Flows { outbound, inbound }: &Flows, covered: bool) {
        self.traffic_out_bytes += outbound.bytes;
        self.traffic_out_retransmitted_bytes += outbound.retransmitted_bytes;
        self.traffic_out_covered_bytes += if covered { outbound.bytes } else { 0 };
        self.traffic_out_packets += outbound.packets;
        self.traffic_in_bytes += inbound.bytes;
        self.traffic_in_retransmitted_bytes += inbound.retransmitted_bytes;
        self.traffic_in_packets += inbound.packets;
    }

    /// Counts one ignored thing.
    pub fn ignore(&mut self, reason: Ignored) {
        if let Some(count) = self.ignored.get_mut(usize::from(reason as u8)) {
            *count += 1;
        }
    }

    /// How often `reason` occurred.
    pub fn ignored(&self, reason: Ignored) -> u64 {
        self.ignored.get(usize::from(reason as u8)).copied().unwrap_or(0)
    }

    /// Counts a frame without IP or TCP by the first of these numbers that is well known.
    pub(crate) fn count_other_protocol(&mut self, numbers: &[ProtocolNumber]) {
        let find = |number| OTHER_PROTOCOLS.binary_search_by_key(number, |protocol| protocol.number).ok();
        if let Some(count) = numbers.iter().find_map(find).and_then(|index| self.other_protocols.get_mut(index)) {
            *count += 1;
        }
    }

    /// How many frames that were ignored as neither IP nor TCP held which well-known protocol.
    pub fn other_protocols(&self) -> impl Iterator<Item = (&'static OtherProtocol, u64)> {
        OTHER_PROTOCOLS.iter().zip(self.other_protocols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_name_and_a_meaning_in_one_line() {
        let mut counters = Counters::default();
        for (index, &reason) in Ignored::VARIANTS.iter().enumerate() {
            assert_eq!(reason as usize, index, "{} is out of order", reason.name());
            assert_eq!(reason.meaning().lines().count(), 1, "{}", reason.name());
            counters.ignore(reason);
        }
        assert!(Ignored::VARIANTS.iter().all(|reason| counters.ignored(*reason) == 1));
        let mut names: Vec<_> = Ignored::VARIANTS.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Ignored::VARIANTS.len());
    }

    #[test]
    fn every_protocol_is_found_and_counted_by_its_number() {
        let mut counters = Counters::default();
        for (n, protocol) in OTHER_PROTOCOLS.iter().enumerate() {
            (0..=n).for_each(|_| counters.count_other_protocol(&[ProtocolNumber::EtherType(0x0800), protocol.number]));
        }
        for ((protocol, count), n) in counters.other_protocols().zip(1..) {
            assert_eq!(count, n, "{protocol:?}");
        }
        let before = counters.clone();
        counters.count_other_protocol(&[ProtocolNumber::UdpPort(4789), ProtocolNumber::EtherType(0x0800)]);
        assert_eq!(counters, before);
        counters.add(&before);
        assert!(counters.other_protocols().zip(before.other_protocols()).all(|(sum, one)| sum.1 == 2 * one.1));
    }
}
