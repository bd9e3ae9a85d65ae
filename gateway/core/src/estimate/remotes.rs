//! Samples by remote address: no single one gives more than half of an estimate (definitions, "Samples").

use std::net::IpAddr;

use smallvec::SmallVec;
use spand_proto::units::Window;

use crate::window::bucket::larger;
use crate::window::record::WindowSlice;

/// What the window holds of one remote address; `None` stands for the common rest of full buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    address: Option<IpAddr>,
    pub(super) samples: u64,
    sum_bytes: f64,
    bound: Option<Window>,
}

/// Sums up by remote address, in order of address.
pub(super) fn remotes(slice: WindowSlice<'_>) -> SmallVec<[Remote; 16]> {
    let mut all: SmallVec<[Remote; 16]> = slice
        .contributions
        .iter()
        .map(|contribution| Remote {
            address: contribution.source.map(|source| source.remote),
            samples: u64::from(contribution.samples),
            sum_bytes: contribution.sum_bytes,
            bound: contribution.largest_bound,
        })
        .collect();
    // Stable, so that sums are formed in one order, that of time.
    all.sort_by_key(|remote| remote.address);
    all.dedup_by(|next, kept| {
        let same = next.address == kept.address;
        if same {
            kept.samples += next.samples;
            kept.sum_bytes += next.sum_bytes;
            kept.bound = next.bound.map(|bound| larger(kept.bound, bound)).or(kept.bound);
        }
        same
    });
    all
}

/// The average of all samples, each with the same weight, except those of an address that would have more than half: they
/// weigh together as much as all others. A window that knows one address only has no others, and is averaged as it is.
pub(super) fn average(remotes: &[Remote]) -> Option<Window> {
    let (samples, sum_bytes) =
        remotes.iter().fold((0, 0.0), |(samples, sum), r| (samples + r.samples, sum + r.sum_bytes));
    if samples == 0 {
        return None;
    }
    // The common rest is of many addresses: never capped as if it were one.
    let named = remotes.iter().filter(|remote| remote.address.is_some());
    let Some(largest) = named.max_by_key(|remote| remote.samples) else {
        return Window::from_bytes(sum_bytes / samples as f64);
    };
    let others = samples - largest.samples;
    if others == 0 || largest.samples <= others {
        return Window::from_bytes(sum_bytes / samples as f64);
    }
    let own = largest.sum_bytes / largest.samples as f64;
    let rest: f64 = remotes.iter().filter(|r| r.address != largest.address).map(|r| r.sum_bytes).sum();
    Window::from_bytes(0.5 * own + 0.5 * rest / others as f64)
}

/// The lower bound that may raise an estimate: the largest that two addresses attest, so that one host's fast line is not
/// taken for everybody's. Where the window knows one address only, its own. The common rest attests nothing: it may hold
/// the same address.
pub(super) fn lower_bound(remotes: &[Remote]) -> Option<Window> {
    let mut bounds: SmallVec<[Window; 16]> =
        remotes.iter().filter(|remote| remote.address.is_some()).filter_map(|remote| remote.bound).collect();
    bounds.sort_unstable_by(|a, b| b.bytes().total_cmp(&a.bytes()));
    bounds.get(usize::from(remotes.len() > 1)).copied()
}
