//! Answers in JSON that are made once for all who wait for them.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tonic::codegen::Bytes;

use super::problem::Problem;
use crate::api::costly::Shared;

/// A document that was written down for several.
#[derive(Debug)]
pub(super) struct SharedJson(Bytes);

const JSON: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/json")];

impl SharedJson {
    /// What `make` makes, or what another waits for already.
    pub(super) async fn of<T: Serialize>(
        shared: &Shared<Bytes>,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, Problem> {
        // Documents of ours have no maps with keys that JSON does not know, which is all that fails.
        let write = move || serde_json::to_vec(&make()).map_or_else(|_| Bytes::new(), Bytes::from);
        let text = shared.get(write).await.map_err(|error| Problem::not_made(&error))?;
        if text.is_empty() {
            let why = "the answer could not be written down; this is a fault of ours";
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why));
        }
        Ok(Self(text))
    }
}

impl IntoResponse for SharedJson {
    fn into_response(self) -> Response {
        (JSON, self.0).into_response()
    }
}
