//! Conversations that one sender makes up: both directions of connections that never were, carried past the mirror port in
//! tunnels from a single address of its own.

use std::net::Ipv4Addr;

use spand_core::counters::{Counters, Ignored};
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::types::TunnelKind;
use spand_core::wire::Frame;
use spand_gateway::config::{Config, EngineOptions};
use spand_proto::units::Timestamp;
use strum::VariantArray;

use crate::trace::frame::{EPOCH_SECONDS, encode};
use crate::trace::packet::{Packet, Tuple};
use crate::trace::{TraceConfig, generate};

/// Who sends them, and to whom: an address of the Internet and one behind the mirror port.
pub const SENDER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 66);
/// Where they are sent to: any address that the mirror port shows packets to.
pub const TARGET: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 9);

/// How they are wrapped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, VariantArray)]
pub enum Wrapping {
    /// IP in GRE.
    Gre,
    /// IP in GRE in UDP.
    GreInUdp,
    /// Ethernet in ERSPAN type II.
    Erspan,
    /// IP in MPLS in IP.
    MplsInIp,
    /// Ethernet in VXLAN.
    Vxlan,
    /// Ethernet in Geneve.
    Geneve,
    /// IP in GTP-U.
    Gtp,
    /// IP in IP.
    IpInIp,
    /// Ethernet in TZSP.
    Tzsp,
}

impl Wrapping {
    /// Of which kind that is in the configuration.
    pub const fn kind(self) -> TunnelKind {
        match self {
            Self::Gre | Self::GreInUdp | Self::Erspan | Self::MplsInIp => TunnelKind::Gre,
            Self::Vxlan => TunnelKind::Vxlan,
            Self::Geneve => TunnelKind::Geneve,
            Self::Gtp => TunnelKind::Gtp,
            Self::IpInIp => TunnelKind::IpInIp,
            Self::Tzsp => TunnelKind::Tzsp,
        }
    }

    /// IP's protocol, the UDP port where there is one, and what stands before the inner packet or frame.
    const fn header(self) -> (u8, Option<u16>, &'static [u8]) {
        match self {
            Self::Gre => (47, None, &[0, 0, 8, 0]),
            Self::GreInUdp => (17, Some(4_754), &[0, 0, 8, 0]),
            Self::Erspan => (47, None, &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 1, 0, 1, 0, 0, 0, 0]),
            Self::MplsInIp => (137, None, &[0, 1, 1, 64]),
            Self::Vxlan => (17, Some(4_789), &[8, 0, 0, 0, 0, 0, 1, 0]),
            Self::Geneve => (17, Some(6_081), &[0, 0, 0x65, 0x58, 0, 0, 1, 0]),
            Self::Gtp => (17, Some(2_152), &[0x30, 255, 0, 0, 0, 0, 0, 1]),
            Self::IpInIp => (4, None, &[]),
            Self::Tzsp => (17, Some(37_008), &[1, 0, 0, 1, 1]),
        }
    }

    const fn carries_ethernet(self) -> bool {
        matches!(self, Self::Erspan | Self::Vxlan | Self::Geneve | Self::Tzsp)
    }

    /// Puts the Ethernet frame `inner`, of `wire_len` bytes on the wire, into a tunnel; gives the new length on the wire.
    fn wrap(self, inner: &[u8], wire_len: usize) -> (Vec<u8>, usize) {
        let (protocol, port, header) = self.header();
        let skipped = if self.carries_ethernet() { 0 } else { 14 };
        let mut payload = datagram_header(port);
        payload.extend(header);
        let carried = payload.len() + wire_len - skipped;
        payload.extend(inner.get(skipped..).unwrap_or_default());
        outer(protocol, &payload, carried)
    }
}

/// A datagram that is no tunnel's, of the same size: what the engine does with it is what it does without tunnels.
fn plain(wire_len: usize) -> (Vec<u8>, usize) {
    let mut payload = datagram_header(Some(443));
    payload.resize(64, 0);
    outer(17, &payload, wire_len - 34)
}

fn datagram_header(port: Option<u16>) -> Vec<u8> {
    port.map(|port| [[0xc0, 0x01], port.to_be_bytes(), [0, 0], [0, 0]].concat()).unwrap_or_default()
}

