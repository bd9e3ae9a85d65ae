//! `/v1/advice`: how a connection should start, with every step.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use spand_proto::query::{Advice, Answer, Question};
use spand_proto::start::{Account, Bound, DEFAULT_INITIAL_WINDOW, Limit, Mode, Pacing, RttCheck, Start, TransferSize};
use spand_proto::units::{Bytes, Micros, Segments};

use super::documents::EstimateDocument;
use super::parameters::Parameters;
use super::problem::{Problem, quote};
use crate::api::{Api, advice};

const PARAMETERS: [&str; 8] = ["destination", "bytes", "mss", "mode", "snd_wnd", "rtt_ms", "initial_window", "service"];

pub(super) async fn advice(State(api): State<Api>, uri: Uri) -> Result<Json<AdviceDocument>, Problem> {
    let parameters = Parameters::parse(&uri, &PARAMETERS)?;
    let question = question(&parameters)?;
    let mode = parameters.value::<Mode>("mode")?.unwrap_or(api.shared.config.mode);
    let initial_window = parameters.number("initial_window", &(1..=65_535))?.map(Segments);
    let initial_window = initial_window.unwrap_or(DEFAULT_INITIAL_WINDOW);
    advice::check(initial_window, &question).map_err(|absurd| Problem::bad_request(absurd.to_string()))?;
    let published = &api.shared.published;
    let answer = advice::answer(published, mode, initial_window, &question);
    let estimate = answer.estimate.as_ref().map(|estimate| EstimateDocument::new(estimate, published.now()));
    Ok(Json(AdviceDocument::new(answer, estimate)))
}

fn question(parameters: &Parameters) -> Result<Question, Problem> {
    let Some(destination) = parameters.text("destination") else {
        let detail = "no destination is given: add destination=ADDRESS, such as destination=192.0.2.7";
        return Err(Problem::bad_request(detail));
    };
    let address = destination.parse().map_err(|_| {
        let destination = quote(destination);
        Problem::bad_request(format!(
            "destination is `{destination}`: give an address, such as 192.0.2.7 or 2001:db8::7"
        ))
    })?;
    Ok(Question {
        address,
        size: TransferSize::from(parameters.number("bytes", &(1..=u64::MAX))?.map(Bytes)),
        mss: parameters.number("mss", &(1..=65_535))?.map(Bytes),
        snd_wnd: parameters.number("snd_wnd", &(0..=1 << 30))?.map(Bytes),
        handshake_rtt: parameters.number("rtt_ms", &(0.001..=600_000.0))?.map(micros),
        service: service(parameters)?,
    })
}

fn service(parameters: &Parameters) -> Result<Option<SocketAddr>, Problem> {
    let Some(text) = parameters.text("service") else { return Ok(None) };
    let service = text.parse::<SocketAddr>().map_err(|_| {
        let text = quote(text);
        Problem::bad_request(format!("service is `{text}`: give address and port, such as 203.0.113.10:443"))
    })?;
    Ok(Some(SocketAddr::new(service.ip().to_canonical(), service.port())))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be 0.001 to 600,000 ms")]
fn micros(ms: f64) -> Micros {
    Micros((ms * 1_000.0).round() as u64)
}

/// An answer in JSON. Exactly one of `start` and `refusal` is there.
#[derive(Debug, Serialize)]
pub(super) struct AdviceDocument {
    destination: String,
    estimate: Option<EstimateDocument>,
    lifetime_ms: u64,
    start: Option<StartDocument>,
    refusal: Option<RefusalDocument>,
}

#[derive(Debug, Serialize)]
struct StartDocument {
    cwnd_segments: u32,
    ssthresh_segments: u32,
    mss_bytes: u64,
    pacing: Option<PacingDocument>,
    clipped_by: Option<&'static str>,
    mode: &'static str,
    account: AccountDocument,
}

#[derive(Debug, Serialize)]
struct PacingDocument {
    after_segments: u32,
    rate_bytes_per_second: u64,
    rtt_ms: f64,
}

#[derive(Debug, Serialize)]
struct AccountDocument {
    share_segments: u32,
    transfer: Option<TransferDocument>,
    shifted_segments: u32,
    bounds: Vec<BoundDocument>,
    rtt_check: &'static str,
}

#[derive(Debug, Serialize)]
struct TransferDocument {
    size_segments: u32,
    epoch_segments: u64,
    remainder_segments: u32,
    optimal_segments: u32,
    rounds: u64,
}

#[derive(Debug, Serialize)]
struct BoundDocument {
    limit: &'static str,
    limit_segments: u32,
    before_segments: u32,
    after_segments: u32,
}

#[derive(Debug, Serialize)]
struct RefusalDocument {
    reason: &'static str,
    message: String,
}

impl AdviceDocument {
    fn new(answer: Answer, estimate: Option<EstimateDocument>) -> Self {
        let (start, refusal) = match answer.advice {
            Advice::Start(start) => (Some(start.into()), None),
            Advice::Refused { reason, message } => (None, Some(RefusalDocument { reason: reason.name(), message })),
        };
        let destination = answer.address.to_string();
        Self { destination, estimate, lifetime_ms: answer.lifetime.0 / 1_000, start, refusal }
    }
}

impl From<Start> for StartDocument {
    fn from(start: Start) -> Self {
        Self {
            cwnd_segments: start.cwnd.0,
            ssthresh_segments: start.ssthresh.0,
            mss_bytes: start.mss.0,
            pacing: start.pacing.map(PacingDocument::from),
            clipped_by: start.clipped_by.map(Limit::name),
            mode: start.mode.name(),
            account: start.account.into(),
        }
    }
}

impl From<Pacing> for PacingDocument {
    fn from(pacing: Pacing) -> Self {
        Self {
            after_segments: pacing.after_segments.0,
            rate_bytes_per_second: pacing.rate.0,
            rtt_ms: pacing.rtt.as_millis_f64(),
        }
    }
}

impl From<Account> for AccountDocument {
    fn from(account: Account) -> Self {
        Self {
            share_segments: account.share.0,
            transfer: account.transfer.map(|steps| TransferDocument {
                size_segments: steps.size.0,
                epoch_segments: steps.epoch_segments,
                remainder_segments: steps.remainder.0,
                optimal_segments: steps.optimal.0,
                rounds: steps.rounds,
            }),
            shifted_segments: account.shifted.0,
            bounds: account.bounds.into_iter().map(BoundDocument::from).collect(),
            rtt_check: match account.rtt_check {
                RttCheck::Off => "off",
                RttCheck::NoHandshake => "no_handshake",
                RttCheck::Passed => "passed",
            },
        }
    }
}

impl From<Bound> for BoundDocument {
    fn from(bound: Bound) -> Self {
        Self {
            limit: bound.limit.name(),
            limit_segments: bound.value.0,
            before_segments: bound.before.0,
            after_segments: bound.after.0,
        }
    }
}
