//! The rows of the output: one struct each, so that csv and JSON have the same columns under the same names.
//!
//! What is not known is `None`: an empty field in csv, `null` in JSON.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde::Serialize;
use spand_core::flow::report::{DirectionReport, RttSummary};
use spand_core::networks::view::NetworkView;
use spand_core::types::WindowSample;
use spand_proto::network::Network;
use spand_proto::no_estimate::Reason;
use spand_proto::operator::rfc3339_ns;
use spand_proto::units::{Bytes, Micros, Timestamp, Window, rounded};

use super::traffic::{percent, retransmitted, throughput_bps};
use super::{FileReport, Traffic};
use crate::names::Named;
use crate::opening::{ComparedDocument, OpeningDocument};

/// One network at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetworkRow {
    /// The network.
    pub prefix: String,
    /// Share in whole segments of `mss`, rounded to nearest.
    pub wc_segments: Option<u32>,
    /// Share in bytes.
    pub wc_bytes: Option<u64>,
    /// Segment size behind `wc_segments`.
    pub mss: Option<u64>,
    /// Smallest round-trip time.
    pub rtt_min_ms: Option<f64>,
    /// Mean round-trip time.
    pub rtt_mean_ms: Option<f64>,
    /// Window samples.
    pub samples: u32,
    /// Connections that gave samples or lower bounds.
    pub connections: u32,
    /// Loss events.
    pub losses: u64,
    /// Time since the newest sample of any kind.
    pub age_s: Option<f64>,
    /// Trust in the estimate, 0 to 1.
    pub confidence: Option<f64>,
    /// Rule of the estimate.
    pub rule: Option<&'static str>,
    /// Lower bounds.
    pub lower_bounds: u32,
    /// Round trips limited by the congestion window.
    pub limited_window: u64,
    /// Round trips limited by the receiver.
    pub limited_receiver: u64,
    /// Round trips limited by the application.
    pub limited_application: u64,
    /// Why there is no estimate.
    pub no_estimate: Option<&'static str>,
    /// The same in a sentence with its figures; no column.
    #[serde(skip)]
    pub no_estimate_message: Option<String>,
    /// The moment (RFC 3339).
    pub time: String,
    /// Payload sent to it since the first packet, each byte once.
    pub unique_bytes: u64,
    /// Mean rate of a connection to it while a transfer was under way.
    pub throughput_bps: Option<u64>,
    /// Part of the packets with payload that were retransmissions.
    pub retransmitted_pct: Option<f64>,
    /// Connections that sent data to it since the first packet.
    pub data_connections: u64,
    /// Why it has no window sample.
    pub no_sample: Option<&'static str>,
    /// The bottleneck's buffer, as far as losses show it.
    pub buffer_bytes: Option<u64>,
    /// No sample shows the share: it is what transfers carried that ended without loss before they tried more.
    pub is_lower_bound: Option<bool>,
    /// Payload bytes towards it in the window, retransmitted ones included.
    pub out_bytes: u64,
    /// Bits of them a second.
    pub out_bps: Option<u64>,
    /// The retransmitted part of them.
    pub out_loss: Option<f64>,
    /// Payload bytes from it in the window.
    pub in_bytes: u64,
    /// Bits of them a second.
    pub in_bps: Option<u64>,
    /// The retransmitted part of them.
    pub in_loss: Option<f64>,
    /// What the network is called: in the operator's list.
    pub name: Option<String>,
    /// Number of the autonomous system that announces it.
    pub as_number: Option<u32>,
    /// The organisation of that.
    pub as_organisation: Option<String>,
    /// Why no loss backs the share although losses gave samples.
    pub mark: Option<&'static str>,
    /// What one more connection may open with; no column.
    #[serde(skip)]
    pub opening: Option<OpeningDocument>,
    /// What rules say that are compared with the one in force; no column.
    #[serde(skip)]
    pub compared: Vec<ComparedDocument>,
}

