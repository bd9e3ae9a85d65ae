//! Which well-known protocols packets were that are neither IP nor TCP, and the way out, in sentences. Pure.

use std::fmt;

use spand_core::counters::{Content, Ignored, OtherProtocol, ProtocolNumber};

/// A protocol is named from this share of all packets on.
const WORTH_NAMING_PERCENT: f64 = 1.0;

/// A protocol that is worth naming.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) protocol: &'static OtherProtocol,
    /// Its share of what was ignored for the same reason, in percent.
    of_reason: f64,
    /// Its share of all packets.
    of_all: f64,
}

impl Named {
    /// Those of `counts` that are worth naming among this many `packets`, most packets first.
    pub(crate) fn of(
        packets: u64,
        ignored: impl Fn(Ignored) -> u64,
        counts: impl IntoIterator<Item = (&'static OtherProtocol, u64)>,
    ) -> Vec<Self> {
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let mut named: Vec<Self> = counts
            .into_iter()
            .map(|(protocol, count)| Self {
                protocol,
                of_reason: percent(count, ignored(protocol.number.reason())),
                of_all: percent(count, packets),
            })
            .filter(|named| named.of_all >= WORTH_NAMING_PERCENT)
            .collect();
        named.sort_by(|one, other| other.of_all.total_cmp(&one.of_all));
        named
    }

    /// The UDP port, 0 where it is none.
    pub(crate) fn port(&self) -> u16 {
        if let ProtocolNumber::UdpPort(port) = self.protocol.number { port } else { 0 }
    }

    /// What to do where what is wanted is in it.
    pub(crate) fn advice(&self) -> Option<String> {
        Some(match self.protocol.content {
            Content::Own => return None,
            Content::Tunnel(kind) => format!(
                "if it is your mirror's or fabric's, add [[traffic.tunnel]] with kind = \"{}\", port = {} and its endpoints",
                kind.name(),
                self.port()
            ),
            Content::Packets => "packets in it are not decapsulated: mirror them where they are not wrapped".to_owned(),
            Content::Encrypted => "it is encrypted: mirror packets where they are not".to_owned(),
            Content::Summaries => "these are summaries of traffic: mirror the packets themselves".to_owned(),
        })
    }

    /// The sentence with what to do.
    pub(crate) fn with_advice(&self) -> String {
        self.advice().map_or_else(|| self.to_string(), |advice| format!("{self}: {advice}"))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, of_reason, of_all } = self;
        write!(f, "{}: {of_reason:.0} % is ", protocol.number.reason().name())?;
        match protocol.number {
            ProtocolNumber::EtherType(number) => write!(f, "EtherType 0x{number:04x}"),
            ProtocolNumber::IpProtocol(number) => write!(f, "IP protocol {number}"),
            ProtocolNumber::UdpPort(number) => write!(f, "UDP port {number}"),
            ProtocolNumber::LinkType(number) => write!(f, "link type {number}"),
        }?;
        write!(f, " ({}), {of_all:.0} % of all packets", protocol.name)
    }
}

#[cfg(test)]
mod tests {
    use spand_core::counters::OTHER_PROTOCOLS;

    use super::*;

    fn counts(of: &[(ProtocolNumber, u64)]) -> Vec<(&'static OtherProtocol, u64)> {
        let find = |number| OTHER_PROTOCOLS.iter().find(|protocol| protocol.number == number).unwrap();
        of.iter().map(|(place, count)| (find(*place), *count)).collect()
    }

    #[test]
    fn protocols_are_named_with_their_share_and_the_way_out() {
        let ignored = |reason| if reason == Ignored::NotTcp { 500 } else { 40 };
        let counts = counts(&[
            (ProtocolNumber::EtherType(0x88e5), 30),
            (ProtocolNumber::EtherType(0x88cc), 9),
            (ProtocolNumber::UdpPort(443), 20),
            (ProtocolNumber::UdpPort(8472), 465),
        ]);
        let named = Named::of(1_000, ignored, counts);
        let lines: Vec<_> = named.iter().map(Named::with_advice).collect();
        assert_eq!(
            lines,
            [
                "not_tcp: 93 % is UDP port 8472 (VXLAN on Linux's own default port), 46 % of all packets: if it is your mirror's or \
                 fabric's, add [[traffic.tunnel]] with kind = \"vxlan\", port = 8472 and its endpoints",
                "not_ip: 75 % is EtherType 0x88e5 (MACsec), 3 % of all packets: it is encrypted: mirror packets where they are not",
                "not_tcp: 4 % is UDP port 443 (QUIC), 2 % of all packets",
            ]
        );
        let with_advice: Vec<_> = named.iter().map(|named| named.advice().is_some()).collect();
        assert_eq!(with_advice, [true, true, false]);
    }
}
