//! Which engine's queue a packet goes to.

use spand_core::shard::{Partition, Takers};
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;

use super::queue::{FrameBatch, FrameQueue};

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
