//! `/healthz`, `/readyz` and `/metrics`.

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, VARY};
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use spand_proto::operator::Exposition;
use tonic::codegen::Bytes;

use super::problem::Problem;
use crate::api::Api;
use crate::publisher::Published;

/// The process answers.
#[derive(Debug, Serialize)]
pub(super) struct Health {
    status: &'static str,
}

/// Whether the gateway does its work, and why not.
#[derive(Debug, Serialize)]
pub(super) struct ReadyDocument {
    ready: bool,
    not_ready: Vec<PartDocument>,
}

#[derive(Debug, Serialize)]
struct PartDocument {
    part: &'static str,
    why: String,
}

pub(super) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

pub(super) async fn readyz(State(api): State<Api>) -> (StatusCode, Json<ReadyDocument>) {
    let document = ready(&api.shared.published);
    let status = if document.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(document))
}

pub(super) fn ready(published: &Published) -> ReadyDocument {
    let reasons = published.readiness().reasons();
    let not_ready: Vec<_> = reasons.into_iter().map(|(part, why)| PartDocument { part: part.name(), why }).collect();
    ReadyDocument { ready: not_ready.is_empty(), not_ready }
}

pub(super) async fn metrics(
    State(api): State<Api>,
    headers: HeaderMap,
) -> Result<([(HeaderName, &'static str); 2], Bytes), Problem> {
    let format = Exposition::accepted(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    let also = api.clone();
    let written = api.shared.costly.metrics.get(move || also.shared.metrics.written()).await;
    let written = written.map_err(|error| Problem::not_made(&error))?.map_err(|_| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics could not be written down; this is a fault of ours",
        )
    })?;
    Ok(([(CONTENT_TYPE, format.content_type()), (VARY, ACCEPT.as_str())], written.of(format)))
}
