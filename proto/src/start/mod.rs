//! The start function: what is known about a network and a connection, to the window it should start with.
//!
//! One function for everyone (`docs/explain/definitions.md`, "The start"): the gateway answers queries with it, the agent decides with
//! it. Pure arithmetic: knows no clock, no socket, and not whether or how the start is applied.

use strum::VariantArray;

use self::pacing::{RoundTrips, pace};
use self::shape::{Aim, Crowd};
use crate::estimate::Estimate;
use crate::growth::MOST_SEGMENTS;
use crate::model::Epoch;
use crate::resume;
use crate::units::{Bytes, Micros, Segments, Timestamp};

mod account;
mod pacing;
mod policy;
mod refusal;
mod shape;
#[cfg(test)]
mod tests;

pub use account::{Account, Bound, Limit, RttCheck, TransferSteps};
pub use pacing::Pacing;
pub use policy::{
    DEFAULT_INITIAL_WINDOW, Floor, Fraction, Mode, NotAFraction, NotAMode, PacingRule, RttBounds, StartPolicy,
};
pub use refusal::{NotAReason, Refusal, RefusalReason, RttPurpose};
pub use shape::{CROWD_LONGEST, CROWD_THRESHOLD, CROWD_WINDOW, NotAShape, Shape, overflow_bytes};

/// What is known about one connection that is about to start.
#[derive(Clone, Copy, Debug)]
pub struct StartRequest<'a> {
    /// What is known about its network.
    pub estimate: Option<&'a Estimate>,
    /// The moment of the question, by the clock of [`Estimate::refreshed`].
    pub now: Timestamp,
    /// Size of the transfer.
    pub size: TransferSize,
    /// Segment size less options.
    pub mss: Bytes,
    /// The peer's receive window, scaled.
    pub snd_wnd: Option<Bytes>,
    /// Round trip of this connection's handshake; zero counts as not measured.
    pub handshake_rtt: Option<Micros>,
    /// The host's default initial window.
    pub initial_window: Segments,
    /// What is left of the network's budget: segments above the default that may still be granted. `None` where no
    /// budget is kept.
    pub budget: Option<Segments>,
}

/// Size of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TransferSize {
    /// This many bytes of payload.
    Known(Bytes),
    /// Most transfers of the service are no larger, this one may be: a guess, which its clients can move. It never makes the
    /// start smaller than the host's default, in no mode.
    Usual(Bytes),
    /// Not known; counts as long, so the start is the whole share.
    Unknown,
}

impl From<Option<Bytes>> for TransferSize {
    fn from(size: Option<Bytes>) -> Self {
        size.map_or(Self::Unknown, Self::Known)
    }
}

/// "None set yet", as Linux has it (`TCP_INFINITE_SSTHRESH`).
pub const NO_THRESHOLD: Segments = Segments(0x7fff_ffff);

/// How to start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Start {
    /// Congestion window.
    pub cwnd: Segments,
    /// Slow-start threshold; never below the window. [`NO_THRESHOLD`] where slow start goes on.
    pub ssthresh: Segments,
    /// Segment size that the two are counted in.
    pub mss: Bytes,
    /// How the first window is spread; `None` where it may leave at once.
    pub pacing: Option<Pacing>,
    /// The limit that decided, where the window is below `W'`.
    pub clipped_by: Option<Limit>,
    /// The mode whose limits were used; with [`Mode::Observe`] the start must not be applied.
    pub mode: Mode,
    /// How it came about.
    pub account: Account,
}

impl Start {
    /// The threshold in words.
    pub fn threshold(&self) -> String {
        if self.ssthresh == NO_THRESHOLD {
            return "no threshold, since no loss backs the share".to_owned();
        }
        format!("threshold {}", self.ssthresh)
    }
}

