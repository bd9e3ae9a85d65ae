//! `query`: asks the gateway for advice.

use spand_proto::operator::{AdviceDocument, Failure};
use spand_proto::query::{Advice, Answer, Query as Questions, Question};
use spand_proto::units::{Bytes, Micros, Segments, counted};

use super::{addresses, print_answers, print_json_answers};
use crate::args::Query;
use crate::config::Config;
use crate::control::{Reply, Request, try_ask};
use crate::subscriber::{Dialer, ask};

pub(crate) fn query(mut config: Config, query: &Query) -> Result<(), Failure> {
    if let Some(url) = &query.gateway {
        config.gateway.only(url);
        // A URL with http:// is explicit.
        config.gateway.plain_text = true;
    }
    config.check().map_err(Failure::Usage)?;
    let dialer = Dialer::new(&config)?;
    if let Some(url) = in_use(&config) {
        dialer.take_seat(&url);
    }
    let handshake_rtt = handshake_rtt(query.handshake_ms)?;
    let question = |address| Question {
        address,
        size: query.bytes.map(|bytes| Bytes(bytes.get())).into(),
        mss: query.mss.map(|mss| Bytes(mss.get())),
        snd_wnd: query.peer_window.map(|window| Bytes(window.get())),
        handshake_rtt,
        service: None,
    };
    let questions = Questions {
        mode: Some(config.mode),
        initial_window: Segments(config.policy.initial_window_segments.get()),
        questions: addresses(&query.destination)?.into_iter().map(question).collect(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    let answers = runtime.block_on(ask(&dialer, &questions));
    // A resolver that does not answer must not hold up the end of the program.
    runtime.shutdown_background();
    let (answers, now) = answers?;
    if query.format.json {
        let documents: Vec<_> = answers.into_iter().map(|answer| AdviceDocument::new(answer, now)).collect();
        print_json_answers(&query.destination, &documents)
    } else {
        print_answers(&answers, for_people)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be positive, and below an hour in microseconds"
)]
fn handshake_rtt(ms: Option<f64>) -> Result<Option<Micros>, Failure> {
    match ms {
        Some(ms) if ms > 0.0 && ms < 3_600_000.0 => Ok(Some(Micros(((ms * 1_000.0).round() as u64).max(1)))),
        Some(ms) => Err(Failure::Usage(format!("--handshake-ms is {ms}: give milliseconds above 0 and below an hour"))),
        None => Ok(None),
    }
}

/// The gateway that a running agent is subscribed to, where there is a choice.
fn in_use(config: &Config) -> Option<String> {
    if config.gateway.list().len() < 2 {
        return None;
    }
    match try_ask(&config.control_socket(), &Request::Status) {
        Ok(Reply::Status(status)) if status.gateway.connected => Some(status.gateway.url),
        _ => None,
    }
}

fn for_people(answer: &Answer) -> String {
    let mut lines = Vec::new();
    match &answer.estimate {
        None => lines.push(format!("{}: no estimate", answer.address)),
        Some(estimate) => {
            let rtt = estimate.rtt_mean.map_or_else(|| "not known".to_owned(), |rtt| rtt.to_string());
            lines.push(format!(
                "{} in {}: share {:.1} segments of {}, mean round trip {rtt}, {} of {}",
                answer.address,
                estimate.network,
                estimate.share.segments_f64(estimate.mss),
                estimate.mss,
                counted(estimate.samples, "sample", "samples"),
                counted(estimate.connections, "connection", "connections"),
            ));
        }
    }
    match &answer.advice {
        Advice::Start(start) => {
            let clipped = start
                .clipped_by
                .map_or_else(String::new, |limit| format!(" (clipped by {limit} from {})", start.account.shifted.0));
            lines.push(format!("start with a window of {}{clipped}, {}", start.cwnd, start.threshold()));
            if let Some(pacing) = start.pacing {
                lines.push(format!("paced after {}: {} over {}", pacing.after_segments, pacing.rate, pacing.rtt));
            }
            lines.push(format!("mode {}, good for {:.0} s", start.mode, answer.lifetime.as_secs_f64()));
        }
        Advice::Refused { reason, message } => lines.push(format!("plain TCP: {message} ({reason})")),
    }
    lines.join("\n")
}
