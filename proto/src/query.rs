//! What a host asks, and what the gateway answers.

use std::net::{IpAddr, SocketAddr};

use crate::estimate::Estimate;
use crate::start::{Mode, Refusal, RefusalReason, Start, TransferSize};
use crate::units::{Bytes, Micros, Segments};

/// Questions in one query, at most.
pub const MAX_QUESTIONS: usize = 256;

/// Questions about connections that one host is about to open.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Query {
    /// Mode whose limits the starts shall keep; `None` leaves it to the gateway.
    pub mode: Option<Mode>,
    /// The host's default initial window.
    pub initial_window: Segments,
    /// One to [`MAX_QUESTIONS`] questions.
    pub questions: Vec<Question>,
}

/// One connection that is about to start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Question {
    /// Where to.
    pub address: IpAddr,
    /// Size of the transfer.
    pub size: TransferSize,
    /// Segment size less options; `None` takes that of the estimate.
    pub mss: Option<Bytes>,
    /// The peer's receive window, scaled.
    pub snd_wnd: Option<Bytes>,
    /// Round trip of this connection's handshake.
    pub handshake_rtt: Option<Micros>,
    /// The asking host's address and the port at which it took the connection: gives a size that is not known.
    pub service: Option<SocketAddr>,
}

impl Question {
    /// About a connection of which only the destination is known.
    pub const fn about(address: IpAddr) -> Self {
        Self { address, size: TransferSize::Unknown, mss: None, snd_wnd: None, handshake_rtt: None, service: None }
    }
}

/// What the gateway knows and advises for one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The address that was asked about.
    pub address: IpAddr,
    /// What is known about its network.
    pub estimate: Option<Estimate>,
    /// How long the answer may be used.
    pub lifetime: Micros,
    /// The advice.
    pub advice: Advice,
}

/// A start, or why there is none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Advice {
    /// How to start.
    Start(Start),
    /// Why there is no start.
    Refused {
        /// The reason.
        reason: RefusalReason,
        /// One sentence with the numbers that decided.
        message: String,
    },
}

impl From<Result<Start, Refusal>> for Advice {
    fn from(outcome: Result<Start, Refusal>) -> Self {
        match outcome {
            Ok(start) => Self::Start(start),
            Err(refusal) => Self::Refused { reason: refusal.reason(), message: refusal.to_string() },
        }
    }
}
