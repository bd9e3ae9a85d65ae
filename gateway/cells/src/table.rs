//! What leaves of the networks of one table for other gateways, and what comes of them from these.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use spand_core::config::WindowConfig;
use spand_core::estimate::says_something;
use spand_core::networks::{OtherGateways, OwnNetwork, Seen};
use spand_core::types::ConnectionId;
use spand_core::window::record::{NetworkRecord, bucket_nanos};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use crate::cell::{self, Cell, CellRefused, Digest};
use crate::foreign::{Foreign, Taken};
use crate::gateway::{GatewayId, Sharing, TapId};
use crate::outlier::Outlier;
use crate::pseudonyms::Pseudonyms;

/// Least time between two cells of one open bucket.
const EARLY: Micros = Micros::from_secs(1);
/// Cells that wait to be taken. At the limit the oldest is dropped, counted: its bucket is still in the record.
const WAITING: usize = 16_384;

/// Taps of which it is counted that they lay off.
const OUTLIERS: usize = 1_024;

/// What a table shares with those of other gateways.
#[derive(Debug)]
pub(crate) struct SharedNetworks {
    own: Sharing,
    config: WindowConfig,
    /// By place in the table.
    networks: Vec<Option<Box<SharedNetwork>>>,
    waiting: VecDeque<(Network, Cell)>,
    /// Networks with an open bucket that has not left, by its number.
    open: BTreeMap<u64, Vec<Network>>,
    /// Networks of which only other gateways have samples, by their newest bucket: they make room first.
    foreign_only: BTreeSet<(u64, Network)>,
    counts: SharingCounts,
    /// Before which bucket digests were forgotten.
    forgot: u64,
}

/// What became of cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharingCounts {
    /// Cells of closed buckets that left, and of open ones.
    pub closed: u64,
    /// Cells of buckets that were still open.
    pub early: u64,
    /// Cells that were dropped before they were taken.
    pub dropped: u64,
    /// Cells of others that count.
    pub taken: u64,
    /// Cells of others that were here already.
    pub known: u64,
    /// Contributions that had no room in a merged bucket.
    pub crowded_out: u64,
    /// Of each gateway with another tap: connections in its closed cells, and those of them that this gateway saw too.
    pub seen_by_both: BTreeMap<GatewayId, SeenByBoth>,
    /// Cells of closed buckets that left, by bucket: of those of the window that closed since the start.
    pub sent: BTreeMap<u64, Digest>,
    /// Cells of closed buckets of others that count, by gateway and bucket.
    pub heard: BTreeMap<(GatewayId, u64), Digest>,
    /// Gateways and buckets of which some had no room here: what came of them says nothing of what was sent.
    pub no_room: BTreeSet<(GatewayId, u64)>,
    /// Of each tap whose samples of a network lay far from what all others saw.
    pub outliers: BTreeMap<TapId, Outliers>,
}

/// Networks in which one tap lay far from all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outliers {
    /// How often it began to.
    pub begun: u64,
    /// The last one,
    pub network: Network,
    /// and how far.
    pub last: Outlier,
}

/// Connections in buckets that two gateways closed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SeenByBoth {
    /// All that the other gateway saw in buckets in which this one saw some of the same network.
    pub all: u64,
    /// Those that this gateway saw too: as many as all where their taps are one.
    pub both: u64,
}

/// What is kept of a network for sharing.
#[derive(Debug, Default)]
struct SharedNetwork {
    foreign: Option<Foreign>,
    /// The newest bucket that is closed, and the hash of its cell where that left.
    closed: Option<(u64, Option<u64>)>,
    /// When a cell of an open bucket left last.
    early: Option<Timestamp>,
    /// A sample, a lower bound, a round trip or a loss came since a cell left.
    fresh: bool,
    /// An early cell is to leave as soon as one may.
    wants_early: bool,
}

impl SharedNetworks {
    pub(crate) fn new(own: Sharing, config: WindowConfig) -> Self {
        Self {
            own,
            config,
            networks: Vec::new(),
            waiting: VecDeque::new(),
            open: BTreeMap::new(),
            foreign_only: BTreeSet::new(),
            counts: SharingCounts::default(),
            forgot: 0,
        }
    }

    pub(crate) fn take_cells(&mut self) -> Vec<(Network, Cell)> {
        self.waiting.drain(..).collect()
    }

    pub(crate) fn counts(&self) -> &SharingCounts {
        &self.counts
    }