impl NetworkRow {
    /// The row of `view` at `now`, where the first packet at all was captured at `began`. `asked` is the segment size to count in; without one it is that of the samples.
    pub fn new(
        view: &NetworkView,
        traffic: Option<&Traffic>,
        (began, now): (Timestamp, Timestamp),
        asked: Option<Bytes>,
    ) -> Self {
        let estimate = view.estimate.as_ref();
        let mss = estimate.map(|estimate| asked.unwrap_or(estimate.mss));
        let no_estimate = view.no_estimate();
        let (passed, span) = (view.traffic.window, view.traffic.span(began));
        let parts = |value: Option<f64>| value.map(|value| rounded(value, 6));
        Self {
            prefix: view.network.to_string(),
            wc_segments: estimate.zip(mss).map(|(estimate, mss)| estimate.share_segments(mss).0),
            wc_bytes: estimate.map(|estimate| whole_bytes(estimate.share)),
            mss: mss.map(|Bytes(mss)| mss),
            rtt_min_ms: view.rtt_min.map(Micros::as_millis_f64),
            rtt_mean_ms: view.rtt_mean.map(Micros::as_millis_f64),
            samples: view.samples,
            connections: view.connections,
            losses: view.losses,
            age_s: view.age(now).map(|age| thousandths(age.as_secs_f64())),
            confidence: estimate.map(|estimate| thousandths(estimate.confidence.value())),
            rule: estimate.map(|estimate| estimate.rule.name()),
            lower_bounds: view.lower_bounds,
            limited_window: view.limits.window,
            limited_receiver: view.limits.receiver,
            limited_application: view.limits.application,
            no_estimate: no_estimate.map(|why| why.reason.name()),
            no_estimate_message: no_estimate.map(|why| why.to_string()),
            time: rfc3339_ns(now),
            buffer_bytes: estimate.and_then(|estimate| estimate.buffer).map(whole_bytes),
            is_lower_bound: estimate.map(|estimate| estimate.is_lower_bound),
            mark: estimate.and_then(|estimate| Some(estimate.mark?.name())),
            no_sample: traffic.and_then(|traffic| traffic.no_sample(Some(view))).map(Reason::name),
            out_bytes: passed.outbound.bytes,
            out_bps: throughput_bps(Bytes(passed.outbound.bytes), span),
            out_loss: parts(passed.outbound.loss()),
            in_bytes: passed.inbound.bytes,
            in_bps: throughput_bps(Bytes(passed.inbound.bytes), span),
            in_loss: parts(passed.inbound.loss()),
            opening: OpeningDocument::in_force(view, mss, now),
            compared: ComparedDocument::all(view, mss, now),
            ..traffic.map(Self::of_traffic).unwrap_or_default()
        }
    }

    /// The row of a network of which the window holds nothing.
    pub fn outside_window(network: Network, traffic: &Traffic, now: Timestamp) -> Self {
        Self {
            prefix: network.to_string(),
            time: rfc3339_ns(now),
            no_sample: traffic.no_sample(None).map(Reason::name),
            ..Self::of_traffic(traffic)
        }
    }

    /// The same row with what the network is called.
    pub(super) fn named(self, Named { name, as_number, as_organisation }: Named) -> Self {
        Self { name, as_number, as_organisation, ..self }
    }

    fn of_traffic(traffic: &Traffic) -> Self {
        Self {
            unique_bytes: traffic.sent.unique.0,
            throughput_bps: traffic.sent.throughput_bps(),
            retransmitted_pct: traffic.sent.retransmitted_pct(),
            data_connections: traffic.sent.connections,
            ..Self::default()
        }
    }
}

/// One direction of one connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowRow<'a> {
    /// File of the direction's first packet.
    pub file: &'a str,
    /// Sender's address, inside any tunnel.
    pub src: IpAddr,
    /// Sender's port.
    pub sport: u16,
    /// Receiver's address.
    pub dst: IpAddr,
    /// Receiver's port.
    pub dport: u16,
    /// Packets.
    pub pkts: u64,
    /// Packets with payload.
    pub data_pkts: u64,
    /// Payload bytes on the wire.
    pub payload_bytes: u64,
    /// Union of payload sequence intervals.
    pub unique_bytes: u64,
    /// Packets with payload seen before.
    pub retx_pkts: u64,
    /// Bytes of payload seen before.
    pub retx_bytes: u64,
    /// SYNs and FINs repeated without repeated payload.
    pub synfin_retx_pkts: u64,
    /// Packets below the highest sequence with bytes never seen.
    pub holefill_pkts: u64,
    /// Round-trip times from sequence and acknowledgement.
    pub rtt_seqack_n: u64,
    /// Smallest of them.
    pub rtt_seqack_min_ms: Option<f64>,
    /// Their mean.
    pub rtt_seqack_mean_ms: Option<f64>,
    /// Largest of them.
    pub rtt_seqack_max_ms: Option<f64>,
    /// Round-trip times from the timestamps option.
    pub rtt_ts_n: u64,
    /// Smallest of them.
    pub rtt_ts_min_ms: Option<f64>,
    /// Their mean.
    pub rtt_ts_mean_ms: Option<f64>,
    /// Largest flight.
    pub flight_max_bytes: u64,
    /// What limited the sender for most of its round trips.
    pub limited_by: &'static str,
    /// `time:bytes:reason`, joined by `;`.
    pub window_samples: String,
    /// Largest round-trip time from the timestamps option.
    pub rtt_ts_max_ms: Option<f64>,
    /// Packets that were a second copy from the mirror port.
    pub duplicate_pkts: u64,
    /// Loss events, one per window.
    pub loss_events: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Time of the first packet (RFC 3339).
    pub first_time: String,
    /// Time of the last packet.
    pub last_time: String,
    /// Number of the connection: both directions carry the same.
    pub connection: u64,
    /// The congestion control recognised.
    pub congestion_control: &'static str,
    /// Time in which a transfer was under way.
    pub active_s: f64,
    /// Mean rate in that time.
    pub throughput_bps: Option<u64>,
    /// Part of the packets with payload that were retransmissions.
    pub retransmitted_pct: Option<f64>,
}

