//! Bounds an estimate that was made with cells of other gateways by the samples of this gateway's own tap. Where the own tap saw few connections it
//! bounds nothing.

use spand_proto::estimate::{Estimate, Mark};
use spand_proto::units::{Micros, Timestamp, Window};

use super::{Rule, Shown, buffer, distinct, loss_window, means, median_mss, remotes};
use crate::window::bucket::Contribution;
use crate::window::delivery::Delivery;
use crate::window::record::{NetworkRecord, WindowSlice};

/// Connections with samples that are enough for a bound.
const ENOUGH: usize = 12;
/// Others move a share by this part at most,
const PART: f64 = 0.1;
/// or by this many standard errors of what the own tap saw, where that is more: with few connections a merged share is the better one.
const ERRORS: f64 = 4.0;
/// And a mean round-trip time by one part in this many, and the least to one part in this many at least.
const RTT_PART: u64 = 4;

/// The estimate, no further from what the own tap saw than cells of others may move it. Others alone are believed where it saw little.
pub(crate) fn bounded(
    of_all: Estimate,
    (own, record): (WindowSlice<'_>, &NetworkRecord),
    (delivery, now): (&Delivery, Timestamp),
    rule: &dyn Rule,
) -> Estimate {
    let mut bounded = of_all;
    if distinct(own.rtts.iter().map(|part| part.remote)) >= ENOUGH {
        if let (Some(Micros(mean)), Some(Micros(own))) = (bounded.rtt_mean, own.rtt_mean()) {
            bounded.rtt_mean = Some(Micros(mean.clamp(own - own / RTT_PART, own.saturating_add(own / RTT_PART))));
        }
        let own_min = own.rtt().min;
        bounded.rtt_min = bounded.rtt_min.zip(own_min).map(|(least, own)| least.max(Micros(own.0 / RTT_PART)));
        // The rate is this gateway's own, and so is the round trip that it filled.
        bounded.bdp = delivery.bdp(now, own_min);
    }
    let near = |value: Window, own: Window, part| Window::from_bytes(within(value.bytes(), own.bytes(), part));
    let loss_part = part_of(own, |part| (part.loss_samples, part.loss_bytes));
    let shown = Shown::of(own, rule);
    let losses = shown.and_then(|shown| shown.fell).unwrap_or(own);
    if let (Some(value), Some(own), Some(part)) = (bounded.loss_window, loss_window(losses), loss_part) {
        bounded.loss_window = near(value, own, part);
    }
    let own_share = match bounded.mark {
        Some(Mark::RandomLoss) => remotes::carried(own.contributions),
        _ => shown.map(|shown| shown.share),
    };
    let share = part_of(own, |part| (part.samples, part.sum_bytes)).zip(own_share);
    let Some((part, share)) = share else { return bounded };
    bounded.share = near(bounded.share, share, part).unwrap_or(share);
    bounded.mss = median_mss(own);
    bounded.buffer = buffer::buffer(own, record.bucket).or(bounded.buffer);
    bounded
}

fn within(value: f64, own: f64, part: f64) -> f64 {
    value.clamp(own * (1.0 - part), own * (1.0 + part))
}

/// The largest allowed change of a mean, relative to it; `None` where the own tap saw too few connections. `counted` gives the number of a
/// contribution's samples and their sum.
fn part_of(own: WindowSlice<'_>, counted: impl Fn(&Contribution) -> (u32, f64)) -> Option<f64> {
    let of = |part: &Contribution| Some((part.source?.connection, counted(part)));
    let means = means(own.contributions.iter().filter_map(of));
    if means.len() < ENOUGH {
        return None;
    }
    let count = means.len() as f64;
    let mean = means.iter().sum::<f64>() / count;
    let variance = means.iter().map(|one| (one - mean) * (one - mean)).sum::<f64>() / (count - 1.0);
    Some(PART.max(ERRORS * (variance / count).sqrt() / mean).min(0.5))
}
