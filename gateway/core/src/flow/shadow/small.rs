//! Segments below the full size that are outstanding: senders count packets, the scoreboard counts bytes.

use smallvec::SmallVec;

use crate::flow::sequence::low_half;
use crate::mem::allocated_for;

/// Entries at a time; at the limit the newest two are taken together, and acknowledged together.
const ENTRIES: usize = 6;

/// A small segment: where it ends, and what it lacks to the full size.
#[derive(Clone, Copy, Debug)]
struct Small {
    /// Low half of its end's position in the stream.
    end: u32,
    lacks_bytes: u32,
}

/// Small segments in order of sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct SmallSegments {
    /// Most transfers have one, their last.
    entries: SmallVec<[Small; 2]>,
    lacks_bytes: u32,
}

impl SmallSegments {
    /// A segment up to `end` was sent, `lacks_bytes` short of a whole number of full ones.
    pub(super) fn sent(&mut self, end: u64, lacks_bytes: u32) {
        let end = low_half(end);
        self.lacks_bytes = self.lacks_bytes.saturating_add(lacks_bytes);
        if self.entries.len() < ENTRIES {
            if self.entries.len() == self.entries.inline_size() {
                self.entries.reserve_exact(ENTRIES - self.entries.len());
            }
            self.entries.push(Small { end, lacks_bytes });
        } else if let Some(last) = self.entries.last_mut() {
            last.end = end;
            last.lacks_bytes = last.lacks_bytes.saturating_add(lacks_bytes);
        }
    }

    /// Everything up to `una` is acknowledged; returns what the small segments among it lacked, in bytes.
    pub(super) fn acked(&mut self, una: u64) -> u32 {
        let una = low_half(una);
        let done = self.entries.iter().take_while(|small| una.wrapping_sub(small.end) < 1 << 31).count();
        let lacked = self.entries.drain(..done).map(|small| small.lacks_bytes).fold(0, u32::saturating_add);
        self.lacks_bytes = self.lacks_bytes.saturating_sub(lacked);
        lacked
    }

    /// Memory beside its own.
    pub(super) fn held_bytes(&self) -> usize {
        if self.entries.spilled() { allocated_for::<Small>(self.entries.capacity()) } else { 0 }
    }

    /// What those outstanding lack, in bytes.
    pub(super) fn lacks_bytes(&self) -> u64 {
        u64::from(self.lacks_bytes)
    }
}