/// Computes the start of a connection.
///
/// Where the whole `W'` is granted, window and threshold are `W'`. Where a limit clips the window, the threshold stays
/// `W'`, so that slow start makes up for the clip: clipping both costs long transfers +81 % (20 Mbit/s, 100 ms, 10 MB) to
/// +609 % (100 Mbit/s, 200 ms), and makes short ones slower than plain TCP (docs/explain/decisions/starts.md).
pub fn start(request: &StartRequest<'_>, policy: &StartPolicy) -> Result<Start, Refusal> {
    let estimate = trusted(request, policy)?;
    let handshake_rtt = measured(request.handshake_rtt);
    let estimate_rtt = measured(estimate.rtt_mean).or(measured(estimate.rtt_min));
    let rtt_check = check_rtt(handshake_rtt, estimate_rtt, policy)?;

    let own_share = Segments(estimate.share_segments(request.mss).0.max(1));
    let crowd = Crowd::of(request, (estimate, own_share), policy);
    let share = own_share.max(crowd.share);
    let (transfer, aim) = match policy.shape {
        Shape::Paced => {
            let (steps, shifted) = model(request, estimate, own_share, policy)?;
            let shifted = shifted.max(crowd.window);
            (steps, Aim { window: shifted, threshold: shifted, share, overdue: false })
        }
        shape => (None, shape::aim(shape, estimate, request, handshake_rtt.or(estimate_rtt))?),
    };
    let shifted = aim.window;
    let bounds = bound(shifted, share, estimate, request, policy);
    let cwnd = bounds.last().map_or(shifted, |last| last.after);
    let clipped_by = if cwnd < shifted {
        bounds.iter().rev().find(|bound| bound.after < bound.before).map(|bound| bound.limit)
    } else {
        None
    };
    // A share that no loss backs is what transfers carried before they ended, not what the path carries: in congestion
    // avoidance from there a long one would crawl (docs/explain/decisions/starts.md).
    let open = policy.threshold_needs_loss && estimate.loss_connections == 0;
    let threshold = if open {
        NO_THRESHOLD
    } else if policy.threshold_needs_loss {
        aim.threshold.max(at_losses(estimate, request.mss))
    } else {
        aim.threshold
    };
    let mut ssthresh = threshold.max(crowd.threshold).max(cwnd);
    let pacing = if policy.shape.keeps_window() {
        None
    } else {
        let trips = RoundTrips { own: handshake_rtt.or(estimate_rtt), longer: handshake_rtt.max(estimate_rtt) };
        // What limits one connection alone, its receiver or what is left of a budget, is no measure of the path's rate.
        let lossless = open && estimate.losses == 0 && policy.shape == Shape::Paced;
        let wanted = bounds.iter().rfind(|bound| matches!(bound.limit, Limit::Fraction | Limit::Cap));
        let wanted = wanted.map_or(shifted, |bound| bound.after);
        pace((cwnd, shifted), aim.share, request.mss, trips, policy.pacing, lossless.then_some(wanted))?
    };
    // A paced start keeps its threshold: with both below `W'` long transfers crawl.
    if let (None, true, Some(overflow)) = (pacing, policy.buffered, shape::overflow(estimate, request.mss)) {
        ssthresh = ssthresh.min(Segments(overflow.0 - 1)).max(cwnd);
    }
    let raised = Some(share).filter(|share| *share > own_share);
    let account = Account {
        share: own_share,
        raised,
        transfer,
        shifted,
        bounds,
        rtt_check,
        shape: policy.shape,
        overdue: aim.overdue,
        jump: (policy.shape == Shape::CarefulResume).then(|| jump(own_share, estimate, request, policy)),
    };
    Ok(Start { cwnd, ssthresh, mss: request.mss, pacing, clipped_by, mode: policy.mode, account })
}

/// The same under a cap that the administrator named for the destination, which holds in every mode and below the floor.
pub fn start_within(cap: Option<Segments>, request: &StartRequest<'_>, policy: &StartPolicy) -> Result<Start, Refusal> {
    let Some(cap) = cap else { return start(request, policy) };
    let limits = StartPolicy { cap: Some(policy.cap.map_or(cap, |general| general.min(cap))), ..*policy };
    let mut start = start(request, &limits)?;
    // The floor is the host's default: a smaller cap wins.
    if cap < start.cwnd && !start.account.shape.keeps_window() {
        start.cwnd = cap;
    }
    Ok(start)
}

/// The threshold that windows at losses say; no more than a scaled window of 2^30 bytes holds at any usual segment size.
fn at_losses(estimate: &Estimate, mss: Bytes) -> Segments {
    Segments(u16::try_from(estimate.threshold_bytes() / mss.0).unwrap_or(u16::MAX).into())
}

/// The estimate, where there is one and it rests on enough.
fn trusted<'a>(request: &StartRequest<'a>, policy: &StartPolicy) -> Result<&'a Estimate, Refusal> {
    if request.mss.0 == 0 {
        return Err(Refusal::MssZero);
    }
    let estimate = request.estimate.ok_or(Refusal::NoEstimate)?;
    if estimate.samples < policy.min_samples {
        return Err(Refusal::TooFewSamples { samples: estimate.samples, needed: policy.min_samples });
    }
    if estimate.connections < policy.min_connections {
        return Err(Refusal::TooFewConnections { connections: estimate.connections, needed: policy.min_connections });
    }
    let age = estimate.age(request.now);
    if age > policy.max_age {
        return Err(Refusal::Stale { age, limit: policy.max_age });
    }
    Ok(estimate)
}

/// A usable round-trip time: above zero.
fn measured(rtt: Option<Micros>) -> Option<Micros> {
    rtt.filter(|rtt| rtt.0 > 0)
}

/// Whether this connection's path looks like the one the estimate is about.
fn check_rtt(handshake: Option<Micros>, estimate: Option<Micros>, policy: &StartPolicy) -> Result<RttCheck, Refusal> {
    let bounds = if policy.shape == Shape::CarefulResume { Some(RttBounds::CAREFUL_RESUME) } else { policy.rtt_bounds };
    let Some(bounds) = bounds else { return Ok(RttCheck::Off) };
    let estimate = estimate.ok_or(Refusal::NoRtt { purpose: RttPurpose::Check })?;
    let Some(handshake) = handshake else { return Ok(RttCheck::NoHandshake) };
    if !bounds.hold(handshake, estimate) {
        return Err(Refusal::RttMismatch { handshake, estimate });
    }
    Ok(RttCheck::Passed)
}

