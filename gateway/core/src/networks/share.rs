//! What leaves of a network for other gateways, and what comes of it from them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use super::slots::Slot;
use super::{Entry, NetworkTable};
use crate::estimate::says_something;
use crate::sharing::{GatewayId, Sharing, TapId};
use crate::window::cells::{self, Cell, CellRefused, Digest, Foreign, Outlier, Taken};
use crate::window::record::{NetworkRecord, bucket_nanos};

/// Shortest time between two cells of an open bucket of one network.
const EARLY: Micros = Micros::from_secs(1);
/// Cells that wait to be taken. At the limit the oldest is dropped, counted: its bucket is still in the record.
const WAITING: usize = 16_384;

/// Taps of which it is counted that they lay off.
const OUTLIERS: usize = 1_024;

/// What a table shares with those of other gateways.
#[derive(Debug)]
pub(super) struct TableSharing {
    pub(super) own: Sharing,
    waiting: VecDeque<(Network, Cell)>,
    /// Networks with an open bucket that has not left, by its number.
    open: BTreeMap<u64, Vec<Network>>,
    /// Networks of which only other gateways have samples, by their newest bucket: they make room first.
    pub(super) foreign_only: BTreeSet<(u64, Network)>,
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
pub(super) struct SharedEntry {
    pub(super) foreign: Option<Foreign>,
    /// What hosts reported, while the wire gives no estimate.
    pub(super) reported: Option<Box<NetworkRecord>>,
    /// The newest bucket that is closed, and the hash of its cell where that left.
    closed: Option<(u64, Option<u64>)>,
    /// When a cell of an open bucket left last.
    early: Option<Timestamp>,
    /// A sample, a lower bound, a round trip or a loss came since a cell left.
    fresh: bool,
    /// An early cell is to leave as soon as one may.
    wants_early: bool,
}

impl NetworkTable {
    /// The same, sharing with the tables of other gateways.
    #[must_use]
    pub fn sharing(self, own: Option<Sharing>) -> Self {
        let sharing = own.map(|own| {
            Box::new(TableSharing {
                own,
                waiting: VecDeque::new(),
                open: BTreeMap::new(),
                foreign_only: BTreeSet::new(),
                counts: SharingCounts::default(),
                forgot: 0,
            })
        });
        Self { sharing, ..self }
    }

    /// Cells that are to leave, oldest first.
    pub fn take_cells(&mut self) -> Vec<(Network, Cell)> {
        self.sharing.as_mut().map(|sharing| sharing.waiting.drain(..).collect()).unwrap_or_default()
    }

    /// What became of cells so far; `None` where nothing is shared.
    pub fn sharing_counts(&self) -> Option<&SharingCounts> {
        self.sharing.as_ref().map(|sharing| &sharing.counts)
    }

    /// Every network with samples of its own, in order of prefix.
    pub fn own_networks(&self) -> Vec<Network> {
        let own = self.slots.entries().filter(|entry| !entry.record.buckets.is_empty());
        let mut networks: Vec<_> = own.map(|entry| entry.network).collect();
        networks.sort_unstable();
        networks
    }

    /// The cells of a network as this gateway saw it, from bucket `from` on: what left already, and the open one.
    pub fn own_cells(&self, network: Network, from: u64, now: Timestamp) -> Vec<Cell> {
        let Some(sharing) = &self.sharing else { return Vec::new() };
        let Some(entry) = self.slots.find(network).and_then(|slot| self.slots.get(slot)) else { return Vec::new() };
        let (own, seen) = ((sharing.own.gateway, sharing.own.tap), self.seen(entry, now));
        let indices = entry.record.buckets.iter().map(|bucket| bucket.index).filter(|index| *index >= from);
        let cells = indices.filter_map(|index| Cell::of(&entry.record, index, own, seen, now));
        cells.filter(|cell| entry.is_wanted(cell)).collect()
    }

    /// Takes what another gateway saw. Cheap: the network is evaluated when it is its turn.
    ///
    /// # Errors
    ///
    /// Why it does not count.
    pub fn take_cell(&mut self, network: Network, cell: Cell, now: Timestamp) -> Result<(), CellRefused> {
        let of = (cell.gateway, cell.index());
        let taken = self.try_cell(network, cell, now);
        if taken == Err(CellRefused::NoRoom)
            && let Some(sharing) = &mut self.sharing
        {
            sharing.counts.no_room.insert(of);
        }
        taken
    }

