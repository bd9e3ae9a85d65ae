//! The sequence space of one side of a connection: `SND.UNA` and `SND.NXT`, its SYN and FIN, and the window that its peer announces. It keeps
//! no segments; those are the scoreboard's.
//!
//! Nothing else is kept of most hosts outside. That takes a fraction of the memory of a rebuilt sender, and most packets of a mirror port
//! have such a host at one end.

use spand_proto::units::Timestamp;

use crate::counters::Ignored;
use crate::flow::acceptance::{Announced, Space, believable_reach, is_close};
use crate::flow::copies::LastPacket;
use crate::flow::handshake::Syn;
use crate::flow::maybe::{MaybeCount, MaybeMicros};
use crate::flow::passed::{AT_ONCE, Passed};
use crate::flow::rtt::round_trip;
use crate::flow::scoreboard::Stamp;
use crate::flow::sequence::{first_position, position_near};
use crate::flow::sink::FlowContext;
use crate::wire::segment::{Flags, Segment};

/// How far beyond its SYN the first acknowledgement that is heard of a sender may lie, in bytes: a capture may have missed some.
const NEAR: u64 = 1 << 20;

/// A segment's place in the sequence space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// First position, of the SYN if there is one.
    pub(crate) start: u64,
    /// First payload byte.
    pub(crate) data: u64,
    /// After the last payload byte.
    pub(crate) data_end: u64,
    /// After everything, including the FIN.
    pub(crate) end: u64,
}

/// What an accepted acknowledgement showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    /// Its position.
    pub(crate) ack: u64,
    /// Bytes up to it that were not seen: the capture missed them.
    pub(crate) missed: u64,
    /// Nothing was acknowledged before.
    pub(crate) first: bool,
    /// The announced window changed.
    pub(crate) window_moved: bool,
}

/// One side of a connection.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not hang together")]
pub(crate) struct SeqState {
    /// Highest position sent, exclusive (`SND.NXT`).
    nxt: u64,
    /// Highest position acknowledged (`SND.UNA`).
    una: u64,
    /// The sequence number with which it starts.
    first: u32,
    /// Its last packet.
    pub(crate) last_packet: Option<LastPacket>,
    /// Its own SYN.
    pub(crate) syn: Option<Syn>,
    /// That was sent more than once: no acknowledgement of it is timed.
    syn_again: bool,
    /// How long the peer took to acknowledge it: the part of the handshake's round trip on this side of the tap.
    pub(crate) handshake_rtt: MaybeMicros,
    /// Position after its FIN.
    fin_end: MaybeCount,
    /// The window that its peer announced last.
    pub(crate) peer_window: Option<Announced>,
    /// The peer acknowledged something.
    acknowledged: bool,
    /// It sent data.
    has_data: bool,
    /// The newest of it was acknowledged before it was seen, if ever.
    missed: bool,
    /// Not handed over to its network yet.
    pub(crate) passed: Passed,
}

impl SeqState {
    /// A side of which `number` is the first sequence number known.
    pub(crate) fn new(number: u32) -> Self {
        let position = first_position(number);
        Self {
            nxt: position,
            una: position,
            first: number,
            last_packet: None,
            syn: None,
            syn_again: false,
            handshake_rtt: MaybeMicros::NONE,
            fin_end: MaybeCount::NONE,
            peer_window: None,
            acknowledged: false,
            has_data: false,
            missed: false,
            passed: Passed::default(),
        }
    }

    /// When its last packet was captured.
    pub(crate) fn last_at(&self) -> Option<Timestamp> {
        self.last_packet.as_ref().map(LastPacket::at)
    }

    /// Whether it sent anything: a side can be known by acknowledgements alone.
    pub(crate) fn has_sent(&self) -> bool {
        self.last_packet.is_some()
    }

    /// Whether the peer acknowledged something.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// Whether some of its data was acknowledged, seen or not: a byte may be the SYN's.
    pub(crate) fn has_delivered(&self) -> bool {
        self.una > first_position(self.first) + 1
    }

