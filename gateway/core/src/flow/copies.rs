//! Second copies of one packet, as a mirror port makes them when it sees a packet enter and leave.
//!
//! A copy is the same packet: same identification, sequence, acknowledgement, window and timestamp. A retransmission is a
//! new one: IPv4 gives it a new identification, and a later timestamp where there are timestamps. Where neither distinguishes
//! them, only a copy comes before anything could be missed: at once, and of data within a round trip. Copies come in the order of
//! their packets, so one may follow packets that were sent after it.

use spand_proto::units::{Micros, Timestamp};

use crate::flow::scoreboard::Stamp;
use crate::flow::sequence::is_after;
use crate::wire::segment::{Flags, Segment};

/// A copy follows within this time: no queue of a mirrored switch is longer.
const COPY_WITHIN: Micros = Micros(20_000);
/// Without a distinguishing identification, it follows within this time, which no retransmission does.
const COPY_AT_ONCE: Micros = Micros(500);
/// Nor does one of data follow within a round trip; but beyond this time a copy is not believed without an identification.
const COPY_IN_ROUND_TRIP: Micros = Micros(5_000);

/// A packet before the last one is at most this many identifications behind.
const IP_ID_REACH: u16 = 256;

/// The packet seen last in one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastPacket {
    at: Timestamp,
    seq: u32,
    /// 0 where there is none, as of the next ones.
    ack: u32,
    payload_len: u32,
    ts_value: u32,
    window: u16,
    ip_id: u16,
    flags: Flags,
    has_ack: bool,
    has_timestamps: bool,
    has_ip_id: bool,
}

impl LastPacket {
    /// What is kept of `segment`.
    pub(crate) fn of(segment: &Segment) -> Self {
        let timestamps = segment.options.timestamps;
        Self {
            at: segment.at,
            seq: segment.seq,
            ack: segment.ack.unwrap_or(0),
            payload_len: segment.payload_len,
            ts_value: timestamps.map_or(0, |timestamps| timestamps.value),
            window: segment.window,
            ip_id: segment.ip_id.unwrap_or(0),
            flags: segment.flags,
            has_ack: segment.ack.is_some(),
            has_timestamps: timestamps.is_some(),
            has_ip_id: segment.ip_id.is_some(),
        }
    }

    /// When it came.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// When and as what it was sent.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { at: self.at, ts_value: self.ts_value, ip_id: self.ip_id }
    }

    /// When it came, where it is a SYN.
    pub(crate) fn syn_at(&self) -> Option<Timestamp> {
        self.flags.has(Flags::SYN).then_some(self.at)
    }

    /// Whether `segment` is a second copy of this packet.
    pub(crate) fn is_copied_by(&self, segment: &Segment) -> bool {
        // Most packets differ from the one before in one of these.
        if self.seq != segment.seq || self.ack != segment.ack.unwrap_or(0) || self.payload_len != segment.payload_len {
            return false;
        }
        let later = Self::of(segment);
        let same = self.ts_value == later.ts_value
            && self.window == later.window
            && self.flags == later.flags
            && self.ip_id == later.ip_id
            && self.has_ack == later.has_ack
            && self.has_timestamps == later.has_timestamps
            && self.has_ip_id == later.has_ip_id;
        // No SYN is sent again before a timeout of its own (RFC 6298 section 2, rule 2.1).
        let identified = self.ip_id != 0 || self.flags.has(Flags::SYN);
        // Without an identification a duplicate acknowledgement looks like a copy of the first one.
        let tellable = identified || self.payload_len > 0;
        let within = if identified { COPY_WITHIN } else { COPY_AT_ONCE };
        same && tellable && later.at.since(self.at) <= within
    }

    /// Returns whether `segment` has a later timestamp than this packet, or one of them has none.
    fn is_stamped_before(&self, segment: &Segment) -> bool {
        let timestamps = segment.options.timestamps.filter(|_| self.has_timestamps);
        timestamps.is_none_or(|timestamps| is_after(timestamps.value, self.ts_value))
    }

    /// Whether `segment`, of which everything was acknowledged before, is a second copy of a packet before this one: it has an
    /// earlier identification, and a retransmission would have a later one. One that was overtaken counts as a copy, too.
    pub(crate) fn follows_copy_in(&self, segment: &Segment) -> bool {
        let behind = self.ip_id.wrapping_sub(segment.ip_id.unwrap_or(0));
        self.ip_id != 0
            && distinguishing(segment.ip_id)
            && (1..=IP_ID_REACH).contains(&behind)
            && (!self.is_stamped_before(segment)
                || (segment.at.since(self.at) <= COPY_WITHIN && segment.options.sack.is_empty()))
            && !segment.flags.has(Flags::SYN | Flags::RST)
            && segment.ack.is_none_or(|ack| !is_after(ack, self.ack))
    }
}

/// Whether `segment` is a second copy of the outstanding segment last sent as `stamp`, where no round trip is shorter than `rtt_min`.
pub(crate) fn is_copy_of(stamp: &Stamp, segment: &Segment, rtt_min: Option<Micros>) -> bool {
    let same = stamp.ip_id == segment.ip_id.unwrap_or(0)
        && stamp.ts_value == segment.options.timestamps.map_or(0, |timestamps| timestamps.value)
        && !segment.flags.has(Flags::SYN);
    let within = match rtt_min {
        // Only a copy has the same timestamp and the same identification, at any age.
        _ if distinguishing(segment.ip_id) && stamp.ts_value != 0 => Micros(u64::MAX),
        _ if distinguishing(segment.ip_id) => COPY_WITHIN,
        Some(rtt_min) => rtt_min.clamp(COPY_AT_ONCE, COPY_IN_ROUND_TRIP),
        None => COPY_AT_ONCE,
    };
    same && segment.at.since(stamp.at) <= within
}

/// An identification of 0 is what a sender gives all packets that may not be fragmented.
fn distinguishing(ip_id: Option<u16>) -> bool {
    ip_id.is_some_and(|ip_id| ip_id != 0)
}

/// How many SYNs [`LastSyns`] keeps: more than come within [`COPY_WITHIN`] at 50,000 a second.
const SYNS: usize = 1 << 10;

/// The last SYNs of connections of which nothing else is kept, each in a place by the hash of its connection. One that has lost its place
/// to another is not recognised in its copy, which then counts as a SYN sent again.
#[derive(Debug, Default)]
pub(crate) struct LastSyns(Vec<Option<(u64, LastPacket)>>);

impl LastSyns {
    /// Takes a SYN of the connection with this hash; whether it is a second copy of the one before.
    pub(crate) fn is_copy(&mut self, hash: u64, syn: &Segment) -> bool {
        if self.0.is_empty() {
            self.0.resize(SYNS, None);
        }
        let Some(place) = usize::try_from(hash).ok().and_then(|hash| self.0.get_mut(hash % SYNS)) else { return false };
        let is_copy = place.is_some_and(|(of, last)| of == hash && last.is_copied_by(syn));
        if !is_copy {
            *place = Some((hash, LastPacket::of(syn)));
        }
        is_copy
    }
}
