//! What a network carries at least, where too few samples show what it carries at most.

use smallvec::SmallVec;
use spand_proto::start::DEFAULT_INITIAL_WINDOW;
use spand_proto::units::{Bytes, Window};

use super::remotes;
use crate::config::WindowConfig;
use crate::window::bucket::Contribution;
use crate::window::record::WindowSlice;

/// A lower bound on the share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) window: Window,
    pub(super) mss: Bytes,
    /// Lower bounds and samples behind it, and connections that gave them.
    pub(super) bounds: u32,
    pub(super) connections: u32,
    /// Bucket of the newest.
    pub(super) newest: u64,
}

/// Whether a contribution counts towards an estimate: samples, or a lower bound beyond the initial window.
pub(crate) fn says_something(part: &Contribution) -> bool {
    part.samples > 0 || beyond(part).is_some()
}

fn beyond(part: &Contribution) -> Option<Window> {
    let least = Window::from_segments(DEFAULT_INITIAL_WINDOW, part.mss);
    part.largest_bound.filter(|bound| *bound > least)
}

impl Bound {
    /// The largest that two addresses attest, of lower bounds beyond the initial window: up to that every connection starts in any case.
    /// None where these and the few samples that there are
    /// are fewer than samples are wanted.
    pub(super) fn of(slice: WindowSlice<'_>, config: &WindowConfig) -> Option<Self> {
        let parts = || slice.contributions.iter().filter(|part| says_something(part));
        let bounds =
            parts().fold(0, |sum: u32, part| sum.saturating_add(part.lower_bounds).saturating_add(part.samples));
        let mut connections: SmallVec<[_; 32]> = parts().filter_map(|part| part.source).collect();
        connections.sort_unstable();
        connections.dedup();
        let connections = u32::try_from(connections.len()).unwrap_or(u32::MAX);
        if bounds < config.min_samples || connections < config.min_connections {
            return None;
        }
        let newest = parts().next_back()?;
        let window = remotes::attested(slice.contributions, beyond)?;
        Some(Self { window, mss: newest.mss, bounds, connections, newest: newest.bucket })
    }
}
