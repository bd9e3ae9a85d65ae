//! How the first window of a start is spread.

use super::{PacingRule, Refusal, RttPurpose};
use crate::units::{Bytes, BytesPerSecond, Micros, Segments};

/// The spreading of a first window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pacing {
    /// Segments that leave at once, before the rate holds.
    pub after_segments: Segments,
    /// Rate of the rest, in payload bytes per second.
    pub rate: BytesPerSecond,
    /// The round-trip time it was computed with.
    pub rtt: Micros,
}

/// The round trips that a start may be spread over.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrips {
    /// The handshake's, which met an empty queue; the estimate's where that was not measured.
    pub(super) own: Option<Micros>,
    /// The longer of the two: the estimate's mean holds the queue that the share fills. Over the handshake's alone a whole share
    /// arrives as fast as the path carries it, on top of the burst (docs/explain/decisions/kernel-programs.md).
    pub(super) longer: Option<Micros>,
}

/// Depth of the paper's bucket in segments.
const PAPER_BUCKET: u32 = 4;
/// A queue that a share without losses shows: this part of it. The slow start that reached it sent twice as fast as it was acknowledged
/// in its last round trip, of which half stood in a queue where the path was full; half of that is counted on.
const QUEUE_PART: u32 = 4;
/// The shortest part of a round trip that such a start is spread over.
const SHORTEST_PART: u64 = 8;

/// The spreading of a first window of `cwnd`, where it needs one, of a start that without limits were `whole`. `lossless`: where no
/// loss is known there, what the window would be but for this connection's receiver and the budget.
pub(super) fn pace(
    (cwnd, whole): (Segments, Segments),
    share: Segments,
    mss: Bytes,
    trips: RoundTrips,
    rule: PacingRule,
    lossless: Option<Segments>,
) -> Result<Option<Pacing>, Refusal> {
    let at_once = rule.at_once();
    if cwnd <= at_once {
        return Ok(None);
    }
    let (Some(own), Some(longer)) = (trips.own, trips.longer) else {
        return Err(Refusal::NoRtt { purpose: RttPurpose::Pacing });
    };
    let beyond = |window: Segments| Segments(window.0.saturating_sub(at_once.0));
    let paced = |segments: Segments, rtt: Micros, time: Micros| {
        let rate = (u128::from(segments.bytes(mss).0) * 1_000_000).div_ceil(u128::from(time.0.max(1)));
        let rate = BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX));
        Pacing { after_segments: at_once, rate, rtt }
    };
    let of_share = |time: Micros| paced(beyond(cwnd.max(share)), longer, time);
    Ok(Some(match rule {
        PacingRule::TokenBucket { .. } => paced(cwnd, longer, longer),
        PacingRule::ShareAfterBurst { .. } => {
            let time = lossless.map_or(longer, |wanted| in_the_shown_queue(beyond(wanted.max(cwnd)), share, longer));
            // At least as fast as plain TCP, which sends ten segments in the handshake's round trip. One below half of the mean does not
            // measure the path.
            let least = paced(at_once, longer, own.max(Micros(longer.0 / 2)));
            let of_share = of_share(time);
            if of_share.rate < least.rate { least } else { of_share }
        }
        PacingRule::AfterBurst { .. } => {
            let bucket = paced(beyond(cwnd), own, until_the_bucket_is_empty(cwnd, whole, own));
            let most = of_share(longer);
            if bucket.rate < most.rate { bucket } else { most }
        }
    }))
}

/// How long the paper's bucket lets a window of a start of `whole` segments leave: all but its depth, at the whole start a round trip.
fn until_the_bucket_is_empty(window: Segments, whole: Segments, rtt: Micros) -> Micros {
    let (window, whole) = (window.0, whole.max(window).0);
    if window <= PAPER_BUCKET {
        return rtt;
    }
    let time = u128::from(rtt.0) * u128::from(window - PAPER_BUCKET) / u128::from(whole);
    Micros(u64::try_from(time).unwrap_or(u64::MAX))
}

/// The time for which a share's rate is taken, where no loss bounds the share: as much shorter than a round trip as leaves what does
/// not leave the queue meanwhile within the queue that the share has shown.
fn in_the_shown_queue(beyond: Segments, share: Segments, rtt: Micros) -> Micros {
    let rest = u64::from(beyond.0).saturating_sub(u64::from(share.0 / QUEUE_PART));
    let time = u128::from(rtt.0) * u128::from(rest) / u128::from(beyond.0.max(1));
    Micros(u64::try_from(time).unwrap_or(u64::MAX).max(rtt.0 / SHORTEST_PART))
}
