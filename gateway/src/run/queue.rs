//! Packets on their way from the capture threads to the engine's thread.
//!
//! They travel in batches: what the kernel had ready, copied into one buffer. Buffers go back and forth, so that a
//! running gateway does not allocate for packets. The queue is bounded in packets; a batch that does not fit is dropped
//! and counted for its reader.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;

/// Packets in a batch at most: a fraction of a millisecond of the engine's time.
pub(crate) const BATCH_PACKETS: usize = 512;
/// Empty buffers kept for reuse.
const SPARE_BATCHES: usize = 64;

/// Packets of one source in the order it gave them.
#[derive(Debug, Default)]
pub(super) struct FrameBatch {
    input: u32,
    /// The reader that it comes from: its packets are in order.
    reader: u32,
    bytes: Vec<u8>,
    frames: Vec<Placed>,
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    at: Timestamp,
    link_type: u16,
    wire_len: u32,
    start: usize,
    end: usize,
}

/// Bytes of a queue of N packets, each cut to the snap length, with the buffers that are kept for reuse: those grow by doubling.
pub(crate) const fn queue_bytes(packets: usize, snap_length_bytes: usize) -> usize {
    let each = snap_length_bytes.saturating_add(size_of::<Placed>());
    packets.saturating_add(SPARE_BATCHES * BATCH_PACKETS).saturating_mul(each)
}

impl FrameBatch {
    /// Adds a packet, copying its bytes.
    pub(super) fn push(&mut self, at: Timestamp, frame: &Frame<'_>) {
        self.input = frame.input;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame.data);
        let (link_type, wire_len) = (frame.link_type, frame.wire_len);
        self.frames.push(Placed { at, link_type, wire_len, start, end: self.bytes.len() });
    }

    /// Gives every packet its time by `map`.
    pub(super) fn retime(&mut self, map: impl Fn(Timestamp) -> Timestamp) {
        for frame in &mut self.frames {
            frame.at = map(frame.at);
        }
    }

    /// Says who read it.
    pub(super) fn read_by(&mut self, reader: u32) {
        self.reader = reader;
    }

    /// Who read it.
    pub(super) fn reader(&self) -> u32 {
        self.reader
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The packet at `index` with its time.
    pub(super) fn get(&self, index: usize) -> Option<(Timestamp, Frame<'_>)> {
        let placed = self.frames.get(index)?;
        let data = self.bytes.get(placed.start..placed.end)?;
        let frame = Frame { link_type: placed.link_type, wire_len: placed.wire_len, input: self.input, data };
        Some((placed.at, frame))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }
}

/// The queue between capture threads and the engine's thread.
#[derive(Debug)]
pub(super) struct FrameQueue {
    state: Mutex<State>,
    arrived: Condvar,
    limit_packets: usize,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<FrameBatch>,
    packets: usize,
    spare: Vec<FrameBatch>,
    closed: bool,
    /// Calls of [`FrameQueue::take`].
    turns: u64,
}

/// What waiting for packets gave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// Packets.
    Packets,
    /// None until the moment asked for.
    Nothing,
    /// None, and none will come.
    Closed,
}

impl FrameQueue {
    pub(super) fn new(limit_packets: NonZeroUsize) -> Self {
        Self { state: Mutex::default(), arrived: Condvar::new(), limit_packets: limit_packets.get() }
    }

    /// Hands over a batch and leaves an empty one in its place. Gives the number of packets dropped: all or none.
    pub(super) fn put(&self, batch: &mut FrameBatch) -> usize {
        let mut state = self.state.lock();
        if state.packets + batch.len() > self.limit_packets || state.closed {
            let dropped = batch.len();
            batch.clear();
            return dropped;
        }
        state.packets += batch.len();
        let empty = state.spare.pop().unwrap_or_default();
        state.batches.push_back(std::mem::replace(batch, empty));
        drop(state);
        self.arrived.notify_one();
        0
    }

    /// Takes every batch that is there, waiting for the first one at most until `until`. Batches left in `into` from the
    /// last call are given back for reuse.
    pub(super) fn take(&self, into: &mut Vec<FrameBatch>, until: Instant) -> Taken {
        let mut state = self.state.lock();
        state.turns += 1;
        for mut batch in into.drain(..) {
            if state.spare.len() < SPARE_BATCHES {
                batch.clear();
                state.spare.push(batch);
            }
        }
        while state.batches.is_empty() && !state.closed {
            if self.arrived.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        into.extend(state.batches.drain(..));
        state.packets = 0;
        match (into.is_empty(), state.closed) {
            (false, _) => Taken::Packets,
            (true, false) => Taken::Nothing,
            (true, true) => Taken::Closed,
        }
    }

    /// How often packets were taken, or looked for.
    pub(super) fn turns(&self) -> u64 {
        self.state.lock().turns
    }

    /// Packets that may wait.
    pub(super) fn limit(&self) -> usize {
        self.limit_packets
    }

    /// No packets will come any more; those that are there are still taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(times: &[u64]) -> FrameBatch {
        let mut batch = FrameBatch::default();
        for &at in times {
            let data = at.to_be_bytes();
            batch.push(Timestamp(at), &Frame { link_type: 1, wire_len: 8, input: 3, data: &data });
        }
        batch
    }

    fn queue(limit: usize) -> FrameQueue {
        FrameQueue::new(NonZeroUsize::new(limit).unwrap())
    }

    #[test]
    fn packets_come_out_as_they_went_in() {
        let queue = queue(10);
        let mut bringing = batch(&[5, 6]);
        assert_eq!(queue.put(&mut bringing), 0);
        assert_eq!(bringing.len(), 0, "an empty one is left");
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, Instant::now()), Taken::Packets);
        let (at, frame) = taken[0].get(1).unwrap();
        assert_eq!((at, frame.input, frame.data), (Timestamp(6), 3, 6u64.to_be_bytes().as_slice()));
        assert!(taken[0].get(2).is_none());
    }

    #[test]
    fn what_does_not_fit_is_dropped_whole_and_counted() {
        let queue = queue(3);
        assert_eq!(queue.put(&mut batch(&[1, 2])), 0);
        let mut late = batch(&[3, 4]);
        assert_eq!(queue.put(&mut late), 2);
        assert_eq!(late.len(), 0);
        let mut taken = Vec::new();
        queue.take(&mut taken, Instant::now());
        assert_eq!(queue.put(&mut batch(&[5, 6, 7])), 0, "taking makes room");
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_then_says_so() {
        let queue = queue(3);
        queue.put(&mut batch(&[1]));
        queue.close();
        assert_eq!(queue.put(&mut batch(&[2])), 1);
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, Instant::now()), Taken::Packets);
        assert_eq!(queue.take(&mut taken, Instant::now()), Taken::Closed);
    }

    #[test]
    fn waiting_ends_when_packets_come() {
        let queue = queue(3);
        std::thread::scope(|scope| {
            scope.spawn(|| queue.put(&mut batch(&[1])));
            let far = Instant::now() + std::time::Duration::from_secs(60);
            assert_eq!(queue.take(&mut Vec::new(), far), Taken::Packets);
        });
        assert_eq!(queue.take(&mut Vec::new(), Instant::now()), Taken::Nothing);
    }
}
