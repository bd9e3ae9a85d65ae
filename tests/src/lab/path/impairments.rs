//! What besides rate, queue and delay a path does to packets.

use std::time::Duration;

use spand_proto::units::BytesPerSecond;

/// Losses in bursts, by the two-state chain of Gilbert and Elliott, stepped once per packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Chance per packet to go from good to bad.
    pub begin: f64,
    /// Chance per packet to go back.
    pub end: f64,
    /// Chance that a packet is lost while bad; none is while good.
    pub loss: f64,
}

/// Packets that are overtaken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Chance per packet.
    pub chance: f64,
    /// How much later than its turn it arrives.
    pub by: Duration,
}

/// Stretches of time that come again and again, counted from a path's first packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Episodes {
    /// Begin of the first.
    pub first: Duration,
    /// From one begin to the next.
    pub every: Duration,
    /// How long each lasts.
    pub lasting: Duration,
}

/// A token bucket that drops what exceeds it: no queue, no delay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policer {
    /// Its rate in IP bytes.
    pub rate: BytesPerSecond,
    /// The most that passes at once after a pause, in IP bytes.
    pub burst_bytes: u64,
}

/// An MTU that drops at some time (RFC 1191, RFC 8201): ICMP comes back for every longer packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MtuDrop {
    /// Time from the path's first packet.
    pub after: Duration,
    /// The longest IP packet, 1,280 or more.
    pub bytes: u32,
}

/// Cross traffic that shares a bottleneck and then leaves: ON/OFF sources whose times are Pareto-distributed, as in the
/// paper's simulations. The packets exist in the queue's arithmetic only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cross {
    /// Number of sources.
    pub sources: u16,
    /// Rate of one while on, in IP bytes.
    pub rate: BytesPerSecond,
    /// IP bytes of a packet.
    pub packet_bytes: u32,
    /// Mean time on.
    pub on: Duration,
    /// Mean time off.
    pub off: Duration,
    /// Shape of both distributions, above 1.
    pub shape: f64,
}

impl Cross {
    /// The paper's background (section 5.1; packet size as in ns-2): on for a second and off for two, shape 1.2.
    pub const fn paper(sources: u16, rate: BytesPerSecond) -> Self {
        let (on, off) = (Duration::from_secs(1), Duration::from_secs(2));
        Self { sources, rate, packet_bytes: 210, on, off, shape: 1.2 }
    }
}

/// What a direction of a path does to packets. The default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairments {
    /// Chance that a packet is lost at random, 0 to 1, before it reaches the queue.
    pub loss: f64,
    /// Losses in bursts, there as well.
    pub burst: Option<Burst>,
    /// Chance that a TCP segment with PSH is lost there: that is where an application's write ends, so its tail.
    pub tail_loss: f64,
    /// The first full packet (1,000 bytes or more) after this time from the path's first is lost, and no other.
    pub single: Option<Duration>,
    /// Everything that arrives in these stretches is lost.
    pub outage: Option<Episodes>,
    /// Everything that arrives in these stretches waits for their end.
    pub stall: Option<Episodes>,
    /// Up to this much more delay, uniform, order kept.
    pub jitter: Duration,
    /// What arrives within one of these stretches, which follow each other, is delivered at its end, all at once: aggregation of
    /// wireless links. Zero: none.
    pub bunched: Duration,
    /// A policer before the queue.
    pub policer: Option<Policer>,
    /// Packets overtaken by later ones.
    pub reorder: Option<Reorder>,
    /// Chance that a packet arrives twice.
    pub duplicate: f64,
    /// The path's MTU drops.
    pub mtu_drop: Option<MtuDrop>,
}
