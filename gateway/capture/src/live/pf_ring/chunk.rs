//! Packets in a chunk: records as in a pcap file, one behind the other, in the machine's byte order.

use std::ffi::c_uint;
use std::ops::Range;

/// Kinds of chunks (`pfring_chunk_type`) that are read, and how many nanoseconds the second number of a time counts.
pub(super) fn nanos_per_tick(kind: c_uint) -> Option<u64> {
    match kind {
        0 => Some(1_000),
        1 => Some(1),
        _ => None,
    }
}

/// A packet in its chunk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Record {
    /// Its bytes.
    pub(super) data: Range<usize>,
    /// Nanoseconds since 1970.
    pub(super) time_ns: u64,
    /// Length on the wire.
    pub(super) wire_len: u32,
}

/// Bytes of a record before its data.
pub(super) const HEADER_BYTES: usize = 16;

/// The record whose first bytes, at `at` in a chunk of `chunk_len` bytes, are `header`; the next begins where its data ends.
/// `None` where it does not fit. `header` is a copy: in the chunk the numbers may change after they were checked.
pub(super) fn record(header: &[u8], at: usize, chunk_len: usize, nanos_per_tick: u64) -> Option<Record> {
    let start = at.checked_add(HEADER_BYTES)?;
    let (numbers, rest) = header.as_chunks::<4>();
    let ([seconds, ticks, captured, wire_len], []) = (numbers, rest) else { return None };
    let [seconds, ticks, captured, wire_len] =
        [seconds, ticks, captured, wire_len].map(|number| u32::from_ne_bytes(*number));
    let end = start.checked_add(usize::try_from(captured).ok()?)?;
    let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * nanos_per_tick;
    (end <= chunk_len).then_some(Record { data: start..end, time_ns, wire_len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_follow_each_other_and_end_with_the_chunk() {
        let mut chunk = Vec::new();
        for (seconds, data) in [(1_u32, b"abc".as_slice()), (2, b"")] {
            let length = u32::try_from(data.len()).unwrap();
            chunk.extend([seconds, 7, length, length + 60].iter().flat_map(|number| number.to_ne_bytes()));
            chunk.extend_from_slice(data);
        }
        let record_in = |chunk: &[u8], at: usize, nanos| {
            let header = chunk.get(at..)?.get(..HEADER_BYTES)?;
            record(header, at, chunk.len(), nanos)
        };
        let first = record_in(&chunk, 0, 1_000).unwrap();
        assert_eq!((&chunk[first.data.clone()], first.time_ns, first.wire_len), (b"abc".as_slice(), 1_000_007_000, 63));
        let second = record_in(&chunk, first.data.end, 1).unwrap();
        assert_eq!((second.data.len(), second.time_ns), (0, 2_000_000_007));
        assert_eq!(record_in(&chunk, second.data.end, 1), None);
        for cut in 0..first.data.end {
            assert_eq!(record_in(&chunk[..cut], 0, 1), None, "{cut}");
        }
        assert_eq!(record(&[0; HEADER_BYTES], usize::MAX, usize::MAX, 1), None);
        assert_eq!(record(&[0; 12], 0, 100, 1), None);
    }
}
