//! SYNs on connections that go on, until something shows what they are.
//!
//! A host that has the connection answers such a SYN with an acknowledgement of what it expects (RFC 5961 section 4), and the
//! connection goes on. Where the addresses and ports are used again, the SYN's own number is acknowledged instead: only then
//! is the old connection over, and the new one takes the SYN.

use std::collections::VecDeque;

use crate::flow::connection::Place;
use crate::flow::tuple::{Side, Tuple};
use crate::wire::segment::{Flags, Segment};

/// SYNs kept at a time; the oldest goes, and its answer alone opens the next connection then.
const WAITING: usize = 256;
/// How far beyond a SYN the first acknowledgement of it may lie that is no SYN itself, in bytes: a mirror port may have lost the answer.
const FIRST_DATA: u32 = 1 << 16;

/// A SYN that waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// The connection that it came on.
    pub(crate) tuple: Tuple,
    /// Who sent it.
    pub(crate) side: Side,
    /// The SYN.
    pub(crate) segment: Segment,
    /// Where it stood.
    pub(crate) place: Place,
}

impl Opening {
    /// Whether `segment`, sent by `side`, acknowledges the SYN. `stray`: it fits the connection that goes on no more.
    pub(crate) fn is_answered_by(&self, side: Side, segment: &Segment, stray: bool) -> bool {
        let Some(ack) = segment.ack.filter(|_| side != self.side && !segment.flags.has(Flags::RST)) else {
            return false;
        };
        let beyond = ack.wrapping_sub(self.segment.seq.wrapping_add(1));
        if segment.flags.has(Flags::SYN) { beyond <= self.segment.payload_len } else { stray && beyond <= FIRST_DATA }
    }
}

/// The SYNs that wait.
#[derive(Debug, Default)]
pub(crate) struct Openings(VecDeque<Opening>);

impl Openings {
    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The SYN on this connection.
    pub(crate) fn find(&self, tuple: &Tuple) -> Option<&Opening> {
        self.0.iter().find(|opening| opening.tuple == *tuple)
    }

    /// Takes out the SYN on this connection.
    pub(crate) fn take(&mut self, tuple: &Tuple) -> Option<Opening> {
        let place = self.0.iter().position(|opening| opening.tuple == *tuple)?;
        self.0.remove(place)
    }

    /// Lets a SYN wait: the first of those with its number, in place of one with another number on the same connection.
    pub(crate) fn put(&mut self, opening: Opening) {
        if self.find(&opening.tuple).is_some_and(|known| known.segment.seq == opening.segment.seq) {
            return;
        }
        self.take(&opening.tuple);
        if self.0.len() >= WAITING {
            self.0.pop_front();
        }
        if self.0.capacity() == 0 {
            self.0.reserve_exact(WAITING);
        }
        self.0.push_back(opening);
    }
}
