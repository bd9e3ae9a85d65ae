//! One end of a connection: a sender that is rebuilt, or one that is only kept up with.

use spand_proto::units::{Micros, Timestamp};

use crate::flow::acceptance::{Space, is_close};
use crate::flow::connection::Place;
use crate::flow::handshake::Syn;
use crate::flow::passed::Passed;
use crate::flow::report::DirectionReport;
use crate::flow::sender::Sender;
use crate::flow::seq_state::SeqState;
use crate::flow::sequence::first_position;
use crate::flow::sink::FlowContext;
use crate::mem::{Held, number};
use crate::wire::segment::Segment;

/// How far beyond its SYN the first acknowledgement that is heard of a sender may lie, in bytes: a capture may have missed some.
const NEAR: u64 = 1 << 20;

/// An end of a connection. Boxed: what a connection that is over leaves in the table is small.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionEnd {
    /// Its window or its account is wanted.
    Rebuilt(Box<Sender>),
    /// Nothing is wanted of it.
    SeqState(Box<SeqState>),
}

impl ConnectionEnd {
    /// The rebuilt sender.
    pub(crate) fn sender(&self) -> Option<&Sender> {
        match self {
            Self::Rebuilt(sender) => Some(sender),
            Self::SeqState(_) => None,
        }
    }

    /// The rebuilt sender.
    pub(crate) fn sender_mut(&mut self) -> Option<&mut Sender> {
        match self {
            Self::Rebuilt(sender) => Some(sender),
            Self::SeqState(_) => None,
        }
    }

    /// Its own SYN.
    pub(crate) fn syn(&self) -> Option<Syn> {
        match self {
            Self::Rebuilt(sender) => sender.syn,
            Self::SeqState(passing) => passing.syn,
        }
    }

    /// What it takes in memory.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        match self {
            Self::Rebuilt(sender) => sender.held(),
            Self::SeqState(_) => Held { sender_bytes: number(size_of::<SeqState>()), ..Held::default() },
        }
    }

    /// The lowest position not acknowledged.
    pub(crate) fn una(&self) -> u64 {
        match self {
            Self::Rebuilt(sender) => sender.una(),
            Self::SeqState(passing) => passing.una(),
        }
    }

    /// When its last packet was captured.
    pub(crate) fn last_at(&self) -> Option<Timestamp> {
        match self {
            Self::Rebuilt(sender) => sender.last_at(),
            Self::SeqState(passing) => passing.last_at(),
        }
    }

    /// Whether it sent anything.
    pub(crate) fn has_sent(&self) -> bool {
        match self {
            Self::Rebuilt(sender) => sender.has_sent(),
            Self::SeqState(passing) => passing.has_sent(),
        }
    }

    /// What is known of its sequence space.
    #[inline]
    pub(crate) fn space(&self) -> Space {
        match self {
            Self::Rebuilt(sender) => sender.space(),
            Self::SeqState(passing) => passing.space(),
        }
    }

    /// Whether `number` lies near what it sent and had acknowledged.
    #[inline]
    pub(crate) fn is_near(&self, number: u32) -> bool {
        let ends = match self {
            Self::Rebuilt(sender) => [sender.una(), sender.nxt()],
            Self::SeqState(state) => [state.una(), state.nxt()],
        };
        is_close(ends, number) || self.space().is_near(number)
    }

    /// Counts a packet that is ignored, where something counts.
    pub(crate) fn note_ignored(&mut self, segment: &Segment, context: &mut FlowContext<'_>) {
        if let Self::Rebuilt(sender) = self {
            sender.note_ignored(segment, context);
        }
    }

    /// What it sent and its network does not have yet.
    pub(crate) fn passed_mut(&mut self) -> &mut Passed {
        match self {
            Self::Rebuilt(sender) => &mut sender.passed,
            Self::SeqState(passing) => &mut passing.passed,
        }
    }

    /// Whether it sent something, and its SYN, where it was seen, was acknowledged: by a number near it, since of numbers
    /// made up a quarter lies within the largest window there is.
    pub(crate) fn is_agreed(&self) -> bool {
        let beyond = |syn: Syn| self.una().saturating_sub(first_position(syn.isn));
        self.has_sent() && self.syn().is_none_or(|syn| (1..=NEAR).contains(&beyond(syn)))
    }

    /// Whether some data that it sent was acknowledged.
    pub(crate) fn has_delivered(&self) -> bool {
        match self {
            Self::Rebuilt(sender) => sender.has_delivered(),
            Self::SeqState(passing) => passing.has_delivered(),
        }
    }

    /// Whether it sent a FIN.
    pub(crate) fn has_finished(&self) -> bool {
        match self {
            Self::Rebuilt(sender) => sender.has_finished(),
            Self::SeqState(passing) => passing.has_finished(),
        }
    }

    /// Whether its FIN was acknowledged.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Rebuilt(sender) => sender.is_closed(),
            Self::SeqState(passing) => passing.is_closed(),
        }
    }

    /// The handshake's round trip, as far as it is the tap's from here.
    pub(crate) fn handshake_rtt(&self) -> Option<Micros> {
        match self {
            Self::Rebuilt(sender) => sender.handshake_rtt(),
            Self::SeqState(passing) => passing.handshake_rtt(),
        }
    }

    /// Notes where its first packet stood.
    pub(crate) fn place_first(&mut self, segment: &Segment, place: Place) {
        match self {
            Self::Rebuilt(sender) => sender.place_first(segment, place),
            Self::SeqState(passing) => passing.place_first(segment),
        }
    }

    /// Whether `segment` is a second copy of a packet of this sender.
    pub(crate) fn is_copy(&self, segment: &Segment) -> bool {
        match self {
            Self::Rebuilt(sender) => sender.is_copy(segment),
            Self::SeqState(passing) => passing.is_copy(segment),
        }
    }

    /// Takes a segment of this sender; a second copy only counts, where something does. Returns how much of it was sent before.
    pub(crate) fn send(&mut self, segment: &Segment, copy: bool, context: &mut FlowContext<'_>) -> u32 {
        match self {
            Self::Rebuilt(sender) => sender.send(segment, copy, context),
            Self::SeqState(_) if copy => 0,
            Self::SeqState(passing) => passing.send(segment, context),
        }
    }

    /// Takes an acknowledgement that the peer sent; `scale` is the shift of its window, where known.
    pub(crate) fn acknowledge(&mut self, segment: &Segment, scale: Option<u8>, context: &mut FlowContext<'_>) {
        match self {
            Self::Rebuilt(sender) => sender.acknowledge(segment, scale, context),
            Self::SeqState(passing) => passing.acknowledge(segment, scale, context),
        }
    }

    /// Both SYNs were seen: what they agree on holds. `reaction`: how long after the peer's SYN the answer passed the tap.
    pub(crate) fn agree(&mut self, own: &Syn, peer: &Syn, reaction: Option<Micros>, at: Timestamp) {
        if let Self::Rebuilt(sender) = self {
            sender.agree(own, peer, reaction, at);
        }
    }

    /// Ends it; gives the account of it where it sent anything.
    pub(crate) fn finish(&mut self, context: &mut FlowContext<'_>) -> Option<Box<DirectionReport>> {
        self.sender_mut()?.finish(context)
    }
}
