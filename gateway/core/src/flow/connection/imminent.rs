//! Which segment announces that a host inside is about to start sending.

use super::Role;
use crate::types::Trigger;
use crate::wire::segment::{Flags, Segment};

/// A start that a segment announces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Imminent {
    /// Who starts: the segment's sender, or its receiver.
    pub(crate) by_sender: bool,
    /// What announced it.
    pub(crate) trigger: Trigger,
}

impl Imminent {
    /// What `segment` announces if it is the first SYN of a connection: the start of its sender, where that is inside, else of its
    /// receiver. Nothing else of the connection has to be known for it.
    #[inline]
    pub(crate) fn by_syn(segment: &Segment, from: Role, to: Role) -> Option<Self> {
        if !segment.flags.has(Flags::SYN) || segment.ack.is_some() {
            return None;
        }
        let by_sender = from.inside;
        let (host, trigger) = if by_sender { (from, Trigger::ActiveOpen) } else { (to, Trigger::PassiveOpen) };
        host.is_announced_here().then_some(Self { by_sender, trigger })
    }

    /// What data from outside announce that arrive at an idle host.
    pub(crate) fn by_data_after_idle(from: Role, to: Role) -> Option<Self> {
        (!from.inside && to.is_announced_here()).then_some(Self { by_sender: false, trigger: Trigger::Idle })
    }
}

impl Role {
    /// Whether starts of this end are announced, and by this engine.
    fn is_announced_here(self) -> bool {
        self.inside && self.follow
    }
}
