//! A host's reports of its own connections (TCP/SPAND 5.2.2, the first method of collecting).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::contract::HostName;
use crate::push::PauseState;
use crate::resume::Phase;
use crate::start::RefusalReason;
use crate::units::{Bytes, Micros, Segments, Timestamp};

/// Connections in one batch, at most.
pub const MAX_CONNECTIONS: usize = 1_024;

/// A batch of reports. Sending one twice is harmless: the gateway knows it by host, agent start and batch number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The host's name.
    pub host_name: HostName,
    /// Counts the batches from 1 since the agent started.
    pub batch: u64,
    /// When the agent started, by its own clock: distinguishes agents with one name, and restarts of one.
    pub agent_started: Timestamp,
    /// Transfers that ended since the last batch.
    pub connections: Vec<ConnectionReport>,
    /// What became of the pushes since the last batch.
    pub pushes: PushCount,
    /// Whether advice is paused on the host; `None` from an agent that cannot be paused.
    pub pause: Option<PauseState>,
}

/// Ground truth about one transfer of one connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionReport {
    /// The host's end. Its port is 0 where the application of a QUIC connection did not give it.
    pub host: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Time from the transfer's end to the sending of this.
    pub ended_ago: Micros,
    /// Time from the first byte to the last acknowledgement.
    pub duration: Option<Micros>,
    /// Congestion window at the end, fractions of a segment included.
    pub end_window: Option<Bytes>,
    /// Segment size less options.
    pub mss: Option<Bytes>,
    /// Smoothed round-trip time at the end.
    pub srtt: Option<Micros>,
    /// Smallest round-trip time.
    pub rtt_min: Option<Micros>,
    /// Payload that was acknowledged.
    pub acknowledged: Bytes,
    /// Segments that were sent again.
    pub retransmitted: Segments,
    /// Whether a segment of the first flight was lost. Of an advised connection only a flight counts that held more than the
    /// host's default window, of another one what that window holds.
    pub first_flight_loss: Option<bool>,
    /// How much of it was lost; `None` where nothing was, or from a host that does not count it.
    pub first_flight: Option<FirstFlightLoss>,
    /// What held the sender back at the end.
    pub limited_by: Option<LimitedBy>,
    /// The arm of the comparison, drawn before anything else was decided.
    pub arm: Option<Arm>,
    /// Window that was granted; `None` where the connection started as plain TCP.
    pub advised: Option<Segments>,
    /// Why the start function gave no start; `None` where it gave one or was not asked.
    pub refusal: Option<RefusalReason>,
    /// Whether advice was paused at some time between the connection's handshake and this; it then has no arm.
    pub paused: bool,
    /// What carried it.
    pub transport: Transport,
    /// The congestion window just before the last congestion event that began in congestion avoidance reduced it; `None` where none
    /// began there, or where the sender cannot tell slow start from congestion avoidance and had no event before.
    pub loss_window: Option<Bytes>,
    /// Congestion events: losses and ECN marks that began a recovery period (RFC 9002), in slow start and in congestion avoidance.
    pub congestion_events: u32,
    /// Whether the sender was in slow start at the end; `None` where that is not known.
    pub ended_in_slow_start: Option<bool>,
    /// The last phase of Careful Resume before normal congestion control; `None` where the connection did not use it.
    pub careful_resume: Option<Phase>,
}

/// What carries a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transport {
    /// TCP, whose windows the gateway takes from the wire.
    #[default]
    Tcp,
    /// QUIC, which shows its windows in reports alone.
    Quic,
}

impl ConnectionReport {
    /// The window at the end in segments, where both are known.
    pub fn end_window_segments(&self) -> Option<f64> {
        let (window, mss) = (self.end_window?, self.mss?);
        Some(window.0 as f64 / mss.0 as f64)
    }
}

/// How much of an advised first flight was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FirstFlightLoss {
    /// Segments of it that had left when the last loss was seen.
    pub sent: Segments,
    /// Of them, those that were lost.
    pub lost: Segments,
}

impl FirstFlightLoss {
    /// Whether it was lost for the most part: fewer losses are repaired in the next round trip, and plain TCP has them as well
    /// (`docs/explain/decisions/retreat-and-budget.md`).
    pub const fn is_most(self) -> bool {
        self.lost.0 > self.sent.0 / 2
    }
}

/// What holds a sender back.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// Its congestion window.
    Window,
    /// The peer's receive window.
    Receiver,
    /// Nothing more to send.
    Application,
}

/// The arms of the comparison between advised and plain connections.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// May be advised.
    Advised,
    /// Held out at random: starts as plain TCP.
    Control,
}

/// What became of imminent starts that were pushed to a host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PushCount {
    /// Pushes that arrived.
    pub received: u64,
    /// Pushes whose start was in force before the connection's handshake could end.
    pub in_time: u64,
    /// Pushes whose start was in force later than that.
    pub late: u64,
    /// Pushes whose connections the host's programs did not see: counted while that is so for next to all of them.
    pub unmatched: u64,
}

/// What the gateway did with a batch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReportReceipt {
    /// Reports that were taken.
    pub accepted: u32,
    /// Reports that were not.
    pub ignored: u32,
}
