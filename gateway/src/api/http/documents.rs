//! Networks and estimates in JSON. What is not known is null.
//!
//! The fields have the names that `replay --format json` gives them (docs/reference/api.md, "JSON").

use std::net::IpAddr;

use serde::Serialize;
use spand_core::estimate::AddressShare;
use spand_core::networks::view::NetworkView;
use spand_proto::no_estimate::{Outcomes, Reason};
use spand_proto::operator::rfc3339_ms;
use spand_proto::units::{Micros, Timestamp, Window, rounded};

use super::sort::saving_s;
use crate::names::{Named, Names};
use crate::network_traffic::TrafficDocument;
use crate::opening::{ComparedDocument, OpeningDocument};
use crate::publisher::Trend;

/// A list of networks in JSON.
#[derive(Debug, Serialize)]
pub(super) struct NetworksDocument {
    pub(super) networks: Vec<NetworkDocument>,
    /// Networks that match, on all pages.
    pub(super) total: usize,
    /// Where the next page begins; absent on the last.
    pub(super) next_offset: Option<usize>,
}

/// A network in JSON; what is not known is null.
#[derive(Debug, Serialize)]
pub(super) struct NetworkDocument {
    prefix: String,
    #[serde(flatten)]
    named: Named,
    wc_segments: Option<u32>,
    wc_bytes: Option<f64>,
    saving_s: Option<f64>,
    mss_bytes: Option<u64>,
    rtt_min_ms: Option<f64>,
    rtt_mean_ms: Option<f64>,
    samples: u32,
    lower_bounds: u32,
    connections: u32,
    is_lower_bound: Option<bool>,
    mark: Option<&'static str>,
    /// Only where they differ.
    address_shares: Vec<AddressShareDocument>,
    by_reports: bool,
    reported_samples: u32,
    reported_hosts: u32,
    loss_connections: Option<u32>,
    losses: u64,
    loss_window_bytes: Option<f64>,
    buffer_bytes: Option<f64>,
    bdp_bytes: Option<f64>,
    limited_by: LimitsDocument,
    parallel: u32,
    parallel_at_samples: u32,
    followed: f64,
    age_s: Option<f64>,
    confidence: Option<f64>,
    rule: Option<&'static str>,
    no_estimate: Option<Reason>,
    no_estimate_message: Option<String>,
    transfer_outcomes: Outcomes,
    traffic: TrafficDocument,
    opening: Option<OpeningDocument>,
    /// Never sent to hosts.
    compared: Vec<ComparedDocument>,
    /// Where it was asked for and is remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    trend: Option<TrendDocument>,
}

/// The share of one address of a network.
#[derive(Debug, Serialize)]
struct AddressShareDocument {
    remote: IpAddr,
    wc_bytes: f64,
    samples: u32,
    is_lower: bool,
}

impl AddressShareDocument {
    fn of(one: &AddressShare) -> Self {
        Self {
            remote: one.address,
            wc_bytes: rounded(one.share.bytes(), 1),
            samples: one.samples,
            is_lower: one.is_lower,
        }
    }
}

/// Round trips by what limited the sender.
#[derive(Debug, Serialize)]
struct LimitsDocument {
    window: u64,
    receiver: u64,
    application: u64,
}

