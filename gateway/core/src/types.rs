//! Plain values that several folders of the core share. This file imports none of them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Identifies a connection within one engine's life: two samples of one connection carry the same number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ConnectionId(pub u64);

/// One value of a sender's window towards a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowSample {
    /// When.
    pub at: Timestamp,
    /// Towards which network.
    pub network: Network,
    /// Towards which address of it: no single one may give more than half of an estimate.
    pub remote: IpAddr,
    /// Of which connection.
    pub connection: ConnectionId,
    /// The value, in bytes with fraction.
    pub window: Window,
    /// Effective segment size: the largest payload of a full-sized segment.
    pub mss: Bytes,
    /// What gave it.
    pub reason: SampleReason,
    /// Its connection had lost something before.
    pub reduced_before: bool,
    /// Bytes of new data the transfer carried.
    pub transfer: Bytes,
    /// The connection started on our advice, so its window is partly our own output.
    pub advised: bool,
    /// Smallest round-trip time of the connection so far.
    pub rtt_min: Option<Micros>,
    /// At a loss, the newest round-trip time of the connection: a packet close to the lost one waited in the full queue. `None` of BBR, which
    /// does not fill the queue until it loses.
    pub rtt: Option<Micros>,
}

/// What gave a sample.
#[derive(Clone, Copy, Debug, Eq, Hash, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SampleReason {
    /// A fast retransmit in congestion avoidance: the window just before, less one segment.
    Loss,
    /// A loss of a first flight larger than the initial window: what of it arrived.
    FirstFlight,
    /// An ECN reduction in congestion avoidance: the same.
    Ecn,
    /// The end of a loss-free transfer that its window limited in congestion avoidance.
    End,
    /// The delivery rate of a BBR sender that neither application nor receiver held back, times its smallest round-trip time.
    Rate,
    /// The end of a transfer that lost packets in slow start: the largest delivery rate of a round trip since, times the smallest round-trip
    /// time. Also a rate of a BBR sender whose path had room.
    Carried,
    /// The end of a loss-free transfer that its window limited in slow start: what the path carries beyond that was not tried.
    EndSlowStart,
    /// The end of a loss-free transfer that the application limited: a lower bound.
    EndAppLimited,
    /// The end of a loss-free transfer that the receiver's window limited: a lower bound.
    EndReceiverLimited,
}

impl SampleReason {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the value is only a lower bound, kept apart and never averaged in.
    pub const fn is_lower_bound(self) -> bool {
        matches!(self, Self::Carried | Self::EndSlowStart | Self::EndAppLimited | Self::EndReceiverLimited)
    }

    /// Whether a loss or mark gave it.
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::Loss | Self::FirstFlight | Self::Ecn)
    }
}

/// A sender's phase (RFC 5681, RFC 6675).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    /// Window below the slow-start threshold.
    #[default]
    SlowStart,
    /// Window at or above it.
    CongestionAvoidance,
    /// Repairing a loss.
    Recovery,
}

/// What kept a sender from sending more.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "snake_case")]
pub enum Limiter {
    /// Not known (yet).
    #[default]
    Unknown,
    /// Its congestion window.
    Window,
    /// The receiver's window.
    Receiver,
    /// The application had no more to send.
    Application,
}

impl Limiter {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A sender: where no prefixes are configured, both ends of a connection may send to one network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SenderId {
    /// Its connection.
    pub connection: ConnectionId,
    /// To which address of the network it sends.
    pub remote: IpAddr,
}

/// A sender as it reports itself once a round trip, at a loss and where its phase changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderState {
    /// Its phase.
    pub phase: Phase,
    /// Its congestion window.
    pub window: Window,
    /// Its slow-start threshold; `None` before the first loss.
    pub ssthresh: Option<Window>,
    /// Bytes that arrived so far.
    pub delivered_bytes: u64,
    /// Its segment size.
    pub mss: Bytes,
    /// Its round trip.
    pub rtt: Micros,
    /// Without another report for longer than this, it is no longer under way.
    pub silence: Micros,
}

/// Round trips in the window by what limited the sender.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LimitCounts {
    /// Its congestion window.
    pub window: u64,
    /// The receiver's window.
    pub receiver: u64,
    /// The application.
    pub application: u64,
}

impl LimitCounts {
    /// Both summed up.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            window: self.window + other.window,
            receiver: self.receiver + other.receiver,
            application: self.application + other.application,
        }
    }
}

/// Round-trip times summed up.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RttSum {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: Micros,
    /// The smallest.
    pub min: Option<Micros>,
}