    /// The cells of a network as this gateway saw it, from bucket `from` on.
    pub(crate) fn own_cells(&self, own: OwnNetwork<'_>, from: u64, now: Timestamp) -> Vec<Cell> {
        let indices = own.record.buckets.iter().map(|bucket| bucket.index).filter(|index| *index >= from);
        let cells = indices.filter_map(|index| self.cell(own, index, now));
        cells.filter(|cell| is_wanted(own, cell)).collect()
    }

    /// What may be kept of a cell that came.
    pub(crate) fn sound(&self, cell: Cell, now: Timestamp) -> Result<Cell, CellRefused> {
        if cell.gateway == self.own.gateway { Err(CellRefused::Own) } else { cell.sound(now, &self.config) }
    }

    /// Takes a cell that is sound. Returns whether it counts.
    pub(crate) fn take(&mut self, own: OwnNetwork<'_>, cell: Cell) -> Result<bool, CellRefused> {
        let OwnNetwork { place, network, record, .. } = own;
        let (index, gateway, is_closed, counted) =
            (cell.index(), cell.gateway, cell.is_closed(&self.config), cell.counted());
        let is_compared = is_closed && cell.tap != self.own.tap;
        let both = is_compared.then(|| SeenByBoth::of(&cell, record));
        let tap = self.own.tap;
        let foreign = shared(&mut self.networks, place).foreign.get_or_insert_with(|| Foreign::new(record, tap));
        let newest = foreign.newest();
        let before = match foreign.take(cell, &self.config)? {
            Taken::Known => {
                self.counts.known += 1;
                return Ok(false);
            }
            Taken::New(before) => before,
        };
        self.counts.taken += 1;
        if is_closed {
            let heard = self.counts.heard.entry((gateway, index)).or_default();
            before.inspect(|before| heard.remove(cell::hash(network, index, *before)));
            heard.add(cell::hash(network, index, counted));
        }
        if let Some(SeenByBoth { all, both }) = both {
            let sum = self.counts.seen_by_both.entry(gateway).or_default();
            (sum.all, sum.both) = (sum.all + all, sum.both + both);
        }
        if record.buckets.is_empty() && newest.is_none_or(|newest| newest < index) {
            newest.map(|newest| self.foreign_only.remove(&(newest, network)));
            self.foreign_only.insert((index, network));
        }
        Ok(true)
    }

    /// Of this gateway's bucket some had no room here.
    pub(crate) fn note_no_room(&mut self, of: (GatewayId, u64)) {
        self.counts.no_room.insert(of);
    }

    fn get(&self, place: usize) -> Option<&SharedNetwork> {
        self.networks.get(place)?.as_deref()
    }

    fn foreign(&self, place: usize) -> Option<&Foreign> {
        self.get(place)?.foreign.as_ref()
    }

    fn cell(&self, own: OwnNetwork<'_>, index: u64, now: Timestamp) -> Option<Cell> {
        let of_own = (self.own.gateway, self.own.tap);
        Cell::of(own.record, index, of_own, own.seen(now, &self.config), now)
    }

    /// Forgets what left and came of buckets that have left the window.
    fn forget_aged(&mut self, now: Timestamp) {
        let current = now.0 / bucket_nanos(self.config.bucket);
        let oldest = current.saturating_add(1).saturating_sub(self.config.buckets.get().into());
        if self.counts.sent.first_key_value().is_some_and(|(index, _)| *index < oldest) {
            self.counts.sent = self.counts.sent.split_off(&oldest);
        }
        if self.forgot < oldest {
            self.forgot = oldest;
            self.counts.heard.retain(|(_, index), _| *index >= oldest);
            self.counts.no_room.retain(|(_, index)| *index >= oldest);
        }
    }

    /// The cell of a bucket that is over leaves, unless it has as it is.
    fn close(&mut self, own: OwnNetwork<'_>, index: u64, now: Timestamp) {
        // What came since is in the newest bucket.
        let is_newest = own.record.buckets.last().is_some_and(|newest| newest.index == index);
        let (closed, fresh) = self.get(own.place).map_or((None, false), |shared| (shared.closed, shared.fresh));
        if closed.is_some_and(|(closed, _)| closed > index || closed == index && !(fresh && is_newest)) {
            return;
        }
        let Some(cell) = self.cell(own, index, now) else { return };
        // At the beginning of the next bucket the record still ends with this one.
        let cell = Cell { as_of: self.end(index), ..cell };
        let hash = is_wanted(own, &cell).then(|| cell::hash(own.network, cell.index(), cell.counted()));
        let before = closed.filter(|(closed, _)| *closed == index).and_then(|(_, hash)| hash);
        let shared = shared(&mut self.networks, own.place);
        (shared.closed, shared.fresh) = (Some((index, hash)), false);
        let Some(hash) = hash else { return };
        let sent = self.counts.sent.entry(index).or_default();
        before.inspect(|before| sent.remove(*before));
        sent.add(hash);
        self.counts.closed += 1;
        self.send(own.network, cell);
    }

