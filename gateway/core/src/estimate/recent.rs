//! The newest part of a window that holds enough samples: what a path was an age ago says less than what it is.

use std::net::IpAddr;

use super::remotes;
use crate::window::bucket::Contribution;
use crate::window::record::WindowSlice;

/// Maximum samples of one connection and bucket that count towards the requested number.
const COUNTED_PER_PLACE: u32 = 4;

/// The newest part of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest<'a> {
    /// Contributions of the buckets that hold enough samples together.
    pub(super) contributions: &'a [Contribution],
    /// Part of the oldest of these buckets that is still wanted, so that one sample more never swaps a whole bucket.
    pub(super) of_oldest: f64,
}

/// The newest buckets: those of the last `span`, and as many more as hold `enough` samples together.
///
/// What one address gave beyond as much as all others counts for nothing here: else a single busy one could push
/// everybody else's out of sight.
pub(super) fn newest(slice: WindowSlice<'_>, enough: u32, span: u64) -> Newest<'_> {
    let all = slice.contributions;
    let last = all.last().map_or(0, |part| part.bucket);
    let several = remotes::are_several(all.iter().filter(|part| part.samples > 0));
    let (mut tally, mut from, mut of_oldest) = (Tally::default(), all.len(), 1.0);
    let mut before = 0;
    for bucket in all.chunk_by(|one, next| one.bucket == next.bucket).rev() {
        let old = bucket.first().is_some_and(|part| last.saturating_sub(part.bucket) >= span);
        if old && before >= enough {
            break;
        }
        from -= bucket.len();
        for part in bucket {
            tally.add(part);
        }
        let counted = if several { tally.total - tally.lead() } else { tally.total };
        if old && counted >= enough {
            of_oldest = f64::from(enough - before) / f64::from(counted - before);
            break;
        }
        before = counted;
    }
    Newest { contributions: all.get(from..).unwrap_or_default(), of_oldest }
}

/// Samples so far, and what one address has of them beyond all others.
#[derive(Default)]
struct Tally {
    total: u32,
    /// Weights of different addresses cancel each other out: what is left over is at least what any has beyond all others.
    ahead: Option<(IpAddr, u32)>,
}

impl Tally {
    fn add(&mut self, part: &Contribution) {
        let (samples, remote) = match part.source {
            Some(source) => (part.samples.min(COUNTED_PER_PLACE), Some(source.remote)),
            // Perhaps of many addresses, perhaps of one.
            None => (part.samples.min(COUNTED_PER_PLACE), None),
        };
        self.total = self.total.saturating_add(samples);
        self.ahead = match (self.ahead, remote) {
            (Some((holder, lead)), Some(remote)) if holder == remote => Some((holder, lead.saturating_add(samples))),
            (Some((_, lead)), Some(remote)) if lead < samples => Some((remote, samples - lead)),
            (Some((holder, lead)), _) => Some((holder, lead.saturating_sub(samples))),
            (None, remote) => remote.map(|remote| (remote, samples)),
        };
    }

    fn lead(&self) -> u32 {
        self.ahead.map_or(0, |(_, lead)| lead)
    }
}
