//! Starts and refusals on the wire.

use strum::VariantArray;

use crate::start::{Account, Bound, Limit, Mode, Pacing, RefusalReason, RttCheck, Shape, Start, TransferSteps};
use crate::units::{Bytes, BytesPerSecond, Micros, Segments};
use crate::v1;

use super::{WireError, counted, entries, out_of_range, required, same_names, segments};

same_names!(Mode, v1::Mode, Observe, Careful, Paper);
same_names!(Limit, v1::Limit, Fraction, Cap, PeerWindow, Budget, Buffer, Floor);
same_names!(RttCheck, v1::RttCheck, Off, NoHandshake, Passed);
same_names!(
    RefusalReason,
    v1::RefusalReason,
    NoEstimate,
    TooFewSamples,
    TooFewConnections,
    Stale,
    NoRtt,
    RttMismatch,
    MssZero,
    EmptyTransfer,
    NoOpening,
);

impl From<&Start> for v1::Start {
    fn from(start: &Start) -> Self {
        Self {
            cwnd_segments: start.cwnd.0,
            ssthresh_segments: start.ssthresh.0,
            mss_bytes: start.mss.0,
            pacing: start.pacing.map(v1::Pacing::from),
            clipped_by: start.clipped_by.map_or(v1::Limit::Unspecified as i32, Limit::to_wire),
            mode: start.mode.to_wire(),
            account: Some((&start.account).into()),
        }
    }
}

impl TryFrom<v1::Start> for Start {
    type Error = WireError;

    fn try_from(message: v1::Start) -> Result<Self, WireError> {
        let cwnd = segments(message.cwnd_segments, "cwnd_segments")?;
        if message.ssthresh_segments < cwnd.0 {
            return Err(out_of_range(&message.ssthresh_segments, "ssthresh_segments", "at least cwnd_segments"));
        }
        if message.mss_bytes == 0 {
            return Err(out_of_range(&0, "mss_bytes", "at least 1"));
        }
        let pacing = message.pacing.map(Pacing::try_from).transpose()?;
        if let Some(pacing) = pacing.filter(|pacing| pacing.after_segments >= cwnd) {
            return Err(out_of_range(&pacing.after_segments.0, "pacing.after_segments", "less than cwnd_segments"));
        }
        Ok(Self {
            cwnd,
            ssthresh: Segments(message.ssthresh_segments),
            mss: Bytes(message.mss_bytes),
            pacing,
            clipped_by: Limit::from_wire(message.clipped_by, "clipped_by")?,
            mode: required(Mode::from_wire(message.mode, "mode")?, "mode")?,
            account: required(message.account, "account")?.try_into()?,
        })
    }
}

impl From<Pacing> for v1::Pacing {
    fn from(pacing: Pacing) -> Self {
        Self { after_segments: pacing.after_segments.0, rate_bytes_per_second: pacing.rate.0, rtt_us: pacing.rtt.0 }
    }
}

impl TryFrom<v1::Pacing> for Pacing {
    type Error = WireError;

    fn try_from(message: v1::Pacing) -> Result<Self, WireError> {
        if message.rate_bytes_per_second == 0 {
            return Err(out_of_range(&0, "pacing.rate_bytes_per_second", "at least 1"));
        }
        if message.rtt_us == 0 {
            return Err(out_of_range(&0, "pacing.rtt_us", "at least 1"));
        }
        Ok(Self {
            after_segments: Segments(message.after_segments),
            rate: BytesPerSecond(message.rate_bytes_per_second),
            rtt: Micros(message.rtt_us),
        })
    }
}

impl From<&Account> for v1::Account {
    fn from(account: &Account) -> Self {
        Self {
            share_segments: account.share.0,
            raised_segments: account.raised.map(|raised| raised.0),
            transfer: account.transfer.map(|steps| v1::TransferSteps {
                size_segments: steps.size.0,
                epoch_segments: steps.epoch_segments,
                remainder_segments: steps.remainder.0,
                optimal_segments: steps.optimal.0,
                rounds: steps.rounds,
            }),
            shifted_segments: account.shifted.0,
            bounds: account.bounds.iter().copied().map(v1::Bound::from).collect(),
            rtt_check: account.rtt_check.to_wire(),
        }
    }
}

impl TryFrom<v1::Account> for Account {
    type Error = WireError;

    fn try_from(message: v1::Account) -> Result<Self, WireError> {
        counted(&message.bounds, "account.bounds", 0, Limit::VARIANTS.len())?;
        let rtt_check = RttCheck::from_wire(message.rtt_check, "account.rtt_check")?;
        Ok(Self {
            share: segments(message.share_segments, "account.share_segments")?,
            raised: message.raised_segments.map(Segments),
            transfer: message.transfer.map(|steps| TransferSteps {
                size: Segments(steps.size_segments),
                epoch_segments: steps.epoch_segments,
                remainder: Segments(steps.remainder_segments),
                optimal: Segments(steps.optimal_segments),
                rounds: steps.rounds,
            }),
            shifted: segments(message.shifted_segments, "account.shifted_segments")?,
            bounds: entries(message.bounds, "account.bounds", Bound::try_from)?,
            rtt_check: required(rtt_check, "account.rtt_check")?,
            shape: Shape::default(),
            overdue: false,
            jump: None,
        })
    }
}

impl From<Bound> for v1::Bound {
    fn from(bound: Bound) -> Self {
        Self {
            limit: bound.limit.to_wire(),
            limit_segments: bound.value.0,
            before_segments: bound.before.0,
            after_segments: bound.after.0,
        }
    }
}

impl TryFrom<v1::Bound> for Bound {
    type Error = WireError;

    fn try_from(message: v1::Bound) -> Result<Self, WireError> {
        Ok(Self {
            limit: required(Limit::from_wire(message.limit, "limit")?, "limit")?,
            value: Segments(message.limit_segments),
            before: Segments(message.before_segments),
            after: Segments(message.after_segments),
        })
    }
}
