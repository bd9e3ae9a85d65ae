//! Packets of several readers in order of time.
//!
//! Both directions of a link often come in on two interfaces, each read by its own thread. What waits is put in order
//! before the engine sees it, and nothing waits for a later packet: a reader that falls behind the others hands over what is late. One
//! reader alone keeps its order, whatever its times say. Connections with too much of either give no sample
//! (`spand_core::counters::Ignored::Unordered`).

use spand_core::shard::{Partition, Takers};
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;

use super::queue::{FrameBatch, FrameQueue};

/// Reused between calls, so that ordering does not allocate.
#[derive(Debug, Default)]
pub(super) struct Order {
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: Timestamp,
    batch: usize,
    index: usize,
}

impl Order {
    /// The packets of `batches`, by time where they come from more than one reader.
    pub(super) fn by_time<'a>(&'a mut self, batches: &'a [FrameBatch]) -> impl Iterator<Item = (Timestamp, Frame<'a>)> {
        self.places.clear();
        for (batch, frames) in batches.iter().enumerate() {
            for index in 0..frames.len() {
                if let Some((at, _)) = frames.get(index) {
                    self.places.push(Place { at, batch, index });
                }
            }
        }
        if several_readers(batches) {
            // Stable: packets of one time keep the order in which they came.
            self.places.sort_by_key(|place| place.at);
        }
        self.places.iter().filter_map(|place| batches.get(place.batch)?.get(place.index))
    }
}

fn several_readers(batches: &[FrameBatch]) -> bool {
    batches.windows(2).any(|two| matches!(two, [one, other] if one.reader() != other.reader()))
}

// Which engine's queue a packet goes to.

/// One batch for each engine, on one capture thread.
#[derive(Debug)]
pub(super) struct Distributor {
    batches: Vec<FrameBatch>,
    reader: u32,
    /// Packets read since they were last handed over.
    waiting: usize,
}

impl Distributor {
    /// Empty batches of a reader for `engines` engines.
    pub(super) fn new(reader: u32, engines: usize) -> Self {
        Self { batches: (0..engines).map(|_| FrameBatch::default()).collect(), reader, waiting: 0 }
    }

    /// Packets that wait to be handed over.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Copies a packet for whom it is for.
    pub(super) fn push(&mut self, partition: &Partition, at: Timestamp, frame: &Frame<'_>) {
        self.waiting += 1;
        if let [only] = self.batches.as_mut_slice() {
            return only.push(at, frame);
        }
        match partition.takers(frame) {
            Takers::One(one) => self.push_to(one, at, frame),
            Takers::Two(home, other) => [home, other].into_iter().for_each(|index| self.push_to(index, at, frame)),
            Takers::All => self.batches.iter_mut().for_each(|batch| batch.push(at, frame)),
        }
    }

    /// Hands over what waits, with times by `map`. Gives how often a packet did not fit into a queue.
    pub(super) fn flush(&mut self, queues: &[FrameQueue], map: impl Fn(Timestamp) -> Timestamp) -> usize {
        self.waiting = 0;
        let waiting = self.batches.iter_mut().zip(queues).filter(|(batch, _)| batch.len() > 0);
        waiting.fold(0, |dropped, (batch, queue)| {
            batch.retime(&map);
            batch.read_by(self.reader);
            dropped + queue.put(batch)
        })
    }

    fn push_to(&mut self, index: u32, at: Timestamp, frame: &Frame<'_>) {
        if let Some(batch) = usize::try_from(index).ok().and_then(|index| self.batches.get_mut(index)) {
            batch.push(at, frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(input: u32, times: &[u64]) -> FrameBatch {
        let mut batch = FrameBatch::default();
        batch.read_by(input);
        for &at in times {
            batch.push(Timestamp(at), &Frame { link_type: 1, wire_len: 0, input, data: &[] });
        }
        batch
    }

    fn times(batches: &[FrameBatch]) -> Vec<(u64, u32)> {
        Order::default().by_time(batches).map(|(at, frame)| (at.0, frame.input)).collect()
    }

    #[test]
    fn two_readers_are_merged_by_time() {
        let merged = times(&[batch(0, &[1, 4]), batch(1, &[2, 4]), batch(0, &[5])]);
        assert_eq!(merged, [(1, 0), (2, 1), (4, 0), (4, 1), (5, 0)]);
    }

    #[test]
    fn one_reader_keeps_its_order() {
        assert_eq!(times(&[batch(0, &[4, 1]), batch(0, &[3])]), [(4, 0), (1, 0), (3, 0)]);
    }
}
