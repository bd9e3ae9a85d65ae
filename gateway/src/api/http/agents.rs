//! `/v1/agents`: who is subscribed, and what they report.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::extract::State;
use axum::http::Uri;
use axum::{Extension, Json};
use serde::Serialize;
use spand_proto::operator::{rfc3339, rfc3339_ms};
use spand_proto::push::ApplyMethod;
use spand_proto::start::Mode;

use super::parameters::Parameters;
use super::problem::Problem;
use crate::api::Api;
use crate::api::connection::Peer;
use crate::api::reports::{HostTally, NameHeard};
use crate::publisher::SubscriberView;

const PARAMETERS: [&str; 3] = ["limit", "offset", "search"];

/// Agents of one answer where no limit is given, and at most.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;
/// Addresses shown of one agent; it may have a thousand.
const SHOWN_ADDRESSES: usize = 8;

pub(super) async fn agents(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<Json<AgentsDocument>, Problem> {
    let parameters = Parameters::parse(&uri, &PARAMETERS)?;
    let limit = parameters.number("limit", &(1..=MAX_LIMIT))?.unwrap_or(DEFAULT_LIMIT);
    let offset = parameters.number("offset", &(0..=usize::MAX))?.unwrap_or(0);
    let search = parameters.text("search").map(|part| part.trim().to_lowercase());
    let also = api.clone();
    let list = move || {
        let mut subscribers = also.shared.published.subscribers();
        if let Some(part) = &search {
            subscribers.retain(|view| finds(part, view));
        }
        let total = subscribers.len();
        let page = subscribers.into_iter().skip(offset).take(limit);
        let agents: Vec<_> = page
            .map(|view| {
                let who = view.subscriber.client.as_ref().zip(view.subscriber.host_name.as_ref());
                let heard = who.and_then(|(client, name)| also.shared.reports.heard(client, name)).unwrap_or_default();
                AgentDocument::new(&view, heard)
            })
            .collect();
        let next = offset.saturating_add(agents.len());
        let next_offset = (next < total && !agents.is_empty()).then_some(next);
        AgentsDocument { agents, total, next_offset }
    };
    let list = api.shared.costly.lists.make(peer.address, list).await;
    list.map(Json).map_err(|error| Problem::not_made(&error))
}

/// Whether a part is of the host's name or of one of its addresses.
fn finds(part: &str, view: &SubscriberView) -> bool {
    let name = view.subscriber.host_name.as_ref();
    name.is_some_and(|name| name.to_string().to_lowercase().contains(part))
        || view.addresses.iter().any(|address| address.to_string().contains(part))
}

/// Subscribed agents, in the order in which they came.
#[derive(Debug, Serialize)]
pub(super) struct AgentsDocument {
    agents: Vec<AgentDocument>,
    total: usize,
    next_offset: Option<usize>,
}

#[derive(Debug, Serialize)]
struct AgentDocument {
    host_name: Option<String>,
    /// The names of its certificate.
    certificate: Option<String>,
    version: Option<String>,
    mode: Option<&'static str>,
    method: Option<&'static str>,
    /// `null` where the agent does not say.
    paused: Option<bool>,
    /// `null` where the pause does not end by itself.
    paused_until: Option<String>,
    addresses: Vec<IpAddr>,
    addresses_in_all: usize,
    subscribed_at: String,
    waiting_starts: usize,
    /// `null` where it reported nothing.
    reported: Option<ReportedDocument>,
}

#[derive(Debug, Serialize)]
struct ReportedDocument {
    last_report_age_s: f64,
    transfers: u64,
    applied: u64,
    transfers_control: u64,
    transfers_paused: u64,
    first_flight_losses: u64,
    refused_by_reason: BTreeMap<&'static str, u64>,
    pushes: PushesDocument,
    /// `null` where the apply method sees no connections.
    starts_unseen: Option<bool>,
}

#[derive(Debug, Serialize)]
struct PushesDocument {
    received: u64,
    in_time: u64,
    late: u64,
    unmatched: u64,
}

impl AgentDocument {
    fn new(view: &SubscriberView, NameHeard { paused, tally }: NameHeard) -> Self {
        let agent = view.subscriber.agent.as_ref();
        Self {
            host_name: view.subscriber.host_name.as_ref().map(ToString::to_string),
            certificate: view.subscriber.certificate.clone(),
            version: agent.map(|agent| agent.version.clone()),
            mode: agent.and_then(|agent| agent.mode).map(Mode::name),
            method: agent.and_then(|agent| agent.method).map(ApplyMethod::name),
            paused: paused.map(|pause| pause.paused),
            paused_until: paused.and_then(|pause| pause.until).map(rfc3339),
            addresses: view.addresses.iter().take(SHOWN_ADDRESSES).copied().collect(),
            addresses_in_all: view.addresses.len(),
            subscribed_at: rfc3339_ms(view.since),
            waiting_starts: view.waiting_starts,
            reported: tally.map(|tally| {
                let sees = agent.and_then(|agent| agent.method) == Some(ApplyMethod::Bpf);
                ReportedDocument::new(tally, sees)
            }),
        }
    }
}

impl ReportedDocument {
    fn new(tally: HostTally, sees_connections: bool) -> Self {
        let starts_unseen = sees_connections.then(|| tally.starts_unseen());
        let refused = tally.refused.into_iter().filter(|(_, count)| *count > 0);
        Self {
            last_report_age_s: tally.heard.elapsed().as_secs_f64(),
            transfers: tally.transfers,
            applied: tally.applied,
            transfers_control: tally.control,
            transfers_paused: tally.paused,
            first_flight_losses: tally.first_flight_losses,
            refused_by_reason: refused.map(|(reason, count)| (reason.name(), count)).collect(),
            pushes: PushesDocument {
                received: tally.pushes.received,
                in_time: tally.pushes.in_time,
                late: tally.pushes.late,
                unmatched: tally.pushes.unmatched,
            },
            starts_unseen,
        }
    }
}
