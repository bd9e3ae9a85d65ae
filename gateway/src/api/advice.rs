//! One answer to one question, the same for gRPC and JSON.

use std::ops::RangeInclusive;

use spand_proto::no_estimate::{Explanation, Reason};
use spand_proto::query::{Advice, Answer, Question};
use spand_proto::start::{Mode, RefusalReason, StartPolicy, StartRequest, TransferSize, start};
use spand_proto::units::{Bytes, Micros, Segments};

use crate::publisher::Published;

/// Segment sizes that a TCP connection can have, in bytes (RFC 9293 section 3.7.1: the option has 16 bits). Zero passes:
/// the start function refuses it with its own reason.
const MSS_BYTES: RangeInclusive<u64> = 0..=65_535;
/// Receive windows that a TCP connection can have, in bytes (RFC 7323 section 2.2: at most 1 GiB).
const SND_WND_BYTES: RangeInclusive<u64> = 0..=1 << 30;
/// Round-trip times that are believed: ten minutes is far above every retransmission limit.
const HANDSHAKE_RTT_US: RangeInclusive<u64> = 1..=600_000_000;
/// Initial windows that a host can have, in segments.
const INITIAL_WINDOW_SEGMENTS: RangeInclusive<u64> = 1..=65_535;

/// Segment size where neither question nor estimate gives one: Ethernet less IPv4, TCP and timestamps.
const USUAL_MSS: Bytes = Bytes(1_448);

/// A number that no connection can have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what} of {value} {unit} cannot be: give {least} to {most}")]
pub(super) struct Absurd {
    what: &'static str,
    unit: &'static str,
    value: u64,
    least: u64,
    most: u64,
}

/// Refuses what no connection can have. Any size of transfer can be.
pub(super) fn check(initial_window: Segments, question: &Question) -> Result<(), Absurd> {
    let within = |what, unit, value: u64, range: RangeInclusive<u64>| {
        let absurd = Absurd { what, unit, value, least: *range.start(), most: *range.end() };
        if range.contains(&value) { Ok(()) } else { Err(absurd) }
    };
    within("an initial window", "segments", initial_window.0.into(), INITIAL_WINDOW_SEGMENTS)?;
    if let Some(mss) = question.mss {
        within("a segment size", "bytes", mss.0, MSS_BYTES)?;
    }
    if let Some(snd_wnd) = question.snd_wnd {
        within("a receive window", "bytes", snd_wnd.0, SND_WND_BYTES)?;
    }
    if let Some(rtt) = question.handshake_rtt {
        within("a round-trip time", "µs", rtt.0, HANDSHAKE_RTT_US)?;
    }
    Ok(())
}

/// Answers a question that passed [`check`].
pub(super) fn answer(published: &Published, mode: Mode, initial_window: Segments, question: &Question) -> Answer {
    let view = published.lookup(question.address);
    let estimate = view.as_ref().and_then(|view| view.estimate.clone());
    let config = published.config();
    let policy = StartPolicy { max_age: config.max_age, ..StartPolicy::of(mode) };
    let now = published.now();
    let of_service = || question.service.and_then(|service| published.service(service)).map(|size| size.quantile);
    let request = StartRequest {
        estimate: estimate.as_ref(),
        now,
        size: match question.size {
            TransferSize::Unknown => of_service().map_or(TransferSize::Unknown, TransferSize::Usual),
            given @ (TransferSize::Known(_) | TransferSize::Usual(_)) => given,
        },
        mss: question.mss.or(estimate.as_ref().map(|estimate| estimate.mss)).unwrap_or(USUAL_MSS),
        snd_wnd: question.snd_wnd,
        handshake_rtt: question.handshake_rtt,
        initial_window,
        // A question is no start: budgets are leased to subscribed hosts, which keep their own account.
        budget: None,
    };
    let mut advice = Advice::from(start(&request, &policy));
    if let Advice::Refused { reason: RefusalReason::NoEstimate, message } = &mut advice {
        let why = view.and_then(|view| view.no_estimate());
        *message = why.unwrap_or(Explanation::of(Reason::NothingSeen)).to_string();
    }
    // Advice never outlives the estimate that it rests on.
    let left = |age: Micros| Micros(config.max_age.0.saturating_sub(age.0));
    let lifetime = estimate.as_ref().map_or(config.lifetime, |e| config.lifetime.min(left(e.age(now))));
    Answer { address: question.address, estimate, lifetime, advice }
}
