//! `/v1/totals`: the gateway as a whole over time.

use std::str::FromStr;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use spand_proto::comparison::CLASS_NAMES;
use spand_proto::operator::{rfc3339, rfc3339_ms};
use spand_proto::units::{Micros, Timestamp, rounded};
use strum::VariantArray;

use super::parameters::Parameters;
use super::problem::Problem;
use crate::api::Api;
use crate::api::connection::Peer;
use crate::totals::{Counts, Gauges, Point, Step};

const PARAMETERS: [&str; 4] = ["from", "to", "step", "format"];
const STEPS: [(&str, Step); 3] = [("1m", Step::Minute), ("10m", Step::TenMinutes), ("1h", Step::Hour)];
const DAY: Micros = Micros::from_secs(24 * 3_600);

#[derive(Clone, Copy, Debug)]
enum Format {
    Json,
    Csv,
}

/// A moment in a query string.
#[derive(Clone, Copy, Debug)]
struct Moment(Timestamp);

/// A text that is none.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no moment: write one in UTC, such as 2027-01-15T08:00:00Z")]
struct NotAMoment(String);

impl FromStr for Moment {
    type Err = NotAMoment;

    fn from_str(text: &str) -> Result<Self, NotAMoment> {
        let since_epoch = humantime::parse_rfc3339(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = since_epoch.and_then(|since| u64::try_from(since.as_nanos()).ok());
        nanos.map(|nanos| Self(Timestamp(nanos))).ok_or_else(|| NotAMoment(text.to_owned()))
    }
}

pub(super) async fn totals(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<Response, Problem> {
    let parameters = Parameters::parse(&uri, &PARAMETERS)?;
    let now = api.shared.published.now();
    let until = parameters.value::<Moment>("to")?.map_or(now, |Moment(at)| at);
    let since = parameters.value::<Moment>("from")?.map_or(until.before(DAY), |Moment(at)| at);
    if since >= until {
        let (since, until) = (rfc3339(since), rfc3339(until));
        return Err(Problem::bad_request(format!("from ({since}) is not before to ({until}): give an earlier one")));
    }
    let holds = |step: &&Step| now.since(since) <= step.span();
    let finest = Step::VARIANTS.iter().find(holds).copied().unwrap_or(Step::Hour);
    let step = parameters.word("step", &STEPS)?.unwrap_or(finest);
    let format = parameters.word("format", &[("json", Format::Json), ("csv", Format::Csv)])?.unwrap_or(Format::Json);
    let also = api.clone();
    let make = move || {
        // A step that began before and reaches into the time asked for is part of it.
        let points = also.shared.totals.lock().points(step, step.beginning(since), until);
        match format {
            Format::Json => Json(TotalsDocument {
                at: rfc3339_ms(now),
                step_s: step.length().as_secs_f64(),
                since: rfc3339_ms(since),
                until: rfc3339_ms(until),
                sizes: CLASS_NAMES,
                points: points.into_iter().map(PointDocument::from).collect(),
            })
            .into_response(),
            Format::Csv => ([(CONTENT_TYPE, "text/csv; charset=utf-8")], csv(&points)).into_response(),
        }
    };
    api.shared.costly.lists.make(peer.address, make).await.map_err(|error| Problem::not_made(&error))
}

#[derive(Debug, Serialize)]
struct TotalsDocument {
    at: String,
    step_s: f64,
    since: String,
    until: String,
    /// Size classes of `difference_percent`.
    sizes: [&'static str; CLASS_NAMES.len()],
    points: Vec<PointDocument>,
}

#[derive(Debug, Serialize)]
struct PointDocument {
    at: String,
    observed_s: f64,
    /// There is no point for the step before.
    gap: bool,
    #[serde(flatten)]
    counts: Counts,
    #[serde(flatten)]
    gauges: Gauges,
    difference_percent: Vec<Option<[f64; 3]>>,
}

impl From<(Point, bool)> for PointDocument {
    fn from((point, gap): (Point, bool)) -> Self {
        Self {
            at: rfc3339(point.at),
            observed_s: observed_s(&point),
            gap,
            counts: point.counts,
            gauges: point.gauges,
            difference_percent: differences(&point),
        }
    }
}

fn observed_s(point: &Point) -> f64 {
    rounded(point.observed.as_secs_f64(), 1)
}

fn differences(point: &Point) -> Vec<Option<[f64; 3]>> {
    point.differences.iter().map(|found| found.map(|percent| percent.map(|value| rounded(value, 3)))).collect()
}

/// One line a step, with the names of the JSON; what is not known is empty.
fn csv(points: &[(Point, bool)]) -> Vec<u8> {
    let names = |names: &[(&str, u64)]| names.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    let mut head: Vec<String> = ["at", "observed_s", "gap"].map(str::to_owned).into();
    head.extend(names(&Counts::default().named()));
    head.extend(names(&Gauges::default().named()));
    let ends = ["difference", "difference_low", "difference_high"];
    head.extend(CLASS_NAMES.iter().flat_map(|size| ends.map(|end| format!("{size}_{end}_percent"))));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let lines = points.iter().map(|(point, gap)| {
        let mut line = vec![rfc3339(point.at), observed_s(point).to_string(), gap.to_string()];
        let counts = point.counts.named().into_iter().chain(point.gauges.named());
        line.extend(counts.map(|(_, count)| count.to_string()));
        let differences =
            differences(point).into_iter().flat_map(|found| found.map_or([None; 3], |ends| ends.map(Some)));
        line.extend(differences.map(|value| value.map_or_else(String::new, |value| value.to_string())));
        line
    });
    for line in std::iter::once(head).chain(lines) {
        // To memory, and lines of one length: nothing that fails.
        drop(writer.write_record(line));
    }
    writer.into_inner().unwrap_or_default()
}
