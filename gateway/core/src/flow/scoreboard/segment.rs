//! One outstanding segment.

use spand_proto::units::Timestamp;

use crate::flow::sequence::is_after;
use crate::wire::segment::Segment;

/// One transmission of a segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Stamp {
    /// When the tap saw it.
    pub(crate) at: Timestamp,
    /// Its timestamp value, 0 without the option.
    pub(crate) ts_value: u32,
    /// Its IPv4 identification, 0 where there is none.
    pub(crate) ip_id: u16,
}

/// Packets of one sender beyond which their IPv4 identifications do not show their order.
const IP_ID_REACH: u16 = 256;

impl Stamp {
    /// Of `segment`.
    pub(crate) fn of(segment: &Segment) -> Self {
        let timestamps = segment.options.timestamps;
        Self {
            at: segment.at,
            ts_value: timestamps.map_or(0, |timestamps| timestamps.value),
            ip_id: segment.ip_id.unwrap_or(0),
        }
    }

    /// Whether the sender sent this before `other`, in whatever order the tap saw them: by timestamp, else by IPv4
    /// identification if both count up (RFC 6864 allows any values). `None` if neither shows it.
    pub(crate) fn was_sent_before(&self, other: &Self) -> Option<bool> {
        if self.ts_value != other.ts_value {
            return Some(is_after(other.ts_value, self.ts_value));
        }
        let ahead = other.ip_id.wrapping_sub(self.ip_id).cast_signed();
        let countable = self.ip_id != 0 && other.ip_id != 0 && ahead != 0 && ahead.unsigned_abs() <= IP_ID_REACH;
        countable.then_some(ahead > 0)
    }
}

/// A segment not yet cumulatively acknowledged; SYN and FIN count one byte each.
///
/// Flat: a field of type [`Stamp`] would add its padding, and there are many of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding {
    /// Position of its first byte.
    pub(crate) start: u64,
    /// Position after its last.
    pub(crate) end: u64,
    /// When it was sent last.
    pub(crate) sent_at: Timestamp,
    ts_value: u32,
    ip_id: u16,
    /// Transmissions seen at the tap.
    pub(crate) transmissions: u8,
    pub(crate) marks: Marks,
}

/// A state of a segment.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Mark {
    /// SACKed.
    Sacked = 1,
    /// Marked lost (RFC 6675).
    Lost = 2,
    /// Retransmitted and not acknowledged since.
    Retransmitted = 4,
    /// Its acknowledgement measures no round trip: it was cut, merged or acknowledged in part.
    Untimed = 8,
    /// Bytes that the tap never saw.
    Unseen = 16,
    /// Its sender takes no round trip from it either: it is a window probe, whose answer waits for the receiver's application, or
    /// several segments merged on the scoreboard.
    Timeless = 32,
}

/// A set of [`Mark`]s.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks(u8);

impl Marks {
    /// Whether `mark` is set.
    pub(crate) fn has(self, mark: Mark) -> bool {
        self.0 & mark as u8 != 0
    }

    /// Sets `mark`.
    pub(crate) fn set(&mut self, mark: Mark) {
        self.0 |= mark as u8;
    }

    /// Clears `mark`.
    pub(crate) fn clear(&mut self, mark: Mark) {
        self.0 &= !(mark as u8);
    }
}

impl Outstanding {
    /// A segment sent for the first time.
    pub(crate) fn new(start: u64, end: u64, stamp: Stamp) -> Self {
        let Stamp { at: sent_at, ts_value, ip_id } = stamp;
        Self { start, end, sent_at, ts_value, ip_id, transmissions: 1, marks: Marks::default() }
    }

    /// A placeholder for bytes that must have been sent before `at` but were not seen.
    pub(crate) fn unseen(start: u64, end: u64, at: Timestamp) -> Self {
        let mut marks = Marks::default();
        marks.set(Mark::Unseen);
        marks.set(Mark::Untimed);
        Self { transmissions: 0, marks, ..Self::new(start, end, Stamp { at, ..Stamp::default() }) }
    }

    /// Its last transmission.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { at: self.sent_at, ts_value: self.ts_value, ip_id: self.ip_id }
    }

    /// It was retransmitted.
    pub(crate) fn set_stamp(&mut self, stamp: Stamp) {
        (self.sent_at, self.ts_value, self.ip_id) = (stamp.at, stamp.ts_value, stamp.ip_id);
    }

    /// Whether it was sent once and has no mark.
    pub(crate) fn is_plain(&self) -> bool {
        self.marks.0 == 0 && self.transmissions == 1
    }

    /// Whether its sender takes a round trip from it (`tcp_clean_rtx_queue`, `tcp_sacktag_one`): it was sent once. Unlike with
    /// [`Mark::Untimed`], parts of a segment count, too.
    pub(crate) fn is_timed_by_sender(&self) -> bool {
        self.transmissions == 1 && !self.marks.has(Mark::Unseen) && !self.marks.has(Mark::Timeless)
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}
