//! What other gateways saw of a network, and the record that follows from all of it.
//!
//! A network's own record stays what this gateway saw: it is what is stored, and what leaves as cells. Cells of others lie beside it, and
//! both give a merged record, bucket by bucket where one changed. Evaluation takes the merged one where there are cells.

use smallvec::SmallVec;
use spand_core::config::WindowConfig;
use spand_core::networks::Seen;
use spand_core::window::record::{NetworkRecord, bucket_nanos};
use spand_proto::units::Timestamp;

use crate::cell::{Cell, CellRefused};
use crate::gateway::{GatewayId, MOST_GATEWAYS, TapId};
use crate::merge::{self, MergedRecord};
use crate::outlier::Outlier;

/// Cells of one bucket and network that are kept. At the limit a further one is refused.
pub(crate) const GATEWAYS_PER_BUCKET: usize = MOST_GATEWAYS as usize;

/// Cells of other gateways in one network's window, and what they give with the own record.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// In order of bucket and gateway.
    pub(crate) cells: Vec<Cell>,
    /// Heap memory of what the cells hold, kept up to date, since a window has up to a thousand cells and each that comes is accounted for.
    pub(crate) parts_bytes: usize,
    /// Cells that say when a sample was raised: none under most rules.
    pub(crate) raised: usize,
    merged: MergedRecord,
    /// The tap whose samples lie far from what all others saw, and the record without it where it does not count.
    outlier: Option<(Outlier, Option<Box<NetworkRecord>>)>,
    /// Buckets whose part of `merged` is not what follows any more.
    stale: SmallVec<[u64; 4]>,
    /// Contributions that had no room in a merged bucket.
    pub(crate) crowded_out: u64,
}

/// What became of a cell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Taken {
    /// It counts, in place of one of which this much was counted, if that was of the closed bucket, too.
    New(Option<u64>),
    /// The same or a newer one is here already.
    Known,
}

impl Foreign {
    pub(crate) fn new(own: &NetworkRecord, tap: TapId) -> Self {
        Self {
            cells: Vec::new(),
            parts_bytes: 0,
            raised: 0,
            merged: MergedRecord::new(own, tap),
            outlier: None,
            stale: SmallVec::new(),
            crowded_out: 0,
        }
    }

    /// Takes a cell that is sound.
    pub(crate) fn take(&mut self, cell: Cell, config: &WindowConfig) -> Result<Taken, CellRefused> {
        let key = |cell: &Cell| (cell.index(), cell.gateway);
        let index = cell.index();
        let (parts_bytes, raised) = (cell.parts_bytes(), usize::from(cell.raised.is_some()));
        let mut before = None;
        match self.cells.binary_search_by_key(&key(&cell), key) {
            Ok(place) => {
                let Some(known) = self.cells.get_mut(place) else { return Err(CellRefused::NoRoom) };
                if known.revision() >= cell.revision() {
                    return Ok(Taken::Known);
                }
                let known = std::mem::replace(known, cell);
                before = Some(&known).filter(|known| known.is_closed(config)).map(Cell::counted);
                self.forget(&known);
            }
            Err(place) => {
                let first = self.cells.partition_point(|known| known.index() < index);
                let of_bucket = self.cells.iter().skip(first).take_while(|known| known.index() == index).count();
                if of_bucket >= GATEWAYS_PER_BUCKET {
                    return Err(CellRefused::NoRoom);
                }
                self.cells.insert(place, cell);
            }
        }
        self.parts_bytes += parts_bytes;
        self.raised += raised;
        self.note_stale(index);
        Ok(Taken::New(before))
    }

    /// A cell does not count any more.
    fn forget(&mut self, gone: &Cell) {
        self.parts_bytes -= gone.parts_bytes();
        self.raised -= usize::from(gone.raised.is_some());
    }

    /// The own record changed in its newest bucket.
    pub(crate) fn note_own(&mut self, own: &NetworkRecord) {
        if let Some(newest) = own.buckets.last() {
            self.note_stale(newest.index);
        }
    }

    fn note_stale(&mut self, index: u64) {
        if !self.stale.contains(&index) {
            self.stale.push(index);
        }
    }

