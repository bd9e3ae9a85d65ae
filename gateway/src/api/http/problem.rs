//! Errors as problem documents (RFC 9457).

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::task::JoinError;

/// An error for a client: its status and one sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

#[derive(Serialize)]
struct Document {
    title: &'static str,
    status: u16,
    detail: String,
}

/// Longest part of a client's own text that is repeated to it, in characters.
const QUOTED_CHARS: usize = 64;

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// The answer could not be made.
    pub(super) fn not_made(error: &JoinError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the answer could not be made ({error}): ask again"))
    }

    /// The request cannot be understood.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let document = Document { title, status: self.status.as_u16(), detail: self.detail };
        let mut response = (self.status, Json(document)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

/// The start of a client's text, fit for a message.
pub(super) fn quote(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(QUOTED_CHARS).collect()
}
