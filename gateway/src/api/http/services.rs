//! `/v1/services`: how large the transfers of the services inside are.

use std::net::{IpAddr, SocketAddr};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use spand_core::service::ServiceSize;

use super::parameters::Parameters;
use super::problem::Problem;
use crate::api::Api;

const PARAMETERS: [&str; 3] = ["limit", "after", "host"];

/// Services of one answer where no limit is given, and at most.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

pub(super) async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<ServicesDocument>, Problem> {
    let parameters = Parameters::parse(&uri, &PARAMETERS)?;
    let limit = parameters.number("limit", &(1..=MAX_LIMIT))?.unwrap_or(DEFAULT_LIMIT);
    let after = parameters.value::<SocketAddr>("after")?;
    let host = parameters.value::<IpAddr>("host")?.map(|host| host.to_canonical());
    if let (Some(host), Some(after)) = (host, after)
        && after.ip() != host
    {
        return Err(Problem::bad_request(format!("after is {after}, which is no service of {host}: leave one out")));
    }
    let published = &api.shared.published;
    let sizes = published.services(host, after, limit);
    let next_after = sizes.last().filter(|_| sizes.len() == limit).map(|last| last.service.to_string());
    let services = sizes.into_iter().map(ServiceDocument::from).collect();
    Ok(Json(ServicesDocument { services, total: published.service_count(), next_after }))
}

/// A list of services in JSON.
#[derive(Debug, Serialize)]
pub(super) struct ServicesDocument {
    services: Vec<ServiceDocument>,
    /// Services known, of all hosts.
    total: usize,
    /// Where the next page begins; absent where this one is not full.
    next_after: Option<String>,
}

#[derive(Debug, Serialize)]
struct ServiceDocument {
    host: String,
    port: u16,
    quantile_bytes: u64,
    transfers: u32,
}

impl From<ServiceSize> for ServiceDocument {
    fn from(size: ServiceSize) -> Self {
        let ServiceSize { service, quantile, transfers } = size;
        Self { host: service.ip().to_string(), port: service.port(), quantile_bytes: quantile.0, transfers }
    }
}
