//! A sender of which nothing is wanted: what its peer's sender needs of it.
//!
//! A host outside is one: what it announces, how far it came and whether it has closed. Next to a rebuilt sender this is
//! an eighth of the memory, and most packets of a mirror port have one at their other end.

use spand_proto::units::{Micros, Timestamp};

use crate::counters::Ignored;
use crate::flow::acceptance::{Announced, Space, believable_reach};
use crate::flow::copies::LastPacket;
use crate::flow::handshake::Syn;
use crate::flow::maybe::{MaybeCount, MaybeMicros};
use crate::flow::passed::{AT_ONCE, Passed};
use crate::flow::rtt::round_trip;
use crate::flow::scoreboard::Stamp;
use crate::flow::sequence::{first_position, position_near};
use crate::flow::sink::FlowContext;
use crate::wire::segment::{Flags, Segment};

/// A sender that is only kept up with.
#[derive(Clone, Debug)]
pub(crate) struct SeqState {
    /// Highest position sent, exclusive.
    nxt: u64,
    /// Highest position acknowledged.
    una: u64,
    /// Where it starts.
    start: u64,
    last_packet: Option<LastPacket>,
    /// Its own SYN.
    pub(crate) syn: Option<Syn>,
    /// That was sent more than once: no acknowledgement of it is timed.
    syn_again: bool,
    /// How long the peer took to acknowledge it: how soon it reacts.
    handshake_rtt: MaybeMicros,
    /// Position after its FIN.
    fin_end: MaybeCount,
    /// The window its peer announced last.
    peer_window: Option<Announced>,
    /// The peer acknowledged something.
    acknowledged: bool,
    /// The newest of it was acknowledged before it was seen, if ever.
    missed: bool,
    /// Not handed over to its network yet.
    pub(crate) passed: Passed,
}

impl SeqState {
    /// A sender of which `number` is the first sequence number known.
    pub(crate) fn new(number: u32) -> Self {
        let position = first_position(number);
        Self {
            nxt: position,
            una: position,
            start: position,
            last_packet: None,
            syn: None,
            syn_again: false,
            handshake_rtt: MaybeMicros::NONE,
            fin_end: MaybeCount::NONE,
            peer_window: None,
            acknowledged: false,
            missed: false,
            passed: Passed::default(),
        }
    }

    /// When its last packet was captured.
    pub(crate) fn last_at(&self) -> Option<Timestamp> {
        self.last_packet.as_ref().map(LastPacket::at)
    }

    /// Whether it sent anything: a sender can be known by acknowledgements alone.
    pub(crate) fn has_sent(&self) -> bool {
        self.last_packet.is_some()
    }

    /// Whether some of its data was acknowledged: a byte may be the SYN's.
    pub(crate) fn has_delivered(&self) -> bool {
        self.una > self.start + 1
    }

    /// Whether it sent a FIN.
    pub(crate) fn has_finished(&self) -> bool {
        self.fin_end.is_some()
    }

    /// What is known of its sequence space.
    pub(crate) fn space(&self) -> Space {
        let Self { una, nxt, acknowledged, peer_window, .. } = *self;
        Space { una, nxt, acknowledged, peer_window }
    }

    /// The lowest position not acknowledged.
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// The highest position sent, exclusive.
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// The handshake's round trip, as far as it is the tap's from here.
    pub(crate) fn handshake_rtt(&self) -> Option<Micros> {
        self.handshake_rtt.get()
    }

    /// Whether its FIN was acknowledged.
    pub(crate) fn is_closed(&self) -> bool {
        self.fin_end.get().is_some_and(|end| self.una >= end)
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
        let (own, end) = (segment.seq_len(), position_near(self.nxt, segment.seq) + u64::from(segment.seq_len()));
        last.is_copied_by(segment) || (own == 0 || end <= self.una) && last.follows_copy_in(segment)
    }

    /// Takes a segment of this sender, which is no copy: how far it came, and its SYN and FIN. Returns how much of it was sent before.
    pub(crate) fn send(&mut self, segment: &Segment, context: &mut FlowContext<'_>) -> u32 {
        let start = position_near(self.nxt, segment.seq);
        let end = start + u64::from(segment.seq_len());
        if self.passed.count(segment.payload_len) {
            context.patience = AT_ONCE;
        }
        let repeated = if start < self.nxt { self.repeated(segment, start, end) } else { 0 };
        self.last_packet = Some(LastPacket::of(segment));
        if segment.flags.has(Flags::SYN | Flags::FIN | Flags::RST) {
            self.syn_again |= segment.flags.has(Flags::SYN) && self.syn.is_some();
            if segment.flags.has(Flags::SYN) && self.syn.is_none() {
                // What came before it, a reset of an old connection perhaps, had other numbers.
                self.start_at(segment.seq);
                self.acknowledged = false;
                self.syn = Some(Syn::of(segment));
            }
            if segment.flags.has(Flags::FIN) {
                self.fin_end = MaybeCount::some(end);
            }
            if segment.flags.has(Flags::RST) {
                return 0;
            }
        }
        if self.acknowledged && end > self.una + believable_reach(self.peer_window) {
            context.counters.ignore(Ignored::BeyondWindow);
            return 0;
        }
        if end > start {
            self.missed &= end <= self.nxt;
            self.nxt = self.nxt.max(end);
        }
        repeated
    }

    /// How many bytes of a segment from `start` to `end`, which begins below the highest one sent, were sent before it: none of one that was
    /// only overtaken, also by its acknowledgement, or that keeps the connection alive.
    #[cold]
    fn repeated(&self, segment: &Segment, start: u64, end: u64) -> u32 {
        let overtaken =
            || self.last_packet.is_some_and(|last| Stamp::of(segment).was_sent_before(&last.stamp()) == Some(true));
        if (end <= self.una && (segment.payload_len <= 1 || self.missed)) || overtaken() {
            return 0;
        }
        u32::try_from(self.nxt - start).unwrap_or(u32::MAX).min(segment.payload_len)
    }

    /// Takes an acknowledgement that the peer sent; `scale` is the shift of its window, where known.
    pub(crate) fn acknowledge(&mut self, segment: &Segment, scale: Option<u8>, context: &mut FlowContext<'_>) {
        let Some(number) = segment.ack else { return };
        if !self.has_sent() && !self.acknowledged {
            // Known by this acknowledgement alone: the space starts here.
            self.start_at(number);
        }
        let ack = position_near(self.nxt, number);
        let ahead = ack.saturating_sub(self.nxt);
        let reset = segment.flags.has(Flags::RST);
        if ahead > 0 && (ahead > believable_reach(self.peer_window) || (reset && self.has_sent())) {
            context.counters.ignore(Ignored::BeyondWindow);
            return;
        }
        let overtaken = self.acknowledged && ack < self.una;
        if !reset && !overtaken {
            self.peer_window = Some(Announced { field: segment.window, shift: scale });
        }
        if self.una == self.start
            && ack > self.una
            && !self.syn_again
            && let Some(sent_at) = self.last_packet.as_ref().and_then(LastPacket::syn_at)
        {
            self.handshake_rtt = round_trip(sent_at, segment.at).into();
        }
        self.missed |= ahead > 0;
        self.una = self.una.max(ack);
        self.nxt = self.nxt.max(ack);
        self.acknowledged = true;
    }

    /// Its sequence space starts at `number` after all.
    fn start_at(&mut self, number: u32) {
        self.una = first_position(number);
        self.nxt = self.una;
        self.start = self.una;
    }
}