    /// The end of a bucket.
    fn end(&self, index: u64) -> Timestamp {
        Timestamp(index.saturating_add(1).saturating_mul(bucket_nanos(self.config.bucket)))
    }

    fn send(&mut self, network: Network, cell: Cell) {
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
            self.counts.dropped += 1;
        }
        self.waiting.push_back((network, cell));
    }
}

impl OtherGateways for SharedNetworks {
    fn pseudonym(&self, remote: IpAddr) -> IpAddr {
        self.own.pseudonyms.address(remote)
    }

    fn restore(&self, record: &mut NetworkRecord) {
        let remotes = record.contributions.iter_mut().filter_map(|part| Some(&mut part.source.as_mut()?.remote));
        for remote in remotes.chain(record.rtts.iter_mut().map(|part| &mut part.remote)) {
            if Pseudonyms::hash_of(*remote).is_none() {
                *remote = self.pseudonym(*remote);
            }
        }
    }

    fn connection(&self, ends: [(IpAddr, u16); 2], seq: u32) -> ConnectionId {
        self.own.pseudonyms.connection(ends, seq)
    }

    fn open(&mut self, own: OwnNetwork<'_>, at: Timestamp) {
        let newest = own.record.buckets.last().map(|bucket| bucket.index);
        newest.inspect(|newest| self.close(own, *newest, at));
        let index = at.0 / bucket_nanos(self.config.bucket);
        self.open.entry(index).or_default().push(own.network);
        if newest.is_none()
            && let Some(newest) = self.foreign(own.place).and_then(Foreign::newest)
        {
            self.foreign_only.remove(&(newest, own.network));
        }
    }

    fn add(&mut self, own: OwnNetwork<'_>) {
        let shared = shared(&mut self.networks, own.place);
        let newest = own.record.buckets.last().map(|bucket| bucket.index);
        // What a tap hands over late belongs to a bucket whose cell has left: that one leaves again.
        if let Some(newest) =
            newest.filter(|newest| !shared.fresh && shared.closed.is_some_and(|(closed, _)| closed >= *newest))
        {
            self.open.entry(newest).or_default().push(own.network);
        }
        shared.fresh = true;
        if let Some(foreign) = &mut shared.foreign {
            foreign.note_own(own.record);
        }
    }

    /// A cell of the open bucket leaves, now or as soon as one may: then that moment is returned.
    fn announce(&mut self, own: OwnNetwork<'_>, now: Timestamp) -> Option<Timestamp> {
        let shared = self.get(own.place).filter(|shared| shared.fresh)?;
        let next = shared.early.map(|early| early.after(EARLY)).filter(|next| *next > now);
        let newest = own.record.buckets.last().map(|bucket| bucket.index);
        let cell = if next.is_some() { None } else { newest.and_then(|index| self.cell(own, index, now)) };
        if cell.as_ref().is_some_and(|cell| !is_wanted(own, cell)) {
            return None;
        }
        let shared = shared_mut(&mut self.networks, own.place)?;
        shared.wants_early = next.is_some();
        if let Some(cell) = cell {
            (shared.early, shared.fresh) = (Some(now), false);
            self.counts.early += 1;
            self.send(own.network, cell);
        }
        next
    }

    fn age(&mut self, own: OwnNetwork<'_>, now: Timestamp) -> Option<Timestamp> {
        let shared = shared_mut(&mut self.networks, own.place)?;
        if let Some(foreign) = &mut shared.foreign {
            let newest = foreign.newest();
            foreign.drop_aged(now, &self.config);
            if foreign.is_empty() {
                newest.map(|newest| self.foreign_only.remove(&(newest, own.network)));
                shared.foreign = None;
            } else if own.record.buckets.is_empty()
                && let Some(newest) = newest
            {
                self.foreign_only.insert((newest, own.network));
            }
        }
        if shared.wants_early { self.announce(own, now) } else { None }
    }

