//! Questions and answers on the wire.

use crate::contract::ContractVersion;
use crate::estimate::Estimate;
use crate::query::{Advice, Answer, MAX_QUESTIONS, Query, Question};
use crate::start::{DEFAULT_INITIAL_WINDOW, Mode, RefusalReason, TransferSize};
use crate::units::{Bytes, Micros, Timestamp};
use crate::v1;

use super::{WireError, address, counted, entries, millis, required, rtt, segments, socket};

impl From<&Query> for v1::QueryRequest {
    fn from(query: &Query) -> Self {
        Self {
            contract_version: ContractVersion::CURRENT.number(),
            mode: query.mode.map_or(v1::Mode::Unspecified as i32, Mode::to_wire),
            initial_window_segments: Some(query.initial_window.0),
            questions: query.questions.iter().map(v1::Question::from).collect(),
        }
    }
}

impl TryFrom<v1::QueryRequest> for Query {
    type Error = WireError;

    fn try_from(message: v1::QueryRequest) -> Result<Self, WireError> {
        ContractVersion::of_peer(message.contract_version)?;
        counted(&message.questions, "questions", 1, MAX_QUESTIONS)?;
        let initial_window = message.initial_window_segments.unwrap_or(DEFAULT_INITIAL_WINDOW.0);
        Ok(Self {
            mode: Mode::from_wire(message.mode, "mode")?,
            initial_window: segments(initial_window, "initial_window_segments")?,
            questions: entries(message.questions, "questions", Question::try_from)?,
        })
    }
}

impl From<&Question> for v1::Question {
    fn from(question: &Question) -> Self {
        Self {
            address: question.address.to_string(),
            transfer_bytes: match question.size {
                TransferSize::Known(bytes) => Some(bytes.0),
                // What is usual for its service the gateway knows better.
                TransferSize::Usual(_) | TransferSize::Unknown => None,
            },
            mss_bytes: question.mss.map(|mss| mss.0),
            snd_wnd_bytes: question.snd_wnd.map(|window| window.0),
            handshake_rtt_us: question.handshake_rtt.map(|rtt| rtt.0),
            host_address: question.service.map(|service| service.ip().to_string()),
            host_port: question.service.map(|service| service.port().into()),
        }
    }
}

/// A size or a segment size of zero passes: the start function refuses it with its own reason.
impl TryFrom<v1::Question> for Question {
    type Error = WireError;

    fn try_from(message: v1::Question) -> Result<Self, WireError> {
        let service = match (message.host_address, message.host_port) {
            (None, None) => None,
            (Some(address), Some(port)) => Some(socket(&address, "host_address", port, "host_port")?),
            (Some(_), None) => return Err(WireError::Missing { field: "host_port" }),
            (None, Some(_)) => return Err(WireError::Missing { field: "host_address" }),
        };
        Ok(Self {
            address: address(&message.address, "address")?,
            size: message.transfer_bytes.map(Bytes).into(),
            mss: message.mss_bytes.map(Bytes),
            snd_wnd: message.snd_wnd_bytes.map(Bytes),
            handshake_rtt: rtt(message.handshake_rtt_us, "handshake_rtt_us")?,
            service,
        })
    }
}

impl Answer {
    /// The message, with the estimate's age at `now`.
    pub fn to_wire(&self, now: Timestamp) -> v1::Answer {
        v1::Answer {
            address: self.address.to_string(),
            estimate: self.estimate.as_ref().map(|estimate| estimate.to_wire(now)),
            lifetime_ms: millis(self.lifetime),
            advice: Some(match &self.advice {
                Advice::Start(start) => v1::answer::Advice::Start(start.into()),
                Advice::Refused { reason, message } => {
                    v1::answer::Advice::Refusal(v1::Refusal { reason: reason.to_wire(), message: message.clone() })
                }
            }),
        }
    }

    /// The answer of a message that arrived at `now` by the receiver's clock.
    pub fn from_wire(message: v1::Answer, now: Timestamp) -> Result<Self, WireError> {
        let estimate = message.estimate.map(|estimate| Estimate::from_wire(&estimate, now)).transpose()?;
        let advice = match required(message.advice, "advice")? {
            v1::answer::Advice::Start(start) => Advice::Start(start.try_into()?),
            v1::answer::Advice::Refusal(refusal) => Advice::Refused {
                reason: required(RefusalReason::from_wire(refusal.reason, "refusal.reason")?, "refusal.reason")?,
                message: refusal.message,
            },
        };
        let lifetime = Micros::from_millis(message.lifetime_ms.into());
        Ok(Self { address: address(&message.address, "address")?, estimate, lifetime, advice })
    }
}

/// The response to a query.
pub fn answers_to_wire(answers: &[Answer], now: Timestamp) -> v1::QueryResponse {
    v1::QueryResponse {
        contract_version: ContractVersion::CURRENT.number(),
        answers: answers.iter().map(|answer| answer.to_wire(now)).collect(),
    }
}

/// The answers of a response that arrived at `now` by the receiver's clock.
pub fn answers_from_wire(message: v1::QueryResponse, now: Timestamp) -> Result<Vec<Answer>, WireError> {
    ContractVersion::of_peer(message.contract_version)?;
    counted(&message.answers, "answers", 1, MAX_QUESTIONS)?;
    entries(message.answers, "answers", |answer| Answer::from_wire(answer, now))
}
