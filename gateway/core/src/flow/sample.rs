//! Samples of a sender's window (`docs/definitions.md`, "Samples").

use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use strum::VariantArray;

/// Identifies a connection within one engine's life: two samples of one connection carry the same number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
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
    /// Where in the sawtooth the sender was: 0 just after a reduction, 1 at the largest window reached before the last
    /// one; above 1 beyond it. `None` before the first loss.
    pub sawtooth: Option<f64>,
    /// The connection's phase.
    pub phase: Phase,
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
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, VariantArray)]
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
    /// time.
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
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Ecn => "ecn",
            Self::End => "end",
            Self::FirstFlight => "first_flight",
            Self::Rate => "rate",
            Self::Carried => "carried",
            Self::EndSlowStart => "end_slow_start",
            Self::EndAppLimited => "end_app_limited",
            Self::EndReceiverLimited => "end_receiver_limited",
        }
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
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
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
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Window => "window",
            Self::Receiver => "receiver",
            Self::Application => "application",
        }
    }
}