impl NetworkDocument {
    /// Of `view` at `now`, where the first packet at all was captured at `began`.
    pub(super) fn new(view: &NetworkView, names: &Names, began: Option<Timestamp>, now: Timestamp) -> Self {
        let bytes = |window: Window| rounded(window.bytes(), 1);
        let estimate = view.estimate.as_ref();
        let mss = estimate.map(|estimate| estimate.mss);
        let no_estimate = view.no_estimate();
        let reported = view.reported.unwrap_or_default();
        Self {
            prefix: view.network.to_string(),
            named: names.of(view.network),
            wc_segments: estimate.map(|estimate| estimate.share_segments(estimate.mss).0),
            wc_bytes: estimate.map(|estimate| bytes(estimate.share)),
            saving_s: saving_s(view).map(|seconds| rounded(seconds, 3)),
            mss_bytes: estimate.map(|estimate| estimate.mss.0),
            rtt_min_ms: view.rtt_min.map(Micros::as_millis_f64),
            rtt_mean_ms: view.rtt_mean.map(Micros::as_millis_f64),
            samples: view.samples,
            lower_bounds: view.lower_bounds,
            connections: view.connections,
            is_lower_bound: estimate.map(|estimate| estimate.is_lower_bound),
            mark: estimate.and_then(|estimate| Some(estimate.mark?.name())),
            address_shares: view.addresses.iter().map(AddressShareDocument::of).collect(),
            by_reports: reported.in_force,
            reported_samples: reported.samples,
            reported_hosts: reported.hosts,
            loss_connections: estimate.map(|estimate| estimate.loss_connections),
            losses: view.losses,
            loss_window_bytes: estimate.and_then(|estimate| estimate.loss_window.map(bytes)),
            buffer_bytes: estimate.and_then(|estimate| estimate.buffer.map(bytes)),
            bdp_bytes: estimate.and_then(|estimate| estimate.bdp.map(bytes)),
            limited_by: LimitsDocument {
                window: view.limits.window,
                receiver: view.limits.receiver,
                application: view.limits.application,
            },
            parallel: view.parallel,
            parallel_at_samples: view.parallel_at_samples,
            followed: rounded(view.followed.share(), 6),
            age_s: view.age(now).map(Micros::as_secs_f64),
            confidence: estimate.map(|estimate| rounded(estimate.confidence.value(), 3)),
            rule: estimate.map(|estimate| estimate.rule.name()),
            no_estimate: no_estimate.map(|why| why.reason),
            no_estimate_message: no_estimate.map(|why| why.to_string()),
            transfer_outcomes: view.outcomes,
            traffic: TrafficDocument::new(&view.traffic, began),
            opening: OpeningDocument::in_force(view, mss, now),
            compared: ComparedDocument::all(view, mss, now),
            trend: None,
        }
    }

    /// The same with the window in steps.
    pub(super) fn with_trend(self, trend: Option<TrendDocument>) -> Self {
        Self { trend, ..self }
    }
}

/// The window in steps.
#[derive(Debug, Serialize)]
pub(super) struct TrendDocument {
    step_s: f64,
    /// Quartiles of the samples.
    wc_quartiles_bytes: Option<[f64; 2]>,
    /// Smallest and largest mean round-trip time of a step.
    rtt_range_ms: Option<[f64; 2]>,
    points: Vec<StepDocument>,
}

#[derive(Debug, Serialize)]
struct StepDocument {
    at: String,
    wc_bytes: Option<f32>,
    rtt_mean_ms: Option<f64>,
    samples: u32,
    losses: u32,
}

impl TrendDocument {
    pub(super) fn new(trend: &Trend) -> Self {
        let means = || trend.points.iter().filter_map(|point| point.rtt_mean);
        let range = means().min().zip(means().max());
        let nanos = trend.step.0.saturating_mul(1_000);
        Self {
            step_s: trend.step.as_secs_f64(),
            wc_quartiles_bytes: trend.quartiles.map(|quartiles| quartiles.map(|bytes| rounded(bytes, 1))),
            rtt_range_ms: range.map(|(least, most)| [least.as_millis_f64(), most.as_millis_f64()]),
            points: trend
                .points
                .iter()
                .map(|point| StepDocument {
                    at: rfc3339_ms(Timestamp(point.index.saturating_mul(nanos))),
                    wc_bytes: point.share,
                    rtt_mean_ms: point.rtt_mean.map(Micros::as_millis_f64),
                    samples: point.samples,
                    losses: point.losses,
                })
                .collect(),
        }
    }
}
