//! The bottleneck's buffer, from the windows and round trips at losses (`docs/explain/definitions.md`, "The estimate").

use std::net::IpAddr;

use smallvec::SmallVec;
use spand_proto::units::{Micros, Window};

use super::load;
use super::sources::{self, Given};
use crate::window::record::WindowSlice;

/// Fewest connections that must show it: as many as let a start fall below the host's default.
const MIN_CONNECTIONS: usize = 3;
/// Largest standard deviation of what one connection shows, and median distance of what all show, as part of the value. Packets lost at
/// random are lost at any length of the queue, and scatter more.
const MAX_SCATTER: f64 = 0.5;

/// What a connection had in the queue when that overflowed, in the median over addresses, times the connections that share the queue.
///
/// `None` unless losses of enough connections show it and agree. Each address has one voice, its mean; where there is only one address, each
/// connection has one. Of an even number the larger of the middle two counts: a buffer taken too large limits no start below what standard TCP
/// does, one taken too small would.
pub(super) fn buffer(slice: WindowSlice<'_>, bucket: Micros) -> Option<Window> {
    let mut voices = voices(slice);
    let middle = median(&mut voices)?;
    let mut distances: SmallVec<[f64; 32]> = voices.iter().map(|voice| (voice - middle).abs()).collect();
    if median(&mut distances)? > MAX_SCATTER * middle {
        return None;
    }
    Window::from_bytes(middle * senders(slice, bucket)).filter(|buffer| buffer.bytes() > 0.0)
}

/// One value for each address, or for each connection where there is one address; none of too few connections.
fn voices(slice: WindowSlice<'_>) -> SmallVec<[f64; 32]> {
    if slice.contributions.iter().filter(|part| part.queued.losses > 0).count() < MIN_CONNECTIONS {
        return SmallVec::new();
    }
    let agreeing = |one: &Given| {
        let losses = f64::from(one.queued.losses);
        let mean = one.queued.bytes / losses;
        let variance = one.queued.squares / losses - mean * mean;
        (losses > 0.0 && variance <= (MAX_SCATTER * mean).powi(2)).then_some((one.source.remote, mean))
    };
    let connections: SmallVec<[(IpAddr, f64); 32]> = sources::connections(slice).iter().filter_map(agreeing).collect();
    if connections.len() < MIN_CONNECTIONS {
        return SmallVec::new();
    }
    let addresses = connections.chunk_by(|one, next| one.0 == next.0);
    if addresses.clone().count() == 1 {
        return connections.iter().map(|(_, mean)| *mean).collect();
    }
    addresses.map(|own| own.iter().map(|(_, mean)| mean).sum::<f64>() / own.len() as f64).collect()
}

/// Puts the values in order; the middle one, of an even number the larger.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Senders that share the queue: those of the busiest bucket.
fn senders(slice: WindowSlice<'_>, bucket: Micros) -> f64 {
    slice.buckets.iter().map(|of| load::senders(of, bucket)).fold(1.0, f64::max)
}
