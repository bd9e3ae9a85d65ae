//! The account of one direction of a connection, given at its end: what `replay` sums up, and with details what `replay --flows` shows
//! (`docs/explain/definitions.md`, "Columns of replay").

use spand_proto::units::{Bytes, Micros, Timestamp};

use crate::counters::Ignored;
use crate::flow::evidence::control::CongestionControl;
use crate::types::{ConnectionId, Limiter, SampleReason, WindowSample};
use crate::wire::segment::Endpoint;

/// What was counted for one direction of one connection.
///
/// Retransmission is counted by sequence space seen before, copies made by a mirror port included (`duplicate_data_packets`
/// says how many of them were that); loss recognition leaves those copies out.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionReport {
    /// Sender.
    pub source: Endpoint,
    /// Receiver.
    pub destination: Endpoint,
    /// Packets with payload.
    pub data_packets: u64,
    /// Those of them that were a second copy from the mirror port.
    pub duplicate_data_packets: u64,
    /// Packets that carried payload seen before.
    pub retransmitted_packets: u64,
    /// Union of payload sequence intervals.
    pub unique: Bytes,
    /// Loss events (one per window).
    pub loss_events: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Its transfers, where its window is wanted.
    pub transfers: TransferSummary,
    /// What its first window sample was taken at.
    pub first_sample: Option<SampleReason>,
    /// The congestion control recognised by its packets, or else by those of its host's other connections.
    pub congestion_control: CongestionControl,
    /// The connection was there before its first packet was seen.
    pub midstream: bool,
    /// The receiver acknowledged something: both directions are visible.
    pub acknowledged: bool,
    /// What was wrong with the times of the connection's records when a sample was refused for that.
    pub bad_times: Option<Ignored>,
    /// What is shown of the direction by itself ([`crate::config::FlowReports::Full`]).
    pub details: Option<Box<DirectionDetails>>,
}

/// The rest of the account of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionDetails {
    /// The connection: both directions carry the same number.
    pub connection: ConnectionId,
    /// Which source (file) the first packet came from.
    pub input: u32,
    /// Position of the first packet of this direction among all frames, for an order that never depends on when it ended.
    pub first_frame: u64,
    /// When that was.
    pub first_at: Timestamp,
    /// When the last was.
    pub last_at: Timestamp,
    /// Packets, with and without payload.
    pub packets: u64,
    /// Payload bytes on the wire, repeated ones included.
    pub payload: Bytes,
    /// Bytes of payload seen before.
    pub retransmitted: Bytes,
    /// SYNs and FINs repeated without repeated payload.
    pub synfin_retransmitted_packets: u64,
    /// Packets below the highest sequence seen, with bytes never seen: lost upstream of the tap, or reordered.
    pub hole_fill_packets: u64,
    /// Keep-alives and window probes of a byte sent before.
    pub probe_packets: u64,
    /// Packets that were a second copy from the mirror port.
    pub duplicate_packets: u64,
    /// Round-trip times from sequence and acknowledgement (the handshake's included), seen from the tap.
    pub rtt_seqack: RttSummary,
    /// Round-trip times from the timestamps option, kept apart.
    pub rtt_timestamps: RttSummary,
    /// Highest acknowledgement since its first segment was seen, as a position, believable or not: what the largest flight is counted
    /// from, as an interval count would.
    pub highest_ack: Option<u64>,
    /// Largest flight: highest sequence sent less highest acknowledgement seen.
    pub flight_max: Bytes,
    /// What limited the sender for most of its round trips.
    pub limited_by: Limiter,
    /// Window samples, in order of time.
    pub samples: Vec<WindowSample>,
}

impl DirectionReport {
    /// The account of a direction in which nothing was seen yet.
    pub(crate) fn new([source, destination]: [Endpoint; 2], midstream: bool) -> Self {
        Self {
            source,
            destination,
            data_packets: 0,
            duplicate_data_packets: 0,
            retransmitted_packets: 0,
            unique: Bytes(0),
            loss_events: 0,
            timeouts: 0,
            transfers: TransferSummary::default(),
            first_sample: None,
            congestion_control: CongestionControl::Unknown,
            midstream,
            acknowledged: false,
            bad_times: None,
            details: None,
        }
    }

    /// Whether a packet of it was counted.
    pub(crate) fn has_counted(&self) -> bool {
        self.data_packets > 0 || self.details.as_ref().is_some_and(|details| details.packets > 0)
    }
}

impl DirectionDetails {
    /// Those of a direction in which nothing was seen yet.
    pub(crate) fn new(connection: ConnectionId, at: Timestamp) -> Self {
        Self {
            connection,
            input: 0,
            first_frame: 0,
            first_at: at,
            last_at: at,
            packets: 0,
            payload: Bytes(0),
            retransmitted: Bytes(0),
            synfin_retransmitted_packets: 0,
            hole_fill_packets: 0,
            probe_packets: 0,
            duplicate_packets: 0,
            rtt_seqack: RttSummary::default(),
            rtt_timestamps: RttSummary::default(),
            highest_ack: None,
            flight_max: Bytes(0),
            limited_by: Limiter::Unknown,
            samples: Vec::new(),
        }
    }
}

/// Transfers that ended, summed up: what a rate while sending is made of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TransferSummary {
    /// New bytes.
    pub bytes: Bytes,
    /// Time from the first byte of each to the last that was sent or acknowledged of it.
    pub active: Micros,
    /// When the one under way began.
    began: Option<Timestamp>,
}

impl TransferSummary {
    /// Transfers of `bytes` in all, which took the time of `active`.
    pub fn of(bytes: Bytes, active: Micros) -> Self {
        Self { bytes, active, began: None }
    }

    /// One began.
    pub(crate) fn begin(&mut self, at: Timestamp) {
        self.began = Some(at);
    }

    /// The one under way ended: its last byte was sent or acknowledged at `last`.
    pub(crate) fn end(&mut self, bytes: Bytes, last: Timestamp) {
        if let Some(began) = self.began.take() {
            self.bytes = Bytes(self.bytes.0.saturating_add(bytes.0));
            self.active = Micros(self.active.0.saturating_add(last.since(began).0));
        }
    }
}

/// Round-trip times summed up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RttSummary {
    /// Samples.
    pub count: u64,
    /// Smallest.
    pub min: Option<Micros>,
    /// Largest.
    pub max: Option<Micros>,
    /// Sum, for the mean.
    pub sum: Micros,
}

impl RttSummary {
    /// Counts one sample.
    pub fn add(&mut self, rtt: Micros) {
        self.count += 1;
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
        self.max = Some(self.max.map_or(rtt, |max| max.max(rtt)));
        self.sum = Micros(self.sum.0.saturating_add(rtt.0));
    }

    /// Mean in microseconds, where there is a sample.
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum.0 as f64 / self.count as f64)
    }
}
