//! `/v1/networks` and `/v1/networks/PREFIX`: what is known about networks.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::{Extension, Json};
use spand_core::networks::view::NetworkView;
use spand_proto::network::Network;

use super::documents::{NetworkDocument, NetworksDocument, TrendDocument};
use super::parameters::Parameters;
use super::problem::{Problem, quote};
use super::sort::{Page, SORTS, Sort};
use crate::api::Api;
use crate::api::connection::Peer;
use crate::names::Names;
use crate::publisher::Published;

const PARAMETERS: [&str; 8] = ["limit", "offset", "sort", "order", "within", "estimate", "search", "trend"];

/// Networks of one answer where no limit is given, and at most.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// Networks read under one hold of the lock, for which starts wait: well under a tenth of a millisecond.
const READ_CHUNK: usize = 512;

pub(super) async fn list(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<Json<NetworksDocument>, Problem> {
    let parameters = Parameters::parse(&uri, &PARAMETERS)?;
    let limit = parameters.number("limit", &(1..=MAX_LIMIT))?.unwrap_or(DEFAULT_LIMIT);
    let offset = parameters.number("offset", &(0..=usize::MAX))?.unwrap_or(0);
    let sort = parameters.word("sort", &SORTS)?.unwrap_or(Sort::Prefix);
    let descending = parameters.word("order", &[("asc", false), ("desc", true)])?.unwrap_or(false);
    let within = parameters.value::<Network>("within")?;
    let estimate = parameters.word("estimate", &[("yes", true), ("no", false)])?;
    let search = parameters.text("search").map(Search::parse).transpose()?;
    let trend = parameters.word("trend", &[("yes", true), ("no", false)])?.unwrap_or(false);

    let (published, names) = (api.shared.published.clone(), api.names().get());
    let list = move || {
        let matches = |view: &NetworkView| {
            within.is_none_or(|within| within.prefix().contains(&view.network.prefix()))
                && estimate.is_none_or(|wanted| view.estimate.is_some() == wanted)
                && search.as_ref().is_none_or(|search| search.finds(view.network, &names))
        };
        let (views, now) = (matching(&published, matches), published.now());
        let began = published.engine().oldest;
        let page = Page { sort, descending, offset, limit }.of(&views, now);
        let total = views.len();
        drop(views);
        let mut networks: Vec<_> = page.iter().map(|view| NetworkDocument::new(view, &names, began, now)).collect();
        if trend {
            let prefixes: Vec<_> = page.iter().map(|view| view.network).collect();
            let trends = published.trends_of(&prefixes, |trend| trend.map(TrendDocument::new));
            networks = networks.into_iter().zip(trends).map(|(network, trend)| network.with_trend(trend)).collect();
        }
        let next = offset.saturating_add(networks.len());
        let next_offset = (next < total && !networks.is_empty()).then_some(next);
        NetworksDocument { networks, total, next_offset }
    };
    let list = api.shared.costly.lists.make(peer.address, list).await;
    list.map(Json).map_err(|error| Problem::not_made(&error))
}

/// All networks that match, in order of prefix.
fn matching(published: &Published, matches: impl Fn(&NetworkView) -> bool) -> Vec<Arc<NetworkView>> {
    let mut views = Vec::new();
    let mut after = None;
    loop {
        let page = published.page(after, READ_CHUNK);
        let Some(last) = page.last() else { return views };
        after = Some(last.network);
        views.extend(page.into_iter().filter(|view| matches(view)));
    }
}

/// One network, by prefix or by an address inside it.
pub(super) async fn one(
    State(api): State<Api>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<NetworkDocument>, Problem> {
    Parameters::parse(&uri, &[])?;
    let published = &api.shared.published;
    let view = find(published, path, "/v1/networks/")?;
    Ok(Json(NetworkDocument::new(&view, &api.names().get(), published.engine().oldest, published.now())))
}

/// The network that the part of an address after `before` names, by prefix or by an address inside it.
pub(super) fn find(
    published: &Published,
    path: Result<Path<String>, PathRejection>,
    before: &str,
) -> Result<Arc<NetworkView>, Problem> {
    let Path(text) = path.map_err(|_| {
        let detail = format!("the part after {before} cannot be read: write a network, such as 192.0.2.0/24");
        Problem::bad_request(detail)
    })?;
    let found = if let Ok(address) = text.parse::<IpAddr>() {
        published.lookup(address)
    } else {
        let network: Network = quote(&text).parse().map_err(|error| Problem::bad_request(format!("{error}")))?;
        published.network(network)
    };
    found.ok_or_else(|| {
        let detail = format!("nothing was seen of {} within the window of time that is kept", quote(&text));
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

/// What a person types to find networks: an address inside, a network around, or a part of the prefix as it is written or of a name.
#[derive(Debug)]
enum Search {
    Address(IpAddr),
    Within(Network),
    Part(String),
}

/// No prefix is written longer.
const MAX_SEARCH_BYTES: usize = 64;

impl Search {
    fn parse(text: &str) -> Result<Self, Problem> {
        if text.len() > MAX_SEARCH_BYTES {
            let detail =
                format!("search is longer than {MAX_SEARCH_BYTES} bytes: give an address, a network, or a part");
            return Err(Problem::bad_request(detail));
        }
        let text = text.trim();
        Ok(match (text.parse::<IpAddr>(), text.parse()) {
            (Ok(address), _) => Self::Address(address.to_canonical()),
            (_, Ok(network)) => Self::Within(network),
            _ => Self::Part(text.to_lowercase()),
        })
    }

    fn finds(&self, network: Network, names: &Names) -> bool {
        match self {
            Self::Address(address) => network.contains(*address),
            Self::Within(within) => within.covers(network),
            Self::Part(part) => {
                network.to_string().contains(part) || (!names.is_empty() && names.of(network).matches(part))
            }
        }
    }
}
