//! `/v1/history/PREFIX`: history of a network's share, and the agents that got it.

use std::net::IpAddr;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::{Extension, Json};
use serde::Serialize;
use spand_core::networks::view::NetworkView;
use spand_proto::operator::rfc3339_ms;
use spand_proto::units::{Micros, rounded};

use super::documents::TrendDocument;
use super::networks::find;
use super::parameters::Parameters;
use super::problem::Problem;
use crate::api::Api;
use crate::api::connection::Peer;
use crate::publisher::{NetworkHistory, Published, PushedStart, Sample};

/// Leases of one answer: the largest.
const MAX_LEASES: usize = 50;

pub(super) async fn history(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<HistoryDocument>, Problem> {
    Parameters::parse(&uri, &[])?;
    let published = api.shared.published.clone();
    let view = find(&published, path, "/v1/history/")?;
    let document = api.shared.costly.lists.make(peer.address, move || document(&published, &view)).await;
    document.map(Json).map_err(|error| Problem::not_made(&error))
}

fn document(published: &Published, view: &NetworkView) -> HistoryDocument {
    let subscribers = published.subscribers();
    let host_ids: Vec<u64> = subscribers.iter().map(|subscriber| subscriber.host_id).collect();
    let granted = published.leases_of(view.network, &host_ids);
    let mut leases: Vec<_> = subscribers
        .iter()
        .zip(granted)
        .filter(|(_, lease)| lease.0 > 0)
        .map(|(subscriber, lease)| LeaseDocument {
            host_name: subscriber.subscriber.host_name.as_ref().map(ToString::to_string),
            addresses: subscriber.addresses.iter().take(4).copied().collect(),
            lease_segments: lease.0,
        })
        .collect();
    leases.sort_by_key(|lease| std::cmp::Reverse(lease.lease_segments));
    leases.truncate(MAX_LEASES);
    let history = published.history(view.network).unwrap_or_default();
    let agents = match (&view.estimate, published.advertised_to(view.network)) {
        (None, _) => 0,
        (Some(_), None) => subscribers.len(),
        (Some(_), Some(advertised)) => host_ids.iter().filter(|id| advertised.contains(*id)).count(),
    };
    HistoryDocument::new(view.network.to_string(), &history, agents, leases)
}

/// What is remembered of a network.
#[derive(Debug, Serialize)]
pub(super) struct HistoryDocument {
    prefix: String,
    trend: Option<TrendDocument>,
    samples: Vec<SampleDocument>,
    distribution: DistributionDocument,
}

#[derive(Debug, Serialize)]
struct SampleDocument {
    at: String,
    remote: IpAddr,
    window_bytes: f64,
    mss_bytes: u64,
    reason: &'static str,
    lower_bound: bool,
    on_advice: bool,
    rtt_min_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct DistributionDocument {
    /// Agents to which the estimate is advertised.
    agents: usize,
    leases: Vec<LeaseDocument>,
    starts: Vec<StartDocument>,
}

#[derive(Debug, Serialize)]
struct LeaseDocument {
    host_name: Option<String>,
    addresses: Vec<IpAddr>,
    lease_segments: u32,
}

#[derive(Debug, Serialize)]
struct StartDocument {
    at: String,
    host: IpAddr,
    remote: IpAddr,
    trigger: &'static str,
    agents: usize,
}

impl HistoryDocument {
    fn new(prefix: String, history: &NetworkHistory, agents: usize, leases: Vec<LeaseDocument>) -> Self {
        let starts = history.starts.iter().map(StartDocument::new).collect();
        let distribution = DistributionDocument { agents, leases, starts };
        Self {
            prefix,
            trend: history.trend.as_ref().map(TrendDocument::new),
            samples: history.samples.iter().map(SampleDocument::new).collect(),
            distribution,
        }
    }
}

impl SampleDocument {
    fn new(sample: &Sample) -> Self {
        Self {
            at: rfc3339_ms(sample.at),
            remote: sample.remote,
            window_bytes: rounded(sample.window, 1),
            mss_bytes: sample.mss.0,
            reason: sample.reason.name(),
            lower_bound: sample.reason.is_lower_bound(),
            on_advice: sample.advised,
            rtt_min_ms: sample.rtt_min.map(Micros::as_millis_f64),
        }
    }
}

impl StartDocument {
    fn new(start: &PushedStart) -> Self {
        Self {
            at: rfc3339_ms(start.at),
            host: start.host,
            remote: start.remote,
            trigger: start.trigger.name(),
            agents: start.subscribers,
        }
    }
}
