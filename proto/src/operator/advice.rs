//! An answer of the gateway in JSON: what `/v1/advice` answers and `spand-agent query --json` prints.
//!
//! Units are in the names, and what is not known is null.

use std::net::IpAddr;

use serde::Serialize;

use crate::estimate::{Estimate, Mark};
use crate::network::Network;
use crate::query::{Advice, Answer};
use crate::start::{Account, Bound, Limit, Mode, Pacing, RefusalReason, RttCheck, Start};
use crate::units::{Micros, Timestamp, rounded};

/// An answer. Exactly one of `start` and `refusal` is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdviceDocument {
    destination: IpAddr,
    estimate: Option<EstimateDocument>,
    lifetime_ms: u64,
    start: Option<StartDocument>,
    refusal: Option<RefusalDocument>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct EstimateDocument {
    prefix: Network,
    wc_segments: u32,
    wc_bytes: f64,
    mss_bytes: u64,
    rtt_min_ms: Option<f64>,
    rtt_mean_ms: Option<f64>,
    samples: u32,
    connections: u32,
    is_lower_bound: bool,
    mark: Option<&'static str>,
    loss_connections: u32,
    losses: u64,
    loss_window_bytes: Option<f64>,
    age_s: f64,
    confidence: f64,
    rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct StartDocument {
    cwnd_segments: u32,
    ssthresh_segments: u32,
    mss_bytes: u64,
    pacing: Option<PacingDocument>,
    clipped_by: Option<Limit>,
    mode: Mode,
    account: AccountDocument,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PacingDocument {
    after_segments: u32,
    rate_bytes_per_s: u64,
    rtt_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct AccountDocument {
    share_segments: u32,
    raised_segments: Option<u32>,
    transfer: Option<TransferDocument>,
    shifted_segments: u32,
    bounds: Vec<BoundDocument>,
    rtt_check: RttCheck,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct TransferDocument {
    size_segments: u32,
    epoch_segments: u64,
    remainder_segments: u32,
    optimal_segments: u32,
    rounds: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct BoundDocument {
    limit: Limit,
    limit_segments: u32,
    before_segments: u32,
    after_segments: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct RefusalDocument {
    reason: RefusalReason,
    message: String,
}

impl AdviceDocument {
    /// Of an answer as it stands at `now`.
    pub fn new(answer: Answer, now: Timestamp) -> Self {
        let (start, refusal) = match answer.advice {
            Advice::Start(start) => (Some(start.into()), None),
            Advice::Refused { reason, message } => (None, Some(RefusalDocument { reason, message })),
        };
        Self {
            destination: answer.address,
            estimate: answer.estimate.as_ref().map(|estimate| EstimateDocument::new(estimate, now)),
            lifetime_ms: answer.lifetime.0 / 1_000,
            start,
            refusal,
        }
    }
}

impl EstimateDocument {
    fn new(estimate: &Estimate, now: Timestamp) -> Self {
        Self {
            prefix: estimate.network,
            wc_segments: estimate.share_segments(estimate.mss).0,
            wc_bytes: rounded(estimate.share.bytes(), 1),
            mss_bytes: estimate.mss.0,
            rtt_min_ms: estimate.rtt_min.map(Micros::as_millis_f64),
            rtt_mean_ms: estimate.rtt_mean.map(Micros::as_millis_f64),
            samples: estimate.samples,
            connections: estimate.connections,
            is_lower_bound: estimate.is_lower_bound,
            mark: estimate.mark.map(Mark::name),
            loss_connections: estimate.loss_connections,
            losses: estimate.losses,
            loss_window_bytes: estimate.loss_window.map(|window| rounded(window.bytes(), 1)),
            age_s: estimate.age(now).as_secs_f64(),
            confidence: rounded(estimate.confidence.value(), 3),
            rule: estimate.rule.name(),
        }
    }
}

impl From<Start> for StartDocument {
    fn from(start: Start) -> Self {
        Self {
            cwnd_segments: start.cwnd.0,
            ssthresh_segments: start.ssthresh.0,
            mss_bytes: start.mss.0,
            pacing: start.pacing.map(PacingDocument::from),
            clipped_by: start.clipped_by,
            mode: start.mode,
            account: start.account.into(),
        }
    }
}

impl From<Pacing> for PacingDocument {
    fn from(pacing: Pacing) -> Self {
        Self {
            after_segments: pacing.after_segments.0,
            rate_bytes_per_s: pacing.rate.0,
            rtt_ms: pacing.rtt.as_millis_f64(),
        }
    }
}

impl From<Account> for AccountDocument {
    fn from(account: Account) -> Self {
        Self {
            share_segments: account.share.0,
            raised_segments: account.raised.map(|raised| raised.0),
            transfer: account.transfer.map(|steps| TransferDocument {
                size_segments: steps.size.0,
                epoch_segments: steps.epoch_segments,
                remainder_segments: steps.remainder.0,
                optimal_segments: steps.optimal.0,
                rounds: steps.rounds,
            }),
            shifted_segments: account.shifted.0,
            bounds: account.bounds.into_iter().map(BoundDocument::from).collect(),
            rtt_check: account.rtt_check,
        }
    }
}

impl From<Bound> for BoundDocument {
    fn from(bound: Bound) -> Self {
        Self {
            limit: bound.limit,
            limit_segments: bound.value.0,
            before_segments: bound.before.0,
            after_segments: bound.after.0,
        }
    }
}