    fn close_over<'a>(
        &mut self,
        now: Timestamp,
        work: usize,
        find: &dyn Fn(Network) -> Option<OwnNetwork<'a>>,
    ) -> usize {
        let mut left = work;
        self.forget_aged(now);
        while left > 0 && self.next_close().is_some_and(|end| end <= now) {
            let Some(mut first) = self.open.first_entry() else { break };
            let index = *first.key();
            let Some(network) = first.get_mut().pop() else {
                first.remove();
                continue;
            };
            left -= 1;
            if let Some(own) = find(network) {
                self.close(own, index, now);
            }
        }
        left
    }

    fn next_close(&self) -> Option<Timestamp> {
        let (index, _) = self.open.first_key_value()?;
        Some(self.end(*index))
    }

    fn renew(&mut self, own: OwnNetwork<'_>, now: Timestamp) {
        let of_own = (self.own.gateway, self.own.tap);
        let shared = shared_mut(&mut self.networks, own.place);
        let Some(foreign) = shared.and_then(|shared| shared.foreign.as_mut()) else { return };
        let before = (foreign.crowded_out, foreign.outlier());
        foreign.renew(own.record, of_own, own.seen(now, &self.config), now);
        let (crowded_out, outlier) = (foreign.crowded_out - before.0, foreign.outlier());
        let network = own.network;
        self.counts.crowded_out += crowded_out;
        if let Some(last) = outlier {
            let known = &mut self.counts.outliers;
            if known.len() < OUTLIERS || known.contains_key(&last.tap) {
                let of = known.entry(last.tap).or_insert(Outliers { begun: 0, network, last });
                let begun = u64::from(before.1.is_none_or(|before| before.tap != last.tap));
                *of = Outliers { begun: of.begun + begun, network, last };
            }
        }
    }

    fn merged(&self, place: usize) -> Option<&NetworkRecord> {
        self.foreign(place).map(Foreign::merged)
    }

    fn merged_at(&self, own: OwnNetwork<'_>, now: Timestamp) -> Option<Cow<'_, NetworkRecord>> {
        let foreign = self.foreign(own.place)?;
        if !foreign.is_stale() {
            return Some(Cow::Borrowed(foreign.merged()));
        }
        let mut foreign = foreign.clone();
        foreign.renew(own.record, (self.own.gateway, self.own.tap), own.seen(now, &self.config), now);
        Some(Cow::Owned(foreign.merged().clone()))
    }

    fn seen(&self, own: OwnNetwork<'_>, now: Timestamp) -> Option<(Seen, u32)> {
        let foreign = self.foreign(own.place)?;
        Some(foreign.crowd(self.own.tap, own.seen(now, &self.config), now, &self.config))
    }

    fn first_to_go(&self) -> Option<Network> {
        self.foreign_only.first().map(|(_, network)| *network)
    }

    fn remove(&mut self, place: usize, network: Network) {
        let shared = self.networks.get_mut(place).and_then(Option::take);
        if let Some(newest) = shared.and_then(|shared| shared.foreign?.newest()) {
            self.foreign_only.remove(&(newest, network));
        }
    }

    fn held_bytes(&self, place: usize) -> usize {
        self.foreign(place).map_or(0, Foreign::held_bytes)
    }
}

/// Returns the state of the network at this place. It creates one if there is none.
fn shared(networks: &mut Vec<Option<Box<SharedNetwork>>>, place: usize) -> &mut SharedNetwork {
    if place >= networks.len() {
        networks.resize_with(place + 1, || None);
    }
    networks[place].get_or_insert_default()
}

/// What is kept of it, if anything is.
fn shared_mut(networks: &mut [Option<Box<SharedNetwork>>], place: usize) -> Option<&mut SharedNetwork> {
    networks.get_mut(place)?.as_deref_mut()
}

impl SeenByBoth {
    fn of(cell: &Cell, own: &NetworkRecord) -> Self {
        let own = cell::of_index(&own.contributions, cell.index(), |part| part.bucket);
        if own.is_empty() {
            return Self::default();
        }
        let sources = cell.contributions.iter().filter_map(|part| part.source);
        let both = sources.clone().filter(|source| own.iter().any(|part| part.source == Some(*source))).count();
        Self { all: sources.count() as u64, both: both as u64 }
    }
}

/// Whether others are to have a cell of this network. Most networks of an egress have round-trip times alone: they leave in no case, also
/// where reports give an estimate.
fn is_wanted(own: OwnNetwork<'_>, cell: &Cell) -> bool {
    own.is_announced || cell.contributions.iter().any(says_something)
}
