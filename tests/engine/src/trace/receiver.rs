//! The receiver of a generated connection: what it acknowledges, in bytes from the first.

use arrayvec::ArrayVec;

/// What has arrived, and what of it was acknowledged.
#[derive(Debug, Default)]
pub struct Receiver {
    received: u32,
    beyond: Vec<(u32, u32)>,
    unacked_segments: u32,
    acknowledged: u32,
    recent_ns: u64,
}

/// An acknowledgement.
#[derive(Clone, Debug)]
pub struct Acknowledgement {
    /// All before this has arrived.
    pub ack: u32,
    /// What has arrived beyond it, the newest first.
    pub sack: ArrayVec<(u32, u32), 3>,
    /// The timestamp that it echoes (RFC 7323 section 4.3).
    pub echo_ns: u64,
}

impl Receiver {
    /// One that echoes a time until data arrives: that of the handshake.
    pub fn new(recent_ns: u64) -> Self {
        Self { recent_ns, ..Self::default() }
    }

    /// Takes a segment of a first byte and a length that was sent at `sent_ns`. Every second one is acknowledged; at once where something is
    /// missing (RFC 5681 section 4.2), or where the caller knows that nothing follows.
    pub fn take(&mut self, (offset, len): (u32, u32), sent_ns: u64, at_once: bool) -> Option<Acknowledgement> {
        let in_order = offset <= self.received;
        if offset <= self.acknowledged {
            self.recent_ns = sent_ns;
        }
        if in_order {
            self.received = self.received.max(offset + len);
            while let Some(at) = self.beyond.iter().position(|(from, _)| *from <= self.received) {
                let (_, to) = self.beyond.swap_remove(at);
                self.received = self.received.max(to);
            }
            self.unacked_segments += 1;
        } else {
            self.hold(offset, offset + len);
        }
        if in_order && self.beyond.is_empty() && self.unacked_segments < 2 && !at_once {
            return None;
        }
        self.unacked_segments = 0;
        self.acknowledged = self.received;
        let sack = self.beyond.iter().rev().take(3).copied().collect();
        Some(Acknowledgement { ack: self.received, sack, echo_ns: self.recent_ns })
    }

    /// Bytes that have arrived behind a gap.
    pub fn beyond(&self) -> u32 {
        self.beyond.iter().map(|(from, to)| to - from).sum()
    }

    fn hold(&mut self, mut from: u32, mut to: u32) {
        self.beyond.retain(|(f, t)| {
            let apart = *t < from || *f > to;
            if !apart {
                from = from.min(*f);
                to = to.max(*t);
            }
            apart
        });
        self.beyond.push((from, to));
    }
}
