//! What passes to and from a network, in JSON: in the interface and in `replay`.

use serde::Serialize;
use spand_core::networks::traffic::NetworkTraffic;
use spand_core::types::Flow;
use spand_proto::units::{Micros, Timestamp, rounded};

/// The traffic of a network.
#[derive(Clone, Debug, Serialize)]
pub struct TrafficDocument {
    span_s: f64,
    out: FlowDocument,
    r#in: FlowDocument,
}

/// One direction, in the window and, as `total_…`, since the network is in the table.
#[derive(Clone, Debug, Serialize)]
struct FlowDocument {
    bits_per_s: Option<f64>,
    packets: u64,
    payload_bytes: u64,
    retransmitted_packets: u64,
    retransmitted_bytes: u64,
    loss: Option<f64>,
    total_packets: u64,
    total_payload_bytes: u64,
    total_retransmitted_packets: u64,
    total_retransmitted_bytes: u64,
}

impl TrafficDocument {
    /// Of `traffic`, where the first packet at all was captured at `began`.
    pub fn new(traffic: &NetworkTraffic, began: Option<Timestamp>) -> Self {
        let span = traffic.span(began.unwrap_or(traffic.at));
        let NetworkTraffic { window, total, .. } = traffic;
        Self {
            span_s: span.as_secs_f64(),
            out: FlowDocument::new(&window.outbound, &total.outbound, span),
            r#in: FlowDocument::new(&window.inbound, &total.inbound, span),
        }
    }
}

impl FlowDocument {
    fn new(window: &Flow, total: &Flow, span: Micros) -> Self {
        Self {
            bits_per_s: window.bits_per_s(span).map(f64::round),
            packets: window.packets,
            payload_bytes: window.bytes,
            retransmitted_packets: window.retransmitted_packets,
            retransmitted_bytes: window.retransmitted_bytes,
            loss: window.loss().map(|part| rounded(part, 6)),
            total_packets: total.packets,
            total_payload_bytes: total.bytes,
            total_retransmitted_packets: total.retransmitted_packets,
            total_retransmitted_bytes: total.retransmitted_bytes,
        }
    }
}
