//! The newest part of a window that holds enough samples: what a path was an age ago says less than what it is.

use std::net::IpAddr;

use super::remotes;
use crate::window::bucket::Contribution;
use crate::window::record::WindowSlice;

/// Most samples of one connection and bucket that count towards the number asked for.
pub(super) const COUNTED_PER_PLACE: u32 = 4;

/// Contributions of the newest buckets that hold `enough` samples together, whole buckets only; all there are where they
/// do not.
///
/// What one address gave beyond as much as all others counts for nothing here: else a single busy one could push
/// everybody else's out of sight.
pub(super) fn newest(slice: WindowSlice<'_>, enough: u32) -> &[Contribution] {
    let all = slice.contributions;
    let several = remotes::are_several(all.iter().filter(|part| part.samples > 0));
    // Weights of different addresses cancel each other out; what one has beyond all others is at most the rest.
    let mut ahead: Option<(IpAddr, u32)> = None;
    let (mut total, mut from) = (0_u32, all.len());
    for bucket in all.chunk_by(|one, next| one.bucket == next.bucket).rev() {
        from -= bucket.len();
        for part in bucket {
            let (samples, remote) = match part.source {
                Some(source) => (part.samples.min(COUNTED_PER_PLACE), Some(source.remote)),
                None => (part.samples, None),
            };
            total = total.saturating_add(samples);
            ahead = match (ahead, remote) {
                (held, None) => held.map(|(holder, lead)| (holder, lead.saturating_sub(samples))),
                (Some((holder, lead)), Some(remote)) if holder == remote => {
                    Some((holder, lead.saturating_add(samples)))
                }
                (Some((holder, lead)), Some(_)) if lead >= samples => Some((holder, lead - samples)),
                (Some((_, lead)), Some(remote)) => Some((remote, samples - lead)),
                (None, Some(remote)) => Some((remote, samples)),
            };
        }
        let lead = ahead.filter(|_| several).map_or(0, |(_, lead)| lead);
        if total - lead >= enough {
            break;
        }
    }
    all.get(from..).unwrap_or_default()
}