/// `W'` and how the model got there. An unknown size has no last epoch to fit: it starts at the share itself, which
/// ends every transfer of up to one flight in one round trip and costs a longer one at most an early halving.
///
/// The model counts round trips, in which windows of 15 and 28 carry 30 segments alike. Where the larger one keeps the path
/// busy it ends a round trip earlier (docs/explain/decisions/starts.md), so `W'` is not shifted below what fills the pipe.
fn model(
    request: &StartRequest<'_>,
    estimate: &Estimate,
    share: Segments,
    policy: &StartPolicy,
) -> Result<(Option<TransferSteps>, Segments), Refusal> {
    let (bytes, least) = match request.size {
        TransferSize::Unknown => return Ok((None, share)),
        TransferSize::Known(bytes) => (bytes, Segments(1)),
        TransferSize::Usual(bytes) => (bytes, share.min(request.initial_window)),
    };
    let size = bytes.segments_ceil(request.mss);
    if size.0 == 0 {
        return Err(Refusal::EmptyTransfer);
    }
    let epoch = Epoch::new(share, policy.segments_per_ack);
    let window = epoch.window_for(size);
    let steps = TransferSteps {
        size,
        epoch_segments: u64::try_from(epoch.length()).unwrap_or(u64::MAX),
        // Never above the size: the remainder of a size that is not zero.
        remainder: Segments(u32::try_from(window.remainder).unwrap_or(u32::MAX)),
        optimal: window.optimal,
        rounds: window.rounds,
    };
    let shifted = window.shifted.max(least);
    if !policy.fills_pipe {
        return Ok((Some(steps), shifted));
    }
    // What lasts longer than an epoch has no one last epoch to fit: it loses on the way, at a moment that nobody knows.
    if u128::from(size.0) > epoch.length() {
        return Ok((Some(steps), share));
    }
    let pipe = Bytes(estimate.pipe_half_bytes() / 2).segments_floor(request.mss);
    Ok((Some(steps), shifted.max(window.optimal.min(pipe))))
}

/// Applies the limits in their order.
fn bound(
    shifted: Segments,
    share: Segments,
    estimate: &Estimate,
    request: &StartRequest<'_>,
    policy: &StartPolicy,
) -> Vec<Bound> {
    let mut bounds = Vec::with_capacity(Limit::VARIANTS.len());
    let mut window = shifted;
    if policy.shape.keeps_window() {
        return bounds;
    }
    for (limit, value) in ceilings(share, request, policy) {
        let Some(value) = value else { continue };
        let after = Segments(window.min(value).0.max(1));
        bounds.push(Bound { limit, value, before: window, after });
        window = after;
    }
    let overflow = if policy.buffered { shape::overflow(estimate, request.mss) } else { None };
    if let Some(value) = overflow.filter(|_| window <= policy.pacing.at_once()) {
        let after = window.min(value);
        bounds.push(Bound { limit: Limit::Buffer, value, before: window, after });
        window = after;
    }
    if let Some(floor) = policy.floor {
        let proven = estimate.loss_connections >= floor.loss_connections;
        let value = if proven { floor.lowest.min(request.initial_window) } else { request.initial_window };
        let after = window.max(value);
        bounds.push(Bound { limit: Limit::Floor, value, before: window, after });
    }
    bounds
}

/// What no start may pass, in the order of the limits.
fn ceilings(share: Segments, request: &StartRequest<'_>, policy: &StartPolicy) -> [(Limit, Option<Segments>); 4] {
    // The rarer losses are, the larger its window: on an idle path it has no bound of its own.
    let unlimited_loss_clock = StartPolicy::CAREFUL.cap.filter(|_| policy.shape == Shape::Measured);
    [
        (Limit::Fraction, policy.fraction.map(|fraction| fraction.of(share))),
        (Limit::Cap, policy.cap.or(unlimited_loss_clock)),
        (Limit::PeerWindow, request.snd_wnd.map(|bytes| bytes.segments_floor(request.mss))),
        (
            Limit::Budget,
            request
                .budget
                .filter(|_| policy.budgeted)
                .map(|left| Segments(request.initial_window.0.saturating_add(left.0))),
        ),
    ]
}

/// What Careful Resume may jump to: half of the share, within the limits of every start.
fn jump(share: Segments, estimate: &Estimate, request: &StartRequest<'_>, policy: &StartPolicy) -> Segments {
    let half = Bytes(estimate.share.half_bytes() / (2 * resume::HALF)).segments_floor(request.mss);
    let ceilings = ceilings(share, request, policy).into_iter().filter_map(|(_, ceiling)| ceiling);
    Segments(ceilings.fold(half, Segments::min).0.clamp(1, MOST_SEGMENTS))
}
