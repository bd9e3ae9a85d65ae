//! `/v1/share`: what this gateway shares with others, and who they are.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use spand_cells::{GatewayId, TapId};
use spand_proto::operator::rfc3339_ms;
use spand_proto::units::{Micros, Timestamp};
use spand_share::exchange::{LinkState, SiteStream, StreamFault, Topic};
use spand_share::format::Member;
use spand_share::{Incompatible, MemberView, ShareMeasures, ShareStatus, ShareView};

use super::parameters::Parameters;
use super::problem::Problem;
use super::shared::SharedJson;
use crate::api::Api;
use crate::publisher::Published;

pub(super) async fn share(State(api): State<Api>, uri: Uri) -> Result<SharedJson, Problem> {
    Parameters::parse(&uri, &[])?;
    let (published, share) = (api.shared.published.clone(), api.shared.share.clone());
    let make = move || {
        let share = share.and_then(|share| SharingDocument::new(&share, &published));
        ShareDocument { configured: share.is_some(), share }
    };
    SharedJson::of(&api.shared.costly.share, make).await
}

#[derive(Debug, Serialize)]
struct ShareDocument {
    configured: bool,
    /// Nothing where nothing is shared.
    #[serde(flatten)]
    share: Option<SharingDocument>,
}

#[derive(Debug, Serialize)]
struct SharingDocument {
    at: String,
    gateway: u16,
    cluster: String,
    site: String,
    /// `null`: the tap is this gateway's alone.
    mirror_group: Option<u16>,
    link: LinkDocument,
    streams: Vec<StreamDocument>,
    members: Vec<MemberDocument>,
    lag: LagDocument,
    cells_taken: u64,
    cells_known: u64,
    cells_dropped: u64,
    notices_dropped: u64,
    messages_refused_by_reason: BTreeMap<&'static str, u64>,
    cells_refused_by_reason: BTreeMap<&'static str, u64>,
    agents: usize,
    seats_elsewhere: usize,
    subscriptions_adopted: u64,
}

#[derive(Debug, Serialize)]
struct LinkDocument {
    state: &'static str,
    /// `null` before the first change.
    since: Option<String>,
    /// Why it is down.
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct StreamDocument {
    site: String,
    /// Why the rest is `null`.
    fault: Option<&'static str>,
    replicas: Option<usize>,
    replicas_current: Option<usize>,
    /// `null` where it is no copy.
    lag_messages: Option<u64>,
    /// `null` too before it heard its source.
    lag_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct LagDocument {
    /// `null` before the first cell.
    closed_s: Option<f64>,
    open_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct MemberDocument {
    gateway: u16,
    name: String,
    version: String,
    address: Option<String>,
    mirror_group: Option<u16>,
    clock_offset_ms: f64,
    last_heard_age_s: f64,
    /// Why its cells do not count.
    incompatible: Option<&'static str>,
    cells_received: u64,
    connections_compared: u64,
    seen_by_both: u64,
    seats: usize,
    /// It sees the same packets, and nobody declared it.
    duplicate: bool,
}

impl SharingDocument {
    fn new(share: &ShareStatus, published: &Published) -> Option<Self> {
        let (view, measures, now) = (share.view(), share.measures(), published.now());
        let own = view.own.as_ref()?;
        let seats = published.seats_by_gateway();
        let [messages_refused_by_reason, cells_refused_by_reason] = measures.refused_by_reason();
        let lag = |topic| view.lag.get(&topic).copied().map(Micros::as_secs_f64);
        Some(Self {
            at: rfc3339_ms(now),
            gateway: number(own.gateway),
            cluster: view.cluster.clone(),
            site: view.site.clone(),
            mirror_group: own.tap.group(),
            link: LinkDocument::new(&view, now),
            streams: view.streams.lock().iter().map(StreamDocument::new).collect(),
            lag: LagDocument { closed_s: lag(Topic::Closed), open_s: lag(Topic::Open) },
            members: view.members.iter().map(|known| MemberDocument::new(known, &view, measures, &seats)).collect(),
            cells_taken: measures.cells_taken.get(),
            cells_known: measures.cells_known.get(),
            cells_dropped: measures.dropped.get() + measures.no_room.get(),
            notices_dropped: measures.notices_dropped.get() + published.measures().notices_dropped.get(),
            messages_refused_by_reason,
            cells_refused_by_reason,
            agents: published.subscriber_count(),
            seats_elsewhere: seats.values().sum(),
            subscriptions_adopted: published.measures().subscriptions_adopted.get(),
        })
    }
}

impl LinkDocument {
    fn new(view: &ShareView, now: Timestamp) -> Self {
        let since = view.since.map(|since| rfc3339_ms(before(now, since)));
        let (state, reason) = match &view.link {
            LinkState::Connecting => ("connecting", None),
            LinkState::Up => ("up", None),
            LinkState::Degraded(why) => ("degraded", Some(why.clone())),
            LinkState::Down(why) => ("down", Some(why.clone())),
        };
        Self { state, since, reason }
    }
}

impl StreamDocument {
    fn new(SiteStream { site, found }: &SiteStream) -> Self {
        let keeping = found.as_ref().ok();
        let copy = keeping.and_then(|keeping| keeping.copy.as_ref());
        Self {
            site: site.clone(),
            fault: found.as_ref().err().copied().map(StreamFault::name),
            replicas: keeping.map(|keeping| keeping.replicas),
            replicas_current: keeping.map(|keeping| keeping.current),
            lag_messages: copy.map(|lag| lag.messages),
            lag_s: copy.and_then(|lag| lag.heard).map(|heard| heard.as_secs_f64()),
        }
    }
}

impl MemberDocument {
    fn new(known: &MemberView, view: &ShareView, measures: &ShareMeasures, seats: &BTreeMap<GatewayId, usize>) -> Self {
        let Member { gateway, tap, name, version, address, .. } = &known.member;
        let [connections_compared, seen_by_both] = measures.compared_with(*gateway);
        Self {
            gateway: number(*gateway),
            name: name.clone(),
            version: version.clone(),
            address: address.clone(),
            mirror_group: TapId::group(*tap),
            clock_offset_ms: known.clock_ahead_us as f64 / 1_000.0,
            last_heard_age_s: known.heard.elapsed().as_secs_f64(),
            incompatible: known.incompatible.map(Incompatible::name),
            cells_received: view.cells_received.get(gateway).copied().unwrap_or_default(),
            connections_compared,
            seen_by_both,
            seats: seats.get(gateway).copied().unwrap_or_default(),
            duplicate: measures.is_duplicate(*gateway),
        }
    }
}

fn number(GatewayId(number): GatewayId) -> u16 {
    number
}

/// When that was, by the clock of packets.
fn before(now: Timestamp, then: Instant) -> Timestamp {
    let nanos = u64::try_from(then.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Timestamp(now.0.saturating_sub(nanos))
}