    fn try_cell(&mut self, network: Network, cell: Cell, now: Timestamp) -> Result<(), CellRefused> {
        let Some(own) = self.sharing.as_ref().map(|sharing| sharing.own) else { return Err(CellRefused::Own) };
        if cell.gateway == own.gateway {
            return Err(CellRefused::Own);
        }
        let cell = cell.sound(now, &self.config)?;
        let slot = match self.slots.find(network) {
            Some(slot) => slot,
            None => self.slots.insert(Entry::new(network, self.config.bucket)).ok_or(CellRefused::NoRoom)?,
        };
        self.dirty = true;
        let (index, gateway, is_closed, counted) =
            (cell.index(), cell.gateway, cell.is_closed(&self.config), cell.counted());
        let is_compared = is_closed && cell.tap != own.tap;
        let (Some(entry), Some(sharing)) = (self.slots.get_mut(slot), &mut self.sharing) else {
            return Err(CellRefused::NoRoom);
        };
        let both = is_compared.then(|| SeenByBoth::of(&cell, &entry.record));
        let shared = entry.shared.get_or_insert_default();
        let foreign = shared.foreign.get_or_insert_with(|| Foreign::new(&entry.record, own.tap));
        let newest = foreign.newest();
        let before = match foreign.take(cell, &self.config)? {
            Taken::Known => {
                sharing.counts.known += 1;
                return Ok(());
            }
            Taken::New(before) => before,
        };
        sharing.counts.taken += 1;
        if is_closed {
            let heard = sharing.counts.heard.entry((gateway, index)).or_default();
            before.inspect(|before| heard.remove(cells::hash(network, index, *before)));
            heard.add(cells::hash(network, index, counted));
        }
        if let Some(SeenByBoth { all, both }) = both {
            let sum = sharing.counts.seen_by_both.entry(gateway).or_default();
            (sum.all, sum.both) = (sum.all + all, sum.both + both);
        }
        if entry.record.buckets.is_empty() && newest.is_none_or(|newest| newest < index) {
            newest.map(|newest| sharing.foreign_only.remove(&(newest, network)));
            sharing.foreign_only.insert((index, network));
        }
        let look = entry.considered.map_or(now, |at| at.after(entry.sample_look()).max(now));
        self.slots.due_by(slot, look);
        self.note_change(slot);
        self.account(slot);
        Ok(())
    }

    /// Something comes at `at` that opens a bucket of a network: the one before is closed.
    pub(super) fn opens_bucket(&mut self, slot: Slot, at: Timestamp) {
        if self.sharing.is_none() {
            return;
        }
        let Some(newest) = self.slots.get(slot).map(|entry| entry.record.buckets.last().map(|bucket| bucket.index))
        else {
            return;
        };
        newest.inspect(|newest| self.close(slot, *newest, at));
        let index = at.0 / bucket_nanos(self.config.bucket);
        let Some(entry) = self.slots.get_mut(slot) else { return };
        if let Some(sharing) = &mut self.sharing {
            sharing.open.entry(index).or_default().push(entry.network);
            if newest.is_none()
                && let Some(foreign) = entry.shared.as_ref().and_then(|shared| shared.foreign.as_ref())
                && let Some(newest) = foreign.newest()
            {
                sharing.foreign_only.remove(&(newest, entry.network));
            }
        }
    }

    /// Something was added to a network's own record.
    pub(super) fn note_own(&mut self, slot: Slot) {
        let Some(sharing) = &mut self.sharing else { return };
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let shared = entry.shared.get_or_insert_default();
        let newest = entry.record.buckets.last().map(|bucket| bucket.index);
        // What a tap hands over late belongs to a bucket whose cell has left: that one leaves again.
        if let Some(newest) =
            newest.filter(|newest| !shared.fresh && shared.closed.is_some_and(|(closed, _)| closed >= *newest))
        {
            sharing.open.entry(newest).or_default().push(entry.network);
        }
        shared.fresh = true;
        if let Some(foreign) = &mut shared.foreign {
            foreign.note_own(&entry.record);
        }
    }

    /// A cell of the open bucket leaves, now or as soon as one may: the estimate moved, or there is none yet.
    pub(super) fn send_early(&mut self, slot: Slot, now: Timestamp) {
        let Some(sharing) = &self.sharing else { return };
        let own = (sharing.own.gateway, sharing.own.tap);
        let Some(entry) = self.slots.get(slot) else { return };
        let Some(shared) = entry.shared.as_ref().filter(|shared| shared.fresh) else { return };
        let next = shared.early.map(|early| early.after(EARLY)).filter(|next| *next > now);
        let newest = entry.record.buckets.last().map(|bucket| bucket.index);
        let cell = match next {
            Some(_) => None,
            None => newest.and_then(|index| Cell::of(&entry.record, index, own, self.seen(entry, now), now)),
        };
        if cell.as_ref().is_some_and(|cell| !entry.is_wanted(cell)) {
            return;
        }
        let network = entry.network;
        if let Some(next) = next {
            self.slots.due_by(slot, next);
        }
        let Some(shared) = self.slots.get_mut(slot).and_then(|entry| entry.shared.as_mut()) else { return };
        shared.wants_early = next.is_some();
        if let (Some(cell), Some(sharing)) = (cell, &mut self.sharing) {
            (shared.early, shared.fresh) = (Some(now), false);
            sharing.counts.early += 1;
            sharing.send(network, cell);
        }
    }