impl RttSum {
    /// One alone.
    pub const fn of(rtt: Micros) -> Self {
        Self { count: 1, sum: rtt, min: Some(rtt) }
    }

    #[cfg(test)]
    pub(crate) fn add(&mut self, rtt: Micros) {
        *self = self.with(Self::of(rtt));
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            sum: Micros(self.sum.0.saturating_add(other.sum.0)),
            min: match (self.min, other.min) {
                (Some(own), Some(other)) => Some(own.min(other)),
                (own, other) => own.or(other),
            },
        }
    }

    /// Their mean, to the nearest microsecond.
    pub fn mean(self) -> Option<Micros> {
        let half = self.count / 2;
        self.sum.0.saturating_add(half).checked_div(self.count).map(Micros)
    }
}

/// What was delivered from one moment on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Delivered {
    /// Since then.
    pub since: Timestamp,
    /// Bytes of payload.
    pub bytes: u64,
}

/// What one direction carried.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flow {
    /// TCP segments, with and without payload.
    pub packets: u64,
    /// Payload of them, retransmitted bytes included.
    pub bytes: u64,
    /// Segments that were retransmitted.
    pub retransmitted_packets: u64,
    /// Payload of them that was sent before.
    pub retransmitted_bytes: u64,
}

/// Both directions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flows {
    /// Towards the network.
    pub outbound: Flow,
    /// From it.
    pub inbound: Flow,
}

impl Flow {
    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
            retransmitted_packets: self.retransmitted_packets.saturating_add(other.retransmitted_packets),
            retransmitted_bytes: self.retransmitted_bytes.saturating_add(other.retransmitted_bytes),
        }
    }

    /// The retransmitted part of its bytes; `None` where it carried none.
    pub fn loss(self) -> Option<f64> {
        (self.bytes > 0).then(|| self.retransmitted_bytes as f64 / self.bytes as f64)
    }

    /// Bits of payload a second over `span`; `None` where that is no time at all.
    pub fn bits_per_s(self, span: Micros) -> Option<f64> {
        (span.0 > 0).then(|| self.bytes as f64 * 8.0 / span.as_secs_f64())
    }
}

impl Flows {
    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { outbound: self.outbound.with(other.outbound), inbound: self.inbound.with(other.inbound) }
    }

    /// Payload bytes of both.
    pub fn bytes(self) -> u64 {
        self.outbound.bytes.saturating_add(self.inbound.bytes)
    }
}

/// A part of some connections, in 256ths; never none: which of them an engine follows, where it cannot follow all.
///
/// By connection and not by packet: what is followed is seen whole. The hash of the tuple selects: the same for both directions, and a
/// connection that a smaller part has is in a larger one, too.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SampleRate(u16);

impl SampleRate {
    /// Every connection.
    pub const ALL: Self = Self(256);
    /// One in 256.
    pub const LEAST: Self = Self(1);

    /// `parts` of 256, at least one and at most all.
    pub fn of_256(parts: u16) -> Self {
        Self(parts).clamp(Self::LEAST, Self::ALL)
    }

    /// How many of 256.
    pub fn parts(self) -> u16 {
        self.0
    }

    /// As a share from above 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }

    /// For how many connections one that is followed stands, in 256ths (the inverse of its probability to be followed).
    pub(crate) fn weight(self) -> u32 {
        u32::from(Self::ALL.0) * u32::from(Self::ALL.0) / u32::from(self.0.max(1))
    }

    /// Whether it has the connection with this hash.
    pub(crate) fn has(self, hash: u64) -> bool {
        // The table takes its places from the lowest and the highest bits.
        (hash >> 32) & 0xff < u64::from(self.0)
    }
}

/// The smallest part of a network's starts that was followed lately, in 4 bytes, since every network has it: its 256ths less one, and above
/// them when that was, in units of 16 s that return to 0 after 8 years.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeastRate(u32);

impl Default for LeastRate {
    fn default() -> Self {
        Self::ALL
    }
}

impl LeastRate {
    const ALL: Self = Self(0xff);
    const UNIT: Micros = Micros::from_secs(16);

    /// At `at` this part is followed.
    pub(crate) fn note(&mut self, rate: SampleRate, at: Timestamp, window: Micros) {
        if rate <= self.within(at, window) {
            self.0 = Self::unit(at) << 8 | u32::from(rate.parts() - 1);
        }
    }