    /// Whether it sent a FIN.
    pub(crate) fn has_finished(&self) -> bool {
        self.fin_end.is_some()
    }

    /// Whether its FIN was acknowledged.
    pub(crate) fn is_closed(&self) -> bool {
        self.fin_end.get().is_some_and(|end| self.una >= end)
    }

    /// Whether a FIN that ends at this position was seen.
    pub(crate) fn finishes_at(&self, end: u64) -> bool {
        self.fin_end == MaybeCount::some(end)
    }

    /// What is known of its sequence space.
    pub(crate) fn space(&self) -> Space {
        let Self { una, nxt, peer_window, .. } = *self;
        Space { una, nxt, peer_window }
    }

    /// The lowest position not acknowledged.
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// The highest position sent, exclusive.
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Whether `number` lies near what it sent and had acknowledged.
    #[inline]
    pub(crate) fn is_near(&self, number: u32) -> bool {
        is_close([self.una, self.nxt], number) || self.space().is_near(number)
    }

    /// Whether it sent something, and its SYN, where it was seen, was acknowledged: by a number near it, since of numbers
    /// made up a quarter lies within the largest window there is.
    pub(crate) fn is_agreed(&self) -> bool {
        let beyond = |syn: Syn| self.una.saturating_sub(first_position(syn.isn));
        self.has_sent() && self.syn.is_none_or(|syn| (1..=NEAR).contains(&beyond(syn)))
    }

    /// Whether the peer announces a zero window.
    pub(crate) fn peer_is_full(&self) -> bool {
        self.peer_window.is_some_and(|window| window.field == 0)
    }

    /// The position of a sequence number on the wire.
    pub(crate) fn position(&self, number: u32) -> u64 {
        position_near(self.nxt, number)
    }

    /// The place of a segment that it sends.
    pub(crate) fn extent(&self, segment: &Segment) -> Extent {
        let start = self.position(segment.seq);
        let data = start + u64::from(segment.flags.has(Flags::SYN));
        let data_end = data + u64::from(segment.payload_len);
        Extent { start, data, data_end, end: data_end + u64::from(segment.flags.has(Flags::FIN)) }
    }

    /// Notes the number of its first packet: until now it was known at most from the other side's acknowledgement.
    pub(crate) fn place_first(&mut self, segment: &Segment) {
        if !self.acknowledged {
            self.start_at(segment.seq);
        }
    }

    /// Whether `segment` is a second copy of its last packet, or of one before of which everything was acknowledged.
    pub(crate) fn is_copy(&self, segment: &Segment) -> bool {
        let Some(last) = &self.last_packet else { return false };
        last.is_copied_by(segment)
            || (segment.seq_len() == 0 || self.extent(segment).end <= self.una) && last.follows_copy_in(segment)
    }

    /// Whether `segment`, which it sends now, was sent before its last packet.
    pub(crate) fn is_overtaken(&self, segment: &Segment) -> bool {
        self.last_packet.is_some_and(|last| Stamp::of(segment).was_sent_before(&last.stamp()) == Some(true))
    }

    /// Takes a segment of this side that is no copy. Returns how many of its bytes were sent before.
    pub(crate) fn send(&mut self, segment: &Segment, context: &mut FlowContext<'_>) -> u32 {
        let extent = self.extent(segment);
        let repeated = if extent.start < self.nxt { self.repeated(segment, &extent) } else { 0 };
        if self.accepts(segment, &extent, context) {
            self.advance(&extent);
        }
        repeated
    }

    /// Takes everything of a segment but its data. Returns whether the data lies within reach of the window that the peer announced.
    #[inline]
    pub(crate) fn accepts(&mut self, segment: &Segment, extent: &Extent, context: &mut FlowContext<'_>) -> bool {
        if self.passed.count(segment.payload_len) {
            context.patience = AT_ONCE;
        }
        self.last_packet = Some(LastPacket::of(segment));
        self.has_data |= segment.payload_len > 0;
        if segment.flags.has(Flags::SYN | Flags::FIN | Flags::RST) && !self.take_flags(segment, extent) {
            return false;
        }
        let beyond = self.acknowledged && extent.end > self.una + believable_reach(self.peer_window);
        if beyond {
            context.counters.ignore(Ignored::BeyondWindow);
        }
        !beyond
    }