    /// An early cell leaves that had to wait.
    pub(super) fn send_waiting(&mut self, slot: Slot, now: Timestamp) {
        let waits = |entry: &Entry| entry.shared.as_ref().is_some_and(|shared| shared.wants_early);
        if self.slots.get(slot).is_some_and(waits) {
            self.send_early(slot, now);
        }
    }

    /// When the next bucket is over that has to leave.
    pub(super) fn next_close(&self) -> Option<Timestamp> {
        let (index, _) = self.sharing.as_ref()?.open.first_key_value()?;
        Some(Timestamp(index.saturating_add(1).saturating_mul(bucket_nanos(self.config.bucket))))
    }

    /// Closes buckets that are over at `now`, with so much work at most. Returns what is left of it.
    pub(super) fn close_over(&mut self, now: Timestamp, work: usize) -> usize {
        let mut left = work;
        if let Some(sharing) = &mut self.sharing {
            sharing.forget_aged(now.0 / bucket_nanos(self.config.bucket), self.config.buckets.get().into());
        }
        while left > 0 && self.next_close().is_some_and(|end| end <= now) {
            let Some(sharing) = &mut self.sharing else { break };
            let Some(mut first) = sharing.open.first_entry() else { break };
            let index = *first.key();
            let Some(network) = first.get_mut().pop() else {
                first.remove();
                continue;
            };
            left -= 1;
            if let Some(slot) = self.slots.find(network) {
                self.close(slot, index, now);
            }
        }
        left
    }

    /// The cell of a bucket that is over leaves, unless it has as it is.
    fn close(&mut self, slot: Slot, index: u64, now: Timestamp) {
        let Some(sharing) = &self.sharing else { return };
        let own = (sharing.own.gateway, sharing.own.tap);
        let Some(entry) = self.slots.get(slot) else { return };
        // What came since is in the newest bucket.
        let is_newest = entry.record.buckets.last().is_some_and(|newest| newest.index == index);
        let (closed, fresh) = entry.shared.as_ref().map_or((None, false), |shared| (shared.closed, shared.fresh));
        if closed.is_some_and(|(closed, _)| closed > index || closed == index && !(fresh && is_newest)) {
            return;
        }
        let Some(cell) = Cell::of(&entry.record, index, own, self.seen(entry, now), now) else { return };
        // At the beginning of the next bucket the record still ends with this one.
        let end = Timestamp(index.saturating_add(1).saturating_mul(bucket_nanos(self.config.bucket)));
        let cell = Cell { as_of: end, ..cell };
        let network = entry.network;
        let hash = entry.is_wanted(&cell).then(|| cells::hash(network, cell.index(), cell.counted()));
        let before = closed.filter(|(closed, _)| *closed == index).and_then(|(_, hash)| hash);
        let Some(shared) = self.slots.get_mut(slot).map(|entry| entry.shared.get_or_insert_default()) else { return };
        (shared.closed, shared.fresh) = (Some((index, hash)), false);
        let Some(sharing) = &mut self.sharing else { return };
        let Some(hash) = hash else { return };
        let sent = sharing.counts.sent.entry(index).or_default();
        before.inspect(|before| sent.remove(*before));
        sent.add(hash);
        sharing.counts.closed += 1;
        sharing.send(network, cell);
    }

    /// Brings what is evaluated of a network up to date.
    pub(super) fn renew_merged(&mut self, slot: Slot, now: Timestamp) {
        let Some(own) = self.sharing.as_ref().map(|sharing| (sharing.own.gateway, sharing.own.tap)) else { return };
        let Some(seen) = self.slots.get(slot).filter(|entry| entry.has_foreign()).map(|entry| self.seen(entry, now))
        else {
            return;
        };
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let Some(foreign) = entry.shared.as_mut().and_then(|shared| shared.foreign.as_mut()) else { return };
        let before = (foreign.crowded_out, foreign.outlier());
        foreign.renew(&entry.record, own, seen, now);
        let (crowded_out, outlier) = (foreign.crowded_out - before.0, foreign.outlier());
        let network = entry.network;
        let Some(sharing) = &mut self.sharing else { return };
        sharing.counts.crowded_out += crowded_out;
        if let Some(last) = outlier {
            let known = &mut sharing.counts.outliers;
            if known.len() < OUTLIERS || known.contains_key(&last.tap) {
                let of = known.entry(last.tap).or_insert(Outliers { begun: 0, network, last });
                let begun = u64::from(before.1.is_none_or(|before| before.tap != last.tap));
                *of = Outliers { begun: of.begun + begun, network, last };
            }
        }
    }

