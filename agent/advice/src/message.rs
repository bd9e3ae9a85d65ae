//! What passes over the agent's socket for applications: one JSON object a line, each with one key that names it.
//!
//! `docs/explain/applications.md` is the contract. Names and fields are added, and never change; an unknown field is skipped. Times are those of
//! the agent's clock, in nanoseconds.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::report::{Arm, LimitedBy};
use spand_proto::resume::Phase;
use spand_proto::start::{RefusalReason, StartPolicy};
use spand_proto::units::{Bytes, Segments, Timestamp};

use crate::Reason;

/// The version of these messages; an application with another one is refused.
pub const VERSION: u32 = 1;

/// Longest line in bytes, without its end.
pub const MOST_LINE_BYTES: usize = 8_192;

/// Largest payload of a packet: that of UDP over IPv6 without jumbograms (RFC 768, RFC 8200), which is larger than over IPv4.
pub const MOST_MSS_BYTES: u64 = 65_527;

/// The agent sends something at least once a second; after this long without anything it counts as gone.
pub const SILENCE: Duration = Duration::from_secs(3);

/// From an application.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// The first line.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// What the application is called in the agent's log.
        application: String,
    },
    /// Send what is known about the network of this address, and all that changes there.
    Watch(IpAddr),
    /// No more about this network.
    Unwatch(Network),
    /// Compute a start. For applications without a table of their own.
    Start(Asked),
    /// What became of a connection, or of its first flight.
    Ended(Ended),
}

/// A question of an application without a table of its own.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Asked {
    /// Repeated in the answer, and by the report.
    pub id: u64,
    /// The other end.
    pub destination: SocketAddr,
    /// The transfer's size in bytes; absent where not known.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// The connection's round trip in microseconds; absent where not measured.
    #[serde(default)]
    pub rtt_us: Option<u64>,
    /// Payload of a full-sized packet in bytes, 1 to [`MOST_MSS_BYTES`]. Without it the estimate's size counts.
    #[serde(default)]
    pub mss_bytes: Option<u64>,
}

/// From the agent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToApplication {
    /// After the first line, and whenever it changes.
    Settings(Settings),
    /// What is known about a network.
    Offer(Box<Offer>),
    /// The same holds for longer.
    Renewed(Renewed),
    /// Nothing is held for a network any more.
    Gone(Network),
    /// Nothing is held for a network that is watched.
    Nothing(Nothing),
    /// To [`ToAgent::Start`].
    Started(Started),
    /// Once a second.
    Alive {
        /// The agent's clock.
        now: Timestamp,
    },
    /// A line made no sense, or was refused. The connection ends after it where nothing sensible can follow.
    Error(String),
}

/// What holds for all connections.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// The agent's clock.
    pub now: Timestamp,
    /// Part of the connections in the control group, 0 to 1. They start plain.
    pub control_fraction: f64,
    /// Seed of that draw, another one for each connection to the socket.
    pub seed: u64,
    /// The host's initial window.
    pub initial_window: Segments,
    /// Size of a transfer whose size is not known; absent where such a transfer counts as long.
    #[serde(default)]
    pub usual_bytes: Option<Bytes>,
}

/// What is known about a network.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Offer {
    /// The estimate.
    pub estimate: Estimate,
    /// Limits of its starts.
    pub policy: StartPolicy,
    /// The administrator's own cap for it.
    #[serde(default)]
    pub cap: Option<Segments>,
    /// Segments above the host's initial window that the application may have under way there, where a budget is kept.
    #[serde(default)]
    pub lease: Option<Segments>,
    /// Why connections there start plain; absent where nothing is in the way.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// End of its lifetime.
    pub expires: Timestamp,
}

/// A longer lifetime.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Renewed {
    /// Of which network.
    pub network: Network,
    /// Its new end.
    pub expires: Timestamp,
}

/// A network without advice.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Nothing {
    /// Which.
    pub network: Network,
    /// Why.
    pub reason: Reason,
}

/// A start in the words of the wire. The fields are [`crate::Start`]'s.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Started {
    /// That of the question.
    pub id: u64,
    /// Whether there is a start on advice. Without one, only `reason` is set.
    pub advised: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The congestion window in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// The slow-start threshold in bytes; absent where slow start goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_bytes: Option<u64>,
    /// Bytes that may leave at once, before the rate holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u64>,
    /// The rate of the first window in bytes per second; absent where it may leave at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// For how long the advice holds, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_us: Option<u64>,
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Ended {
    /// The question's, where the agent computed the start: the fields up to `paused` are the agent's own then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The host's end; absent, or an unspecified address, where the application does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// The other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<SocketAddr>,
    /// The arm of the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<Arm>,
    /// The window that was granted, in segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advised_segments: Option<u32>,
    /// Why the start function gave no start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalReason>,
    /// Whether advice was paused when the connection began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Whether the connection goes on, and its first flight alone is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes_on: bool,
    /// The rest.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What a connection met. Everything that was not measured is left out.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Outcome {
    /// Payload that was acknowledged.
    pub acknowledged_bytes: u64,
    /// From the first byte to the last acknowledgement, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// The congestion window at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_window_bytes: Option<u64>,
    /// The congestion window just before the last congestion event that began in congestion avoidance reduced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_window_bytes: Option<u64>,
    /// Congestion events: losses of one round trip are one event.
    pub congestion_events: u32,
    /// Whether the sender was in slow start at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_in_slow_start: Option<bool>,
    /// The last phase of Careful Resume; absent where it was not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub careful_resume: Option<Phase>,
    /// Payload of a full-sized packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss_bytes: Option<u64>,
    /// The smoothed round trip at the end, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srtt_us: Option<u64>,
    /// The smallest round trip, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_min_us: Option<u64>,
    /// Packets that were lost, in segments.
    pub lost_segments: u32,
    /// Of the first flight: segments that had left when the last loss was seen, or when all was acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_flight_sent_segments: Option<u32>,
    /// Of them, those that were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_flight_lost_segments: Option<u32>,
    /// What held the sender back at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<LimitedBy>,
}
