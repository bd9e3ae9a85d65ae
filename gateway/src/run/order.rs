//! Packets of several readers in order of time.
//!
//! Both directions of a link often come in on two interfaces, each read by its own thread. What waits is put in order
//! before the engine sees it, and nothing waits for a later packet: a reader that falls behind the others hands over what is late. One
//! reader alone keeps its order, whatever its times say. Connections with too much of either give no sample
//! (`spand_core::counters::Ignored::Unordered`).

use spand_core::wire::Frame;
use spand_proto::units::Timestamp;

use super::queue::FrameBatch;

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
