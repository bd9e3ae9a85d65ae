//! Decides which segments a connection accepts: blind ones change nothing in it (RFC 5961). It also checks the order of record times: a
//! connection whose times are out of order gives no findings. The senders handle what an accepted segment does.

use spand_proto::units::Micros;

use super::{Connection, ConnectionEnd, Stage};
use crate::counters::Ignored;
use crate::flow::acceptance::{Reset, STRAYS};
use crate::flow::maybe::MaybeTime;
use crate::flow::sink::FlowContext;
use crate::flow::tuple::Side;
use crate::wire::segment::{Flags, Segment};

/// What was sent to a connection and may not be of it.
#[derive(Clone, Debug)]
pub(super) struct Doubts {
    /// When a reset came that may have ended it, and of which side.
    pub(super) reset_at: MaybeTime,
    reset_by: Side,
    /// Segments in a row of each side that lay outside every window.
    strays: [u8; 2],
    /// Who sent the last ignored SYN, while nothing showed that the connection goes on.
    syn_by: Option<Side>,
    /// The number that acknowledges it.
    syn_end: u32,
}

impl Doubts {
    /// None yet.
    pub(super) const NONE: Self =
        Self { reset_at: MaybeTime::NONE, reset_by: Side::Low, strays: [0; 2], syn_by: None, syn_end: 0 };
}

/// How far beyond an ignored SYN the first acknowledgement of it may lie, in bytes: a mirror port may have lost the SYN-ACK.
const FIRST_DATA: u32 = 1 << 16;

impl Connection {
    /// Whether a SYN on it was ignored, and may yet be acknowledged.
    pub(crate) fn has_ignored_syn(&self) -> bool {
        self.doubts.syn_by.is_some()
    }

    /// Notes a SYN that `side` sent and that is ignored. A host that has the connection answers with an acknowledgement of what it expects
    /// (RFC 5961 section 4), and the connection goes on.
    pub(crate) fn ignore_syn(&mut self, side: Side, segment: &Segment) {
        (self.doubts.syn_by, self.doubts.syn_end) = (Some(side), segment.seq.wrapping_add(1));
    }

    /// Returns whether `segment` from `side` acknowledges the ignored SYN. If it does, another connection uses the addresses and ports, and
    /// this one is over. A segment that fits this connection clears the ignored SYN.
    pub(crate) fn is_replaced_by(&mut self, side: Side, segment: &Segment) -> bool {
        if !segment.flags.has(Flags::SYN | Flags::RST) && !self.is_stray(side, segment) {
            self.doubts.syn_by = None;
        }
        let acknowledges = |ack: u32| ack.wrapping_sub(self.doubts.syn_end) <= FIRST_DATA;
        self.doubts.syn_by == Some(side.other())
            && !segment.flags.has(Flags::RST)
            && segment.ack.is_some_and(acknowledges)
    }

    /// Whether it goes on as far as both its sides say: nothing that one packet says ends it.
    pub(crate) fn is_live(&self) -> bool {
        let acknowledged =
            self.parties.iter().all(|party| party.as_ref().is_none_or(|party| party.state().is_closed()));
        // A reset that may have ended it has not: a SYN then waits for its answer, too.
        let over = self.stage == Stage::Closed && (acknowledged || self.doubts.reset_at != MaybeTime::NONE);
        !over && self.sides_that_sent() == 2
    }

    /// Whether `segment`, sent by `side`, is an answer to a SYN that this connection, which goes on, never had.
    pub(crate) fn has_no_use_for(&self, side: Side, segment: &Segment) -> bool {
        let isn = self.party(side).and_then(|party| party.state().syn).map(|syn| syn.isn);
        let answer = segment.flags.has(Flags::SYN) && segment.flags.has(Flags::ACK);
        answer && self.agreed && self.is_live() && isn != Some(segment.seq)
    }

    /// Whether the numbers of `segment`, sent by `side`, lie far from everything that both sides sent and acknowledged.
    #[inline]
    pub(crate) fn is_stray(&self, side: Side, segment: &Segment) -> bool {
        let is_far = |party: Option<&ConnectionEnd>, number| party.is_some_and(|party| !party.state().is_near(number));
        self.agreed
            && (is_far(self.party(side), segment.seq)
                || segment.ack.is_some_and(|ack| is_far(self.party(side.other()), ack)))
    }