    /// The newest bucket of another gateway.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.cells.last().map(Cell::index)
    }

    /// Whether nothing of another gateway is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The record that follows from the own one and the cells, as of the last [`Self::renew`].
    pub(crate) fn merged(&self) -> &NetworkRecord {
        let without = self.outlier.as_ref().and_then(|(_, without)| without.as_deref());
        without.unwrap_or(&self.merged.record)
    }

    /// The tap whose samples lie far from what all others saw, as of then.
    pub(crate) fn outlier(&self) -> Option<Outlier> {
        self.outlier.as_ref().map(|(outlier, _)| *outlier)
    }

    /// Whether [`Self::merged`] is not what follows any more.
    pub(crate) fn is_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Brings the merged record up to date.
    pub(crate) fn renew(&mut self, own: &NetworkRecord, of_own: (GatewayId, TapId), seen: Seen, now: Timestamp) {
        for index in std::mem::take(&mut self.stale) {
            let own_cell = Cell::of(own, index, of_own, seen, now);
            let (bucket, crowded_out) = merge::merge(index, self.of_bucket(index).iter().chain(&own_cell));
            self.crowded_out += crowded_out;
            self.merged.put(index, bucket);
        }
        // A gateway whose clock is ahead makes nothing younger than it is.
        let past = |at: Option<Timestamp>| at.map(|at| at.min(now));
        let newest_sample = past(self.latest(|cell| cell.newest_sample)).max(own.newest_sample);
        let raised = if self.raised > 0 { self.latest(|cell| cell.raised) } else { None };
        let newest = past(self.latest(|cell| Some(cell.as_of))).max(own.newest);
        let record = &mut self.merged.record;
        (record.newest_sample, record.raised, record.newest) = (newest_sample, past(raised).max(own.raised), newest);
        self.outlier = self.merged.outlier(of_own.1).map(|outlier| {
            let without = outlier.is_left_out.then(|| Box::new(self.without(outlier.tap, own, of_own, seen, now)));
            (outlier, without)
        });
    }

    /// The merged record without the cells of one tap.
    fn without(
        &self,
        tap: TapId,
        own: &NetworkRecord,
        of_own: (GatewayId, TapId),
        seen: Seen,
        now: Timestamp,
    ) -> NetworkRecord {
        let all = &self.merged.record;
        let nothing = NetworkRecord { buckets: Vec::new(), contributions: Vec::new(), rtts: Vec::new(), ..*all };
        let mut without = MergedRecord::new(&nothing, of_own.1);
        for index in all.buckets.iter().map(|bucket| bucket.index) {
            let own_cell = Cell::of(own, index, of_own, seen, now);
            let others = self.of_bucket(index).iter().chain(&own_cell).filter(|cell| cell.tap != tap);
            without.put(index, merge::merge(index, others).0);
        }
        without.record
    }

    fn of_bucket(&self, index: u64) -> &[Cell] {
        let first = self.cells.partition_point(|cell| cell.index() < index);
        let after = self.cells.partition_point(|cell| cell.index() <= index);
        self.cells.get(first..after).unwrap_or_default()
    }

    /// The latest of these moments. Each lies in its cell's bucket ([`Cell::sound`]), so the newest bucket that has one has the latest.
    fn latest(&self, of: impl Fn(&Cell) -> Option<Timestamp>) -> Option<Timestamp> {
        self.cells
            .chunk_by(|one, next| one.index() == next.index())
            .rev()
            .find_map(|same| same.iter().filter_map(&of).max())
    }

    /// Drops what is older than the window at `now`.
    pub(crate) fn drop_aged(&mut self, now: Timestamp, config: &WindowConfig) {
        let oldest = (now.0 / bucket_nanos(config.bucket) + 1).saturating_sub(u64::from(config.buckets.get()));
        let aged = self.cells.partition_point(|cell| cell.index() < oldest);
        let gone: SmallVec<[Cell; 4]> = self.cells.drain(..aged).collect();
        gone.iter().for_each(|gone| self.forget(gone));
        self.stale.retain(|index| *index >= oldest);
        self.merged.drop_aged(now, config);
    }

    /// How many connections all taps saw at once, of which `own` saw `seen`: the sums of their most, and of the smaller of that and
    /// the number at samples; and the smallest share that was followed. Beside it that smaller one of the own tap alone. Of the current bucket
    /// and the one before.
    pub(crate) fn crowd(&self, own: TapId, seen: Seen, now: Timestamp, config: &WindowConfig) -> (Seen, u32) {
        let current = now.0 / bucket_nanos(config.bucket);
        let recent = self.cells.iter().rev().take_while(|cell| cell.index().saturating_add(1) >= current);
        let mut taps = SmallVec::<[&Cell; 8]>::new();
        for cell in recent {
            if !taps.iter().any(|known| known.tap == cell.tap) {
                taps.push(cell);
            }
        }
        let mut all = Seen { parallel_at_samples: seen.parallel.min(seen.parallel_at_samples), ..seen };
        // What the own tap shows is complete before others are added.
        taps.sort_unstable_by_key(|cell| cell.tap != own);
        let mut here = all.parallel_at_samples;
        for cell in taps {
            let at_samples = cell.parallel.min(cell.parallel_at_samples);
            if cell.tap == own {
                all.parallel = all.parallel.max(cell.parallel);
                all.parallel_at_samples = all.parallel_at_samples.max(at_samples);
                here = all.parallel_at_samples;
            } else {
                all.parallel = all.parallel.saturating_add(cell.parallel);
                all.parallel_at_samples = all.parallel_at_samples.saturating_add(at_samples);
            }
            all.followed = all.followed.min(cell.followed);
        }
        (all, here)
    }

    /// Bytes of its entries.
    pub(crate) fn held_bytes(&self) -> usize {
        let without =
            self.outlier.as_ref().and_then(|(_, without)| without.as_deref()).map_or(0, NetworkRecord::held_bytes);
        size_of_val(self) + size_of_val(&*self.cells) + self.parts_bytes + self.merged.held_bytes() + without
    }
}