/// An Ethernet frame with an IPv4 packet of [`SENDER`], of whose payload only the first bytes are captured.
fn outer(protocol: u8, captured: &[u8], payload_len: usize) -> (Vec<u8>, usize) {
    let [high, low] = u16::try_from(20 + payload_len).unwrap_or(u16::MAX).to_be_bytes();
    let mut frame = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    frame.extend([0x45, 0, high, low, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend([SENDER.octets(), TARGET.octets()].concat());
    frame.extend(captured);
    (frame, 34 + payload_len)
}

/// The state and all output of a gateway's engine.
#[derive(Debug, PartialEq)]
pub struct Known {
    /// Its events, the starts among them.
    pub events: Vec<Event>,
    /// The networks at the end: shares, round trips and all that is kept of each, written out.
    pub networks: String,
    /// The services' sizes, written out.
    pub services: String,
    /// Connections in the table.
    pub connections: usize,
    /// What was counted but for what was ignored.
    pub counted: Vec<(&'static str, u64)>,
    /// What was ignored, by reason.
    pub ignored: Vec<(Ignored, u64)>,
}

impl Known {
    /// How often something was ignored for this reason.
    pub fn ignored(&self, reason: Ignored) -> u64 {
        self.ignored.iter().find(|(one, _)| *one == reason).map_or(0, |(_, count)| *count)
    }

    /// The same with everything of reason `from` counted as `to`.
    #[must_use]
    pub fn as_if(mut self, from: Ignored, to: Ignored) -> Self {
        let moved = self.ignored(from);
        for (reason, count) in &mut self.ignored {
            if *reason == from {
                *count = 0;
            } else if *reason == to {
                *count += moved;
            }
        }
        self
    }
}

/// Real connections and, beside them, packets in tunnels.
#[derive(Debug)]
pub struct Scene {
    /// Times in nanoseconds, and whether somebody made the packet up.
    packets: Vec<(u64, bool, Tuple, Packet)>,
}

impl Scene {
    /// The same servers and clients' networks in both; what is made up loses a fifth of its segments.
    pub fn new() -> Self {
        let real = TraceConfig { packets: 12_000, connections: 20, loss: 0.01, networks: 3, snap_len: 0, seed: 3 };
        let made_up = TraceConfig { packets: 4_000, connections: 12, loss: 0.2, networks: 6, seed: 4, ..real };
        let mut packets = Vec::new();
        for (config, is_made_up) in [(real, false), (made_up, true)] {
            generate(&config, |at_ns, tuple, packet| {
                packets.push((at_ns, is_made_up, *tuple, packet.clone()));
                true
            });
        }
        packets.sort_by_key(|(at_ns, is_made_up, ..)| (*at_ns, *is_made_up));
        Self { packets }
    }

    /// Packets that are made up.
    pub fn made_up(&self) -> u64 {
        self.packets.iter().filter(|(_, is_made_up, ..)| *is_made_up).map(|_| 1).sum()
    }

    /// What a gateway with this configuration knows in the end. What is made up comes in tunnels; with `in_tunnels` off,
    /// datagrams of the same size and time come instead, which are nobody's connection.
    ///
    /// # Errors
    /// The configuration's fault.
    pub fn play(&self, config: &str, wrapping: Wrapping, in_tunnels: bool) -> anyhow::Result<Known> {
        let config = Config::parse(config, std::path::Path::new("gateway.toml"))?;
        let mut engine = Engine::new(config.engine(EngineOptions::default())?);
        let mut events = Vec::new();
        let (mut inner, mut now) = (Vec::new(), Timestamp(0));
        for (number, (at_ns, is_made_up, tuple, packet)) in (0u16..=u16::MAX).cycle().zip(&self.packets) {
            now = Timestamp(EPOCH_SECONDS * 1_000_000_000 + at_ns);
            let inner_len = encode(&mut inner, number, *at_ns, tuple, packet);
            let (data, wire_len) = match (is_made_up, wrapping.wrap(&inner, inner_len)) {
                (false, _) => (inner.clone(), inner_len),
                (true, wrapped) if in_tunnels => wrapped,
                (true, (_, wire_len)) => plain(wire_len),
            };
            let wire_len = u32::try_from(wire_len)?;
            engine.handle_frame(now, &Frame { link_type: 1, wire_len, input: 0, data: &data });
            events.extend(std::iter::from_fn(|| engine.poll_event()));
        }
        let counters: &Counters = engine.counters();
        let ignored = Ignored::VARIANTS.iter().map(|reason| (*reason, counters.ignored(*reason))).collect();
        Ok(Known {
            events,
            networks: format!("{:?}", engine.networks().views(now)),
            services: format!("{:?}", engine.services()),
            connections: engine.connections(),
            counted: counters.named().to_vec(),
            ignored,
        })
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}
