//! Questions to the gateway, apart from the subscription.

use std::time::Duration;

use spand_proto::convert::answers_from_wire;
use spand_proto::operator::Failure;
use spand_proto::query::{Answer, Query};
use spand_proto::units::Timestamp;
use spand_proto::v1;

use super::Dialer;
use super::dial::words;
use crate::clock::Clock;

/// The answers, and when they came.
pub(crate) async fn ask(dialer: &Dialer, questions: &Query) -> Result<(Vec<Answer>, Timestamp), Failure> {
    let url = dialer.seat();
    let timeout = Duration::from_millis(dialer.gateway().timeout_ms.get());
    let silent = |_| Failure::Environment(format!("the gateway at {url} does not answer within {timeout:?}"));
    // Longer than the lookup of the gateway's name may take: a lookup that fails has an error of its own.
    let connected = tokio::time::timeout(timeout * 2, dialer.connect()).await.map_err(silent)?;
    let mut client =
        connected.map_err(|why| Failure::Environment(format!("cannot reach the gateway at {url}: {why}")))?;
    let answered = tokio::time::timeout(timeout, async {
        client
            .query(v1::QueryRequest::from(questions))
            .await
            .map_err(|status| Failure::Environment(format!("the gateway at {url} refused: {}", words(&status))))
    });
    let response = answered.await.map_err(silent)??;
    let now = Clock::start().now();
    let answers = answers_from_wire(response.into_inner(), now)
        .map_err(|error| Failure::Environment(format!("the gateway at {url} gave an unknown answer: {error}")))?;
    if answers.len() == questions.questions.len() {
        return Ok((answers, now));
    }
    Err(Failure::Environment(format!("the gateway at {url} gave {} answers", answers.len())))
}