impl<'a> FlowRow<'a> {
    /// The row of `report`, of which there are details; `files` are those its input number counts.
    pub fn new(report: &DirectionReport, files: &[&'a FileReport]) -> Option<Self> {
        let details = report.details.as_ref()?;
        let file = usize::try_from(details.input).ok().and_then(|input| files.get(input));
        let (seqack, timestamps) = (&details.rtt_seqack, &details.rtt_timestamps);
        Some(Self {
            file: file.map_or("", |file| file.name.as_str()),
            src: report.source.address,
            sport: report.source.port,
            dst: report.destination.address,
            dport: report.destination.port,
            pkts: details.packets,
            data_pkts: report.data_packets,
            payload_bytes: details.payload.0,
            unique_bytes: report.unique.0,
            retx_pkts: report.retransmitted_packets,
            retx_bytes: details.retransmitted.0,
            synfin_retx_pkts: details.synfin_retransmitted_packets,
            holefill_pkts: details.hole_fill_packets,
            rtt_seqack_n: seqack.count,
            rtt_seqack_min_ms: seqack.min.map(Micros::as_millis_f64),
            rtt_seqack_mean_ms: mean_ms(seqack),
            rtt_seqack_max_ms: seqack.max.map(Micros::as_millis_f64),
            rtt_ts_n: timestamps.count,
            rtt_ts_min_ms: timestamps.min.map(Micros::as_millis_f64),
            rtt_ts_mean_ms: mean_ms(timestamps),
            flight_max_bytes: details.flight_max.0,
            limited_by: details.limited_by.name(),
            window_samples: samples(&details.samples),
            rtt_ts_max_ms: timestamps.max.map(Micros::as_millis_f64),
            duplicate_pkts: details.duplicate_packets,
            loss_events: report.loss_events,
            timeouts: report.timeouts,
            first_time: rfc3339_ns(details.first_at),
            last_time: rfc3339_ns(details.last_at),
            connection: details.connection.0,
            congestion_control: report.congestion_control.name(),
            active_s: thousandths(report.transfers.active.as_secs_f64()),
            throughput_bps: throughput_bps(report.transfers.bytes, report.transfers.active),
            retransmitted_pct: percent(
                retransmitted(report),
                report.data_packets.saturating_sub(report.duplicate_data_packets),
            ),
        })
    }
}

/// A moment as seconds since 1970 with all nine places, which a float could not hold.
fn seconds(at: Timestamp) -> String {
    format!("{}.{:09}", at.0 / 1_000_000_000, at.0 % 1_000_000_000)
}

fn samples(samples: &[WindowSample]) -> String {
    let mut text = String::new();
    for sample in samples {
        let separator = if text.is_empty() { "" } else { ";" };
        let (at, bytes, reason) = (seconds(sample.at), whole_bytes(sample.window), sample.reason.name());
        // Writing to a string cannot fail.
        _ = write!(text, "{separator}{at}:{bytes}:{reason}");
    }
    text
}

fn mean_ms(summary: &RttSummary) -> Option<f64> {
    summary.mean_us().map(|us| thousandths(us / 1_000.0))
}

/// Rounded to three places: more would be noise.
pub(super) fn thousandths(value: f64) -> f64 {
    rounded(value, 3)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative; `as` saturates")]
fn whole_bytes(window: Window) -> u64 {
    window.bytes().round() as u64
}