    /// The smallest part noted in the `window` before `now`, to within a unit.
    pub(crate) fn within(self, now: Timestamp, window: Micros) -> SampleRate {
        let passed = u64::from(Self::unit(now).wrapping_sub(self.0 >> 8) << 8 >> 8);
        if passed * Self::UNIT.0 > window.0 {
            SampleRate::ALL
        } else {
            SampleRate(u16::from(self.0.to_le_bytes()[0]) + 1)
        }
    }

    fn unit(at: Timestamp) -> u32 {
        u32::try_from((at.0 / (1_000 * Self::UNIT.0)) & 0xff_ffff).unwrap_or(0)
    }
}

/// What announces a start (`docs/explain/definitions.md`, "Push").
#[derive(Clone, Copy, Debug, Deserialize, Eq, IntoStaticStr, PartialEq, Serialize)]
#[strum(serialize_all = "snake_case")]
pub enum Trigger {
    /// A SYN from outside: the host will answer and serve.
    PassiveOpen,
    /// The inside host's own SYN.
    ActiveOpen,
    /// The first packet from outside after an idle time longer than the RTO.
    Idle,
}

impl Trigger {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An encapsulation that carries whole packets. VLAN tags, MPLS and PPPoE on the link are none: no router forwards them.
#[derive(Clone, Copy, Debug, EnumString, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TunnelKind {
    /// GRE (RFC 2784) on IP or on UDP port 4754 (RFC 8086), with IP, Ethernet, MPLS or ERSPAN inside; MPLS in IP (RFC 4023).
    Gre,
    /// VXLAN (RFC 7348) on UDP port 4789.
    Vxlan,
    /// Geneve (RFC 8926) on UDP port 6081.
    Geneve,
    /// GTP-U (3GPP TS 29.281) on UDP port 2152.
    Gtp,
    /// IP in IP and IPv6 in IPv4 (RFC 2003, RFC 4213).
    IpInIp,
    /// TZSP, as RouterOS mirrors packets, on UDP port 37008.
    Tzsp,
}

impl TunnelKind {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The kind of which `port` is the UDP port unless another is configured.
    pub(crate) const fn of_port(port: u16) -> Option<Self> {
        Some(match port {
            4754 => Self::Gre,
            4789 => Self::Vxlan,
            6081 => Self::Geneve,
            2152 => Self::Gtp,
            37_008 => Self::Tzsp,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_part_is_remembered_for_the_window() {
        let at = |s: u64| Timestamp(s * 1_000_000_000);
        let window = Micros::from_secs(300);
        let (quarter, half) = (SampleRate::of_256(64), SampleRate::of_256(128));
        let mut least = LeastRate::default();
        assert_eq!(least.within(at(0), window), SampleRate::ALL);
        least.note(quarter, at(100), window);
        least.note(half, at(200), window);
        assert_eq!([200, 384, 400].map(|s| least.within(at(s), window)), [quarter, quarter, SampleRate::ALL]);
        least.note(half, at(400), window);
        assert_eq!([400, 700, 704].map(|s| least.within(at(s), window)), [half, half, SampleRate::ALL]);
        let round = 16 << 24;
        least.note(quarter, at(round - 1), window);
        assert_eq!(
            [round, round + 280, round + 400].map(|s| least.within(at(s), window)),
            [quarter, quarter, SampleRate::ALL]
        );
    }

    #[test]
    fn a_larger_share_has_what_a_smaller_one_has() {
        let hashes = (0..10_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut had = 0;
        for hash in hashes {
            assert!(SampleRate::ALL.has(hash));
            assert!(!SampleRate::of_256(64).has(hash) || SampleRate::of_256(65).has(hash));
            had += u32::from(SampleRate::of_256(64).has(hash));
        }
        assert!((2_200..2_800).contains(&had), "{had} of 10,000");
        assert_eq!(
            [100, 1, 256].map(|parts| SampleRate::of_256(parts).weight()),
            [655, 65_536, 256],
            "one stands for 2.56, for 256 and for itself"
        );
        assert_eq!((SampleRate::of_256(0), SampleRate::of_256(1_000)), (SampleRate::LEAST, SampleRate::ALL));
    }

    #[test]
    fn loss_and_rate_are_absent_where_there_is_nothing_to_divide_by() {
        let flow = Flow { packets: 3, bytes: 2_000, retransmitted_packets: 1, retransmitted_bytes: 500 };
        assert_eq!((flow.loss(), Flow { packets: 9, ..Flow::default() }.loss()), (Some(0.25), None));
        assert_eq!((flow.bits_per_s(Micros::from_secs(2)), flow.bits_per_s(Micros(0))), (Some(8_000.0), None));
    }
}