    /// What an estimate of a network follows from at `now`, also where the merged record waits to be brought up to date.
    pub(super) fn evaluated<'a>(&self, entry: &'a Entry, now: Timestamp) -> Cow<'a, NetworkRecord> {
        let own = self.sharing.as_ref().map(|sharing| (sharing.own.gateway, sharing.own.tap));
        match entry.foreign().filter(|foreign| foreign.is_stale()).zip(own) {
            Some((foreign, own)) => {
                let mut foreign = foreign.clone();
                foreign.renew(&entry.record, own, self.seen(entry, now), now);
                Cow::Owned(foreign.merged().clone())
            }
            None => Cow::Borrowed(entry.evaluated()),
        }
    }

    /// What all gateways saw of a network.
    #[cfg(test)]
    pub(crate) fn merged_record(&self, network: Network, now: Timestamp) -> Option<NetworkRecord> {
        let entry = self.slots.get(self.slots.find(network)?)?;
        Some(self.evaluated(entry, now).into_owned())
    }

    /// Drops what other gateways saw longer ago than the window reaches. `was_own`: there were own samples before the own record was brought
    /// up to date.
    pub(super) fn drop_aged_cells(&mut self, slot: Slot, was_own: bool, now: Timestamp) {
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let (network, is_own) = (entry.network, !entry.record.buckets.is_empty());
        let Some(shared) = &mut entry.shared else { return };
        let Some(foreign) = &mut shared.foreign else { return };
        let newest = foreign.newest();
        foreign.drop_aged(now, &self.config);
        let Some(sharing) = &mut self.sharing else { return };
        if foreign.is_empty() {
            newest.map(|newest| sharing.foreign_only.remove(&(newest, network)));
            shared.foreign = None;
        } else if was_own
            && !is_own
            && let Some(newest) = newest
        {
            sharing.foreign_only.insert((newest, network));
        }
    }

    /// A network of which only other gateways have samples, the one of the oldest: it makes room first.
    pub(super) fn oldest_foreign(&self) -> Option<Slot> {
        let (_, network) = self.sharing.as_ref()?.foreign_only.first()?;
        self.slots.find(*network)
    }
}

impl TableSharing {
    /// Forgets what left and came of buckets that have left the window.
    fn forget_aged(&mut self, current: u64, buckets: u64) {
        let oldest = current.saturating_add(1).saturating_sub(buckets);
        if self.counts.sent.first_key_value().is_some_and(|(index, _)| *index < oldest) {
            self.counts.sent = self.counts.sent.split_off(&oldest);
        }
        if self.forgot < oldest {
            self.forgot = oldest;
            self.counts.heard.retain(|(_, index), _| *index >= oldest);
            self.counts.no_room.retain(|(_, index)| *index >= oldest);
        }
    }

    fn send(&mut self, network: Network, cell: Cell) {
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
            self.counts.dropped += 1;
        }
        self.waiting.push_back((network, cell));
    }
}

impl SeenByBoth {
    fn of(cell: &Cell, own: &NetworkRecord) -> Self {
        let own = cells::of_index(&own.contributions, cell.index(), |part| part.bucket);
        if own.is_empty() {
            return Self::default();
        }
        let sources = cell.contributions.iter().filter_map(|part| part.source);
        let both = sources.clone().filter(|source| own.iter().any(|part| part.source == Some(*source))).count();
        Self { all: sources.count() as u64, both: both as u64 }
    }
}

impl Entry {
    /// Whether others are to have a cell of this network. Most networks of an egress have round-trip times alone: they leave in no case,
    /// also where reports give an estimate.
    fn is_wanted(&self, cell: &Cell) -> bool {
        let by_wire = self.announced.is_some() && self.reported().is_none();
        by_wire || cell.contributions.iter().any(says_something)
    }

    pub(super) fn has_foreign(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.foreign.is_some())
    }

    /// What other gateways saw.
    pub(super) fn foreign(&self) -> Option<&Foreign> {
        self.shared.as_ref()?.foreign.as_ref()
    }
}
