//! One end of a connection: a sender that is rebuilt, or one that is only kept up with.

use crate::flow::sender::Sender;
use crate::flow::seq_state::SeqState;
use crate::flow::sink::FlowContext;
use crate::mem::{Held, number};
use crate::wire::segment::Segment;

/// An end of a connection. Boxed: what a connection that is over leaves in the table is small.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionEnd {
    /// Its window or its account is wanted.
    Rebuilt(Box<Sender>),
    /// Nothing is wanted of it.
    SeqOnly(Box<SeqState>),
}

impl ConnectionEnd {
    /// The rebuilt sender.
    pub(crate) fn sender(&self) -> Option<&Sender> {
        match self {
            Self::Rebuilt(sender) => Some(sender),
            Self::SeqOnly(_) => None,
        }
    }

    /// The rebuilt sender.
    pub(crate) fn sender_mut(&mut self) -> Option<&mut Sender> {
        match self {
            Self::Rebuilt(sender) => Some(sender),
            Self::SeqOnly(_) => None,
        }
    }

    /// Its sequence space.
    #[inline]
    pub(crate) fn state(&self) -> &SeqState {
        match self {
            Self::Rebuilt(sender) => &sender.state,
            Self::SeqOnly(state) => state,
        }
    }

    /// Its sequence space.
    #[inline]
    pub(crate) fn state_mut(&mut self) -> &mut SeqState {
        match self {
            Self::Rebuilt(sender) => &mut sender.state,
            Self::SeqOnly(state) => state,
        }
    }

    /// What it takes in memory.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        let alone = || Held { sender_bytes: number(size_of::<SeqState>()), ..Held::default() };
        self.sender().map_or_else(alone, Sender::held)
    }

    /// Whether `segment` is a second copy of a packet of this sender.
    pub(crate) fn is_copy(&self, segment: &Segment) -> bool {
        self.state().is_copy(segment) || self.sender().is_some_and(|sender| sender.has_outstanding_copy(segment))
    }

    /// Takes a segment of this sender; a second copy only counts, where something does. Returns how much of it was sent before.
    pub(crate) fn send(&mut self, segment: &Segment, copy: bool, context: &mut FlowContext<'_>) -> u32 {
        match self {
            Self::Rebuilt(sender) => sender.send(segment, copy, context),
            Self::SeqOnly(_) if copy => 0,
            Self::SeqOnly(state) => state.send(segment, context),
        }
    }

    /// Takes an acknowledgement that the peer sent; `scale` is the shift of its window, where known.
    pub(crate) fn acknowledge(&mut self, segment: &Segment, scale: Option<u8>, context: &mut FlowContext<'_>) {
        match self {
            Self::Rebuilt(sender) => sender.acknowledge(segment, scale, context),
            Self::SeqOnly(state) => state.acknowledge_alone(segment, scale, context),
        }
    }
}
