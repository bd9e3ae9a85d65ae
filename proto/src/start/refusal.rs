//! Why there is no start: a closed list of reasons with stable names, and the numbers that decided.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use super::Shape;
use crate::units::{Micros, counted};

/// The reasons of the start function, for counters and messages. Names never change; new reasons are added at the end.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RefusalReason {
    /// Nothing is known about the network.
    NoEstimate,
    /// Fewer samples than the minimum.
    TooFewSamples,
    /// Samples of fewer connections than the minimum.
    TooFewConnections,
    /// The newest sample is older than the age limit.
    Stale,
    /// No round-trip time where one is needed to check or to pace.
    NoRtt,
    /// The handshake's round trip is too far from the estimate's.
    RttMismatch,
    /// A segment size of zero.
    MssZero,
    /// A transfer of no bytes.
    EmptyTransfer,
    /// The shape of the start rests on the senders under way, and the gateway sent nothing about them.
    NoOpening,
}

impl RefusalReason {
    /// Its stable name in metrics and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A name that is no reason's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a reason of the start function")]
pub struct NotAReason(pub String);

impl FromStr for RefusalReason {
    type Err = NotAReason;

    fn from_str(name: &str) -> Result<Self, NotAReason> {
        Self::VARIANTS.iter().copied().find(|reason| reason.name() == name).ok_or_else(|| NotAReason(name.to_owned()))
    }
}

/// Why the start function gives no start, with what decided. The host then starts as plain TCP.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Nothing is known about the network.
    #[error("there is no estimate of this network")]
    NoEstimate,
    /// Fewer samples than the minimum.
    #[error("the estimate rests on {} and {needed} are needed: advice comes with more transfers", counted(*samples, "sample", "samples"))]
    TooFewSamples {
        /// Samples there are.
        samples: u32,
        /// Samples needed.
        needed: u32,
    },
    /// Samples of fewer connections than the minimum.
    #[error("the estimate rests on {} and {needed} are needed: advice comes with more of them", counted(*connections, "connection", "connections"))]
    TooFewConnections {
        /// Connections there are.
        connections: u32,
        /// Connections needed.
        needed: u32,
    },
    /// The newest sample is older than the age limit.
    #[error("the newest sample is {age} old and the age limit is {limit}: advice comes with the next sample")]
    Stale {
        /// Age of the newest sample.
        age: Micros,
        /// The age limit.
        limit: Micros,
    },
    /// No round-trip time where one is needed to check or to pace.
    #[error("no round-trip time of this network is known, and one is needed to {purpose}")]
    NoRtt {
        /// What it is needed for.
        purpose: RttPurpose,
    },
    /// The handshake's round trip is too far from the estimate's.
    #[error("the handshake's RTT is {handshake} and the estimate's {estimate}: this may be another path")]
    RttMismatch {
        /// Round trip of the handshake.
        handshake: Micros,
        /// Round trip of the estimate.
        estimate: Micros,
    },
    /// A segment size of zero.
    #[error("the segment size is 0 bytes: give the MSS of the connection less its options")]
    MssZero,
    /// A transfer of no bytes.
    #[error("the transfer has 0 bytes: give its size, or none where it is not known")]
    EmptyTransfer,
    /// Nothing is known of the senders under way.
    #[error(
        "a start of shape {shape} rests on the senders under way, and the gateway gives no threshold by them: none is known now, or \
         its `estimate.rule` is not one of liss, iss, miss, cached and averaged"
    )]
    NoOpening {
        /// The shape that needs it.
        shape: Shape,
    },
}

impl Refusal {
    /// The reason without its numbers.
    pub const fn reason(&self) -> RefusalReason {
        match self {
            Self::NoEstimate => RefusalReason::NoEstimate,
            Self::TooFewSamples { .. } => RefusalReason::TooFewSamples,
            Self::TooFewConnections { .. } => RefusalReason::TooFewConnections,
            Self::Stale { .. } => RefusalReason::Stale,
            Self::NoRtt { .. } => RefusalReason::NoRtt,
            Self::RttMismatch { .. } => RefusalReason::RttMismatch,
            Self::MssZero => RefusalReason::MssZero,
            Self::EmptyTransfer => RefusalReason::EmptyTransfer,
            Self::NoOpening { .. } => RefusalReason::NoOpening,
        }
    }
}

/// What a round-trip time was needed for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RttPurpose {
    /// To compare the handshake's with it.
    Check,
    /// To pace the first window.
    Pacing,
}

impl fmt::Display for RttPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "check the path",
            Self::Pacing => "pace the first window",
        })
    }
}
