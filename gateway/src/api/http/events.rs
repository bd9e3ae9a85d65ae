//! `/v1/events`: what happened, the newest of each kind.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use spand_proto::operator::rfc3339_ms;

use super::parameters::Parameters;
use super::problem::Problem;
use crate::api::Api;
use crate::publisher::{Entry, Published};

const PARAMETERS: [&str; 2] = ["limit", "from"];

/// Entries of one answer where no limit is given, and at most.
const DEFAULT_LIMIT: usize = 200;
const MAX_LIMIT: usize = 1_000;

pub(super) async fn events(State(api): State<Api>, uri: Uri) -> Result<Json<EventsDocument>, Problem> {
    let parameters = Parameters::parse(&uri, &PARAMETERS)?;
    let limit = parameters.number("limit", &(1..=MAX_LIMIT))?.unwrap_or(DEFAULT_LIMIT);
    let from = parameters.number("from", &(1..=u64::MAX))?.unwrap_or(1);
    Ok(Json(EventsDocument::new(&api.shared.published, from, limit)))
}

/// Entries in the order in which they came.
#[derive(Debug, Serialize)]
pub(super) struct EventsDocument {
    pub(super) events: Vec<EntryDocument>,
    /// From where a next question gets what is new.
    pub(super) next: u64,
    /// Entries from the one asked for on that are not here: gone, or beyond the limit.
    pub(super) missing: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct EntryDocument {
    sequence: u64,
    at: String,
    kind: &'static str,
    what: &'static str,
    subject: String,
    count: u64,
}

impl EventsDocument {
    pub(super) fn new(published: &Published, from: u64, limit: usize) -> Self {
        let (entries, next, missing) = published.log(from, limit);
        Self { events: entries.into_iter().map(EntryDocument::from).collect(), next, missing }
    }
}

impl From<Entry> for EntryDocument {
    fn from(entry: Entry) -> Self {
        let Entry { sequence, at, kind, what, subject, count, by: _ } = entry;
        Self { sequence, at: rfc3339_ms(at), kind: kind.name(), what, subject, count }
    }
}
