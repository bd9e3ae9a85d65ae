//! How far an estimate can be trusted.

use spand_proto::estimate::Confidence;
use spand_proto::units::Micros;

use super::remotes;
use crate::window::record::WindowSlice;

/// Number of samples at which the term for their number is 0.5: a few more than the minimum of 3
/// (`docs/decisions/estimate-of-a-network.md`).
const HALF_TRUST_SAMPLES: f64 = 5.0;
/// Factor for samples of a single remote address: they measure its access link, not the network's path.
const ONE_ADDRESS: f64 = 0.5;

/// The same where only lower bounds are known: half of what as many samples that agree would have.
pub(super) fn of_bound(bounds: u32, age: Micros, max_age: Micros) -> Confidence {
    let bounds = f64::from(bounds);
    Confidence::new(0.5 * bounds / (bounds + HALF_TRUST_SAMPLES) * freshness(age, max_age))
}

fn freshness(age: Micros, max_age: Micros) -> f64 {
    1.0 - (age.0 as f64 / max_age.0.max(1) as f64).min(1.0)
}

/// Number of samples, agreement among them, freshness and breadth, each from 0 to 1, multiplied:
///
/// `n / (n + 5)  *  1 / (1 + cv)  *  (1 - age / max_age)  *  (1, or 0.5 where all are of one address)`
///
/// with `cv` the samples' standard deviation over their mean. 20 samples of several hosts that scatter by a quarter give
/// 0.64 when fresh; the least that makes an estimate, three that agree, 0.38.
pub(super) fn confidence(slice: WindowSlice<'_>, age: Micros, max_age: Micros) -> Confidence {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for contribution in slice.contributions {
        count += f64::from(contribution.samples);
        sum += contribution.sum_bytes;
        squares += contribution.squares;
    }
    if count == 0.0 {
        return Confidence::new(0.0);
    }
    let mean = sum / count;
    let deviation = (squares / count - mean * mean).max(0.0).sqrt();
    let agreement = if mean > 0.0 { 1.0 / (1.0 + deviation / mean) } else { 0.0 };
    let breadth = if remotes::several_gave_samples(slice) { 1.0 } else { ONE_ADDRESS };
    Confidence::new(count / (count + HALF_TRUST_SAMPLES) * agreement * freshness(age, max_age) * breadth)
}
