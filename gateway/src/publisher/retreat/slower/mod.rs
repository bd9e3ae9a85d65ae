//! Whether the advised transfers of a network take longer than those of its control group (`docs/explain/decisions/retreat-and-budget.md`).
//!
//! Logarithms of times are compared, within size classes: a few transfers that waited for a timeout do not decide, and neither do
//! times that a host invents. The clients of a network are divided into two halves, and harm has to show in both of them, in each with
//! 99 % confidence: no client takes the advice of its neighbours, and two halves err together once in 40,000 looks. It is looked at when
//! the smallest arm has grown by half, hardly more than 16 times in the half hour after which all begins again. Pure: takes the time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};

use spand_core::mem::treed;
use spand_proto::comparison::{ARMS, CLASSES, Difference, NORMAL_99, Place, Tally};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use super::client_of;

/// Networks that are compared at a time: those of which a control transfer is reported first in the half hour.
const NETWORKS: usize = 4_096;
/// From one half hour of the clock to the next, so that a network that is left alone for an hour is compared with no other hour.
const SPAN: Micros = Micros::from_secs(1_800);
/// Transfers in each arm of each half, at least.
const LEAST: u64 = 20;
/// Harm is more than 5 % beyond doubt: the logarithm of 1.05.
const MARGIN: f64 = 0.048_79;

/// A transfer with an arm that was measured to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// The host's end and the other.
    pub(crate) ends: [SocketAddr; 2],
    /// Its size class, arm and duration.
    pub(crate) place: Place,
    pub(crate) began: Timestamp,
}

/// What is compared in this half hour.
#[derive(Debug, Default)]
pub(in crate::publisher) struct Comparisons {
    began: Timestamp,
    networks: BTreeMap<Network, Halves>,
}

/// One network: its transfers by half, class and arm.
#[derive(Debug, Default)]
struct Halves {
    /// Those that began since then.
    since: Timestamp,
    /// The halves are of connections, since there is one client.
    is_alone: bool,
    /// Transfers in the smallest arm at the last look.
    looked: u64,
    times: [[[Tally; ARMS.len()]; CLASSES.len()]; 2],
}

impl Comparisons {
    /// Bytes taken by all of them.
    pub(in crate::publisher) const fn bytes() -> usize {
        treed::<Network, Halves>(NETWORKS)
    }

    /// Takes a transfer of a network whose advice is the engine's own `since` then; `is_alone` if one client has all of it. Whether advice
    /// does harm; the comparison begins again then.
    pub(in crate::publisher) fn take(
        &mut self,
        network: Network,
        transfer: &Transfer,
        (since, is_alone): (Timestamp, bool),
        now: Timestamp,
    ) -> bool {
        let began = now.before(Micros(now.since(Timestamp::default()).0 % SPAN.0));
        if began != self.began {
            self.began = began;
            self.networks.clear();
        }
        let since = since.max(self.began);
        if transfer.began < since {
            return false;
        }
        let has_room = self.networks.len() < NETWORKS;
        let halves = match self.networks.entry(network) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if has_room && transfer.place.arm > 0 => place.insert(Halves::default()),
            Entry::Vacant(_) => return false,
        };
        if (halves.since, halves.is_alone) != (since, is_alone) {
            *halves = Halves { since, is_alone, ..Halves::default() };
        }
        let is_slower = halves.take(transfer);
        if is_slower {
            self.networks.remove(&network);
        }
        is_slower
    }
}

impl Halves {
    fn take(&mut self, Transfer { ends, place, .. }: &Transfer) -> bool {
        let [host, remote] = ends;
        let bits = match client_of(remote.ip()) {
            _ if self.is_alone => (host.port() ^ remote.port()).count_ones(),
            IpAddr::V4(client) => client.to_bits().count_ones(),
            IpAddr::V6(client) => client.to_bits().count_ones(),
        };
        let [even, odd] = &mut self.times;
        let half = if bits % 2 == 0 { even } else { odd };
        let Some(times) = half.get_mut(place.class).and_then(|arms| arms.get_mut(place.arm)) else { return false };
        times.add((place.duration.0.max(1) as f64).ln());
        let of_arm =
            |arm: usize| self.times.iter().map(move |half| half.iter().map(|arms| arms[arm].count).sum::<u64>());
        let smallest = (0..ARMS.len()).flat_map(of_arm).min().unwrap_or(0);
        if smallest < LEAST.max(self.looked + self.looked.div_ceil(2)) {
            return false;
        }
        self.looked = smallest;
        self.times.iter().all(|half| {
            let difference = Difference::of(half.iter().map(<[Tally; ARMS.len()]>::each_ref), NORMAL_99);
            difference.is_some_and(|difference| difference.low > MARGIN)
        })
    }
}

#[cfg(test)]
mod tests;
