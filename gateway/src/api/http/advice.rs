//! `/v1/advice`: how a connection should start, with every step.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use spand_proto::operator::AdviceDocument;
use spand_proto::query::Question;
use spand_proto::start::{DEFAULT_INITIAL_WINDOW, Mode, TransferSize};
use spand_proto::units::{Bytes, Micros, Segments};

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
    Ok(Json(AdviceDocument::new(answer, published.now())))
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