    /// Takes the flags SYN, FIN and RST of a segment. Returns whether RST is not set.
    fn take_flags(&mut self, segment: &Segment, extent: &Extent) -> bool {
        if segment.flags.has(Flags::SYN) {
            self.syn_again |= self.syn.is_some();
            if self.syn.is_none() && !self.has_data {
                // What came before it, a reset of an old connection perhaps, had other numbers.
                self.start_at(segment.seq);
                self.acknowledged = false;
            }
            self.syn.get_or_insert_with(|| Syn::of(segment));
        }
        if segment.flags.has(Flags::FIN) {
            self.fin_end = MaybeCount::some(extent.end);
        }
        !segment.flags.has(Flags::RST)
    }

    /// Takes the data of a segment.
    pub(crate) fn advance(&mut self, extent: &Extent) {
        if extent.end > extent.start {
            self.missed &= extent.end <= self.nxt;
            self.nxt = self.nxt.max(extent.end);
        }
    }

    /// How many bytes of a segment that begins below the highest one sent were sent before it: none of one that was only overtaken, also by
    /// its acknowledgement, or that keeps the connection alive.
    #[cold]
    fn repeated(&self, segment: &Segment, extent: &Extent) -> u32 {
        if (extent.end <= self.una && (segment.payload_len <= 1 || self.missed)) || self.is_overtaken(segment) {
            return 0;
        }
        u32::try_from(self.nxt - extent.start).unwrap_or(u32::MAX).min(segment.payload_len)
    }

    /// Takes an acknowledgement of the peer. `scale`: shift of its window, if known. Returns `None` for one further ahead than a capture
    /// loses packets, and for one of data never sent in a reset.
    pub(crate) fn acknowledge(
        &mut self,
        segment: &Segment,
        scale: Option<u8>,
        context: &mut FlowContext<'_>,
    ) -> Option<Acknowledged> {
        let number = segment.ack?;
        if !self.has_sent() && !self.acknowledged {
            // Known by this acknowledgement alone: the space starts here.
            self.start_at(number);
        }
        let ack = self.position(number);
        let missed = ack.saturating_sub(self.nxt);
        let reset = segment.flags.has(Flags::RST);
        if missed > 0 && (missed > believable_reach(self.peer_window) || (reset && self.has_sent())) {
            context.counters.ignore(Ignored::BeyondWindow);
            return None;
        }
        // The window of an overtaken acknowledgement is out of date (RFC 9293 section 3.10.7.4, SND.WL2).
        let overtaken = self.acknowledged && ack < self.una;
        let mut window_moved = false;
        if !reset && !overtaken {
            let before = self.peer_window.replace(Announced { field: segment.window, shift: scale });
            window_moved = before.is_none_or(|before| before.field != segment.window);
        }
        self.missed |= missed > 0;
        self.una = self.una.max(ack);
        self.nxt = self.nxt.max(ack);
        let first = !std::mem::replace(&mut self.acknowledged, true);
        Some(Acknowledged { ack, missed, first, window_moved })
    }

    /// Takes an acknowledgement of a side without a scoreboard. It times the SYN if nothing was sent after it.
    pub(crate) fn acknowledge_alone(&mut self, segment: &Segment, scale: Option<u8>, context: &mut FlowContext<'_>) {
        let before = self.una;
        let taken = self.acknowledge(segment, scale, context);
        let opens = before == first_position(self.first) && self.una > before && !self.syn_again;
        if taken.is_some()
            && opens
            && let Some(sent_at) = self.last_packet.as_ref().and_then(LastPacket::syn_at)
        {
            self.handshake_rtt = round_trip(sent_at, segment.at).into();
        }
    }

    /// Its sequence space starts at `number` after all.
    fn start_at(&mut self, number: u32) {
        self.first = number;
        self.una = first_position(number);
        self.nxt = self.una;
    }
}