    /// Whether `segment`, sent by `side`, changes nothing here: it is counted then.
    #[inline]
    pub(super) fn ignores(&mut self, side: Side, segment: &Segment, context: &mut FlowContext<'_>) -> bool {
        let reason = if segment.flags.has(Flags::RST) {
            self.ignores_reset(side, segment)
        } else if self.is_stray(side, segment) {
            self.ignores_stray(side)
        } else {
            // What it sends now contradicts a reset that it may have sent.
            if self.doubts.reset_by == side {
                self.doubts.reset_at = MaybeTime::NONE;
            }
            *self.strays_mut(side) = 0;
            return false;
        };
        let Some(reason) = reason else { return false };
        context.counters.ignore(reason);
        if let Some(sender) = self.party_mut(side).as_mut().and_then(ConnectionEnd::sender_mut) {
            sender.note_ignored(segment, context);
        }
        true
    }

    #[cold]
    fn ignores_stray(&mut self, side: Side) -> Option<Ignored> {
        let strays = self.strays_mut(side);
        let few = *strays < STRAYS;
        *strays += u8::from(few);
        few.then_some(Ignored::BeyondWindow)
    }

    fn strays_mut(&mut self, side: Side) -> &mut u8 {
        let [low, high] = &mut self.doubts.strays;
        match side {
            Side::Low => low,
            Side::High => high,
        }
    }

    /// Whether a reset sent by `side` is not that of this connection, or perhaps not: then it ends where nothing more comes.
    #[cold]
    fn ignores_reset(&mut self, side: Side, segment: &Segment) -> Option<Ignored> {
        let judged = self.judge_reset(side, segment);
        if judged != Reset::Nothing {
            (self.doubts.reset_at, self.doubts.reset_by) = (MaybeTime::some(segment.at), side);
        }
        (judged != Reset::Ends).then_some(Ignored::ResetNotExpected)
    }

    fn judge_reset(&self, side: Side, segment: &Segment) -> Reset {
        let [own, peer] = [side, side.other()].map(|side| self.party(side).map(ConnectionEnd::state));
        let Some(own) = own.filter(|own| own.has_sent() || own.is_acknowledged()) else {
            // Never heard. What answers a SYN acknowledges it (RFC 9293 section 3.10.7.3).
            let Some(peer) = peer.filter(|peer| peer.syn.is_some()) else { return Reset::Ends };
            let answers = segment.ack.is_some_and(|ack| peer.space().is_answered_by(ack));
            return if answers { Reset::Ends } else { Reset::Nothing };
        };
        if own.syn.is_none() && peer.is_none_or(|peer| !peer.has_sent()) {
            // Of one side alone in mid-stream there is nothing to lose.
            return Reset::Ends;
        }
        own.space().reset(segment.seq, own.has_finished())
    }
}

/// Records of one connection that are less than this apart are in order: so far apart are stamps of processors that receive at once.
const DISORDER_TOLERATED: Micros = Micros(1_000);

/// Records in order that make up for one that is not.
const IN_ORDER_FOR_ONE: u16 = 1_000;

/// A connection with this many records out of order gives no findings.
const TOO_MANY_LATE: u16 = 2;

/// Faults in the times of one connection's records: a score, to which each record out of order adds [`IN_ORDER_FOR_ONE`] and from which
/// each record in order takes one; or a mark that one record held no time. Every connection has one, so it has two bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordTimes(u16);

/// A record held no time.
const UNTIMED: u16 = u16::MAX;

impl RecordTimes {
    /// A record held no time.
    pub(super) fn note_untimed(&mut self) {
        self.0 = UNTIMED;
    }

    /// A record came in order.
    #[inline]
    pub(super) fn note_in_order(&mut self) {
        if self.0 != UNTIMED {
            self.0 = self.0.saturating_sub(1);
        }
    }

    /// A record came this long after a later one of its connection.
    #[cold]
    pub(super) fn note_late(&mut self, by: Micros) {
        if by > DISORDER_TOLERATED && self.0 != UNTIMED {
            self.0 = self.0.saturating_add(IN_ORDER_FOR_ONE).min(UNTIMED - 1);
        }
    }

    /// What is wrong with them.
    #[inline]
    pub(super) fn fault(self) -> Option<Ignored> {
        match self.0 {
            UNTIMED => Some(Ignored::Untimed),
            disorder => (disorder > (TOO_MANY_LATE - 1) * IN_ORDER_FOR_ONE).then_some(Ignored::Unordered),
        }
    }
}
