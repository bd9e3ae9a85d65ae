//! `/v1/traffic`: whether the gateway sees traffic, and what becomes of it.

use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use spand_proto::operator::rfc3339_ms;
use spand_proto::units::rounded;

use super::health::{ReadyDocument, ready};
use super::parameters::Parameters;
use super::problem::Problem;
use super::shared::SharedJson;
use crate::api::Api;
use crate::publisher::{CaptureStatus, Published, TrafficPoint};

pub(super) async fn traffic(State(api): State<Api>, uri: Uri) -> Result<SharedJson, Problem> {
    Parameters::parse(&uri, &[])?;
    let published = api.shared.published.clone();
    let whole = move || {
        let points = published.traffic_points().into_iter().map(PointDocument::from).collect();
        WholeDocument { now: TrafficDocument::new(&published), points }
    };
    SharedJson::of(&api.shared.costly.traffic, whole).await
}

/// The present and the last ten minutes.
#[derive(Debug, Serialize)]
struct WholeDocument {
    #[serde(flatten)]
    now: TrafficDocument,
    points: Vec<PointDocument>,
}

/// The present.
#[derive(Debug, Serialize)]
pub(super) struct TrafficDocument {
    version: &'static str,
    at: String,
    #[serde(flatten)]
    ready: ReadyDocument,
    newest_packet_age_s: Option<f64>,
    last: Option<PointDocument>,
    span_s: f64,
    connections_ended: u64,
    connections_one_sided: u64,
    coverage: CoverageDocument,
    interfaces: Vec<InterfaceDocument>,
    ignored: Vec<IgnoredDocument>,
    other_protocols: Vec<OtherProtocolDocument>,
    packets: u64,
    tcp_segments: u64,
    window_samples: u64,
    connections: usize,
    networks: usize,
    estimates: usize,
    retreats: usize,
    services: usize,
    agents: usize,
    networks_revision: u64,
    next_event: u64,
}

/// What goes to networks with an estimate; `null` where nothing went anywhere.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the unit of the dialect")]
struct CoverageDocument {
    /// Part of the payload bytes of the last `span_s`.
    out_part: Option<f64>,
    /// Part of the connections established since the start.
    connections_part: Option<f64>,
    /// The same of those whose host is subscribed here.
    advised_part: Option<f64>,
}

#[derive(Debug, Serialize)]
struct PointDocument {
    at: String,
    packets_per_s: f64,
    bits_per_s: f64,
    dropped_per_s: f64,
    samples_per_s: f64,
}

#[derive(Debug, Serialize)]
struct InterfaceDocument {
    interface: String,
    packets: u64,
    dropped_kernel: u64,
    dropped_interface: u64,
    dropped_queue: u64,
    dropped_backlog: u64,
    ring_freezes: u64,
    rx_dropped: u64,
    rx_missed: u64,
    rx_fifo: u64,
    losses: u64,
    is_mirror: bool,
}

#[derive(Debug, Serialize)]
struct IgnoredDocument {
    reason: &'static str,
    /// In the last `span_s`.
    lately: u64,
    all: u64,
}

#[derive(Debug, Serialize)]
struct OtherProtocolDocument {
    protocol: String,
    all: u64,
}

impl TrafficDocument {
    pub(super) fn new(published: &Published) -> Self {
        let (traffic, engine, now) = (published.traffic(), published.engine(), published.now());
        let ignored = traffic.ignored.into_iter();
        let measures = published.measures();
        let part = |some: u64, all: u64| (all > 0).then(|| rounded(some as f64 / all as f64, 6));
        Self {
            version: env!("CARGO_PKG_VERSION"),
            at: rfc3339_ms(now),
            ready: ready(published),
            newest_packet_age_s: engine.newest.map(|newest| now.since(newest).as_secs_f64()),
            last: traffic.last.map(PointDocument::from),
            span_s: traffic.span.as_secs_f64(),
            connections_ended: traffic.ended,
            connections_one_sided: traffic.one_sided,
            coverage: CoverageDocument {
                out_part: part(traffic.out_covered_bytes, traffic.out_bytes),
                connections_part: part(measures.established_covered.get(), measures.established.get()),
                advised_part: part(measures.established_advised.get(), measures.established.get()),
            },
            interfaces: published.captures().into_iter().map(InterfaceDocument::from).collect(),
            ignored: ignored
                .map(|(reason, lately, all)| IgnoredDocument { reason: reason.name(), lately, all })
                .collect(),
            other_protocols: traffic
                .other_protocols
                .into_iter()
                .map(|(place, all)| OtherProtocolDocument { protocol: place.to_string(), all })
                .collect(),
            packets: engine.counters.frames,
            tcp_segments: engine.counters.segments,
            window_samples: engine.counters.window_samples,
            connections: engine.connections,
            networks: published.network_count(),
            estimates: published.estimate_count(),
            retreats: published.retreats(),
            services: published.service_count(),
            agents: published.subscriber_count(),
            networks_revision: published.revision(),
            next_event: published.log_next(),
        }
    }
}

impl From<TrafficPoint> for PointDocument {
    fn from(point: TrafficPoint) -> Self {
        let tenth = |value| rounded(value, 1);
        Self {
            at: rfc3339_ms(point.at),
            packets_per_s: tenth(point.packets_per_s),
            bits_per_s: point.bits_per_s.round(),
            dropped_per_s: tenth(point.dropped_per_s),
            samples_per_s: tenth(point.samples_per_s),
        }
    }
}

impl From<CaptureStatus> for InterfaceDocument {
    fn from(status: CaptureStatus) -> Self {
        Self {
            interface: status.interface,
            packets: status.received,
            dropped_kernel: status.dropped_kernel,
            dropped_interface: status.dropped_interface,
            dropped_queue: status.dropped_queue,
            dropped_backlog: status.dropped_backlog,
            ring_freezes: status.ring_freezes,
            rx_dropped: status.interface_rx_dropped,
            rx_missed: status.interface_rx_missed,
            rx_fifo: status.interface_rx_fifo,
            losses: status.losses,
            is_mirror: status.is_mirror,
        }
    }
}
