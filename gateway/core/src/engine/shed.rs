//! Connections that are not followed under overload: their starts are still announced.
//!
//! The SYN and the prefixes determine which host starts. Starts after an idle time are not announced: they would need the
//! connection's state, which is not kept.

use super::Engine;
use crate::counters::Ignored;
use crate::flow::connection::Imminent;
use crate::flow::tuple::Tuple;
use crate::types::SampleRate;
use crate::wire::segment::{Endpoint, Flags, Segment};

impl Engine {
    /// Under overload: follows this share of the connections from now on, each of them completely. The others are dropped at their next
    /// segment: their segments are counted and not evaluated. Their SYNs still announce starts.
    pub fn keep(&mut self, kept: SampleRate) {
        self.kept = kept;
        self.networks.keep(kept, self.now);
    }

    /// What share of the connections it follows.
    pub fn kept(&self) -> SampleRate {
        self.kept
    }

    /// Whether a connection between these is among those that are followed now.
    pub fn keeps(&self, source: Endpoint, destination: Endpoint) -> bool {
        self.kept.has(Tuple::of(source, destination).0.hash(self.config.hash_seed))
    }

    /// Takes a segment of a connection that is not followed, whose tuple has this hash.
    pub(super) fn pass_over(&mut self, tuple: &Tuple, hash: u64, segment: &Segment) {
        self.counters.ignore(Ignored::Shed);
        if let Some(key) = self.flows.find(tuple) {
            self.end(key);
        }
        if segment.flags.has(Flags::SYN) {
            self.announce_by_syn_alone(hash, segment);
        }
    }

    #[cold]
    fn announce_by_syn_alone(&mut self, hash: u64, segment: &Segment) {
        let (source, destination) = (segment.source.address, segment.destination.address);
        let (from, to) = (self.role(source, destination), self.role(destination, source));
        if let Some(imminent) = Imminent::by_syn(segment, from, to)
            && !self.is_own(segment)
            && !self.shed_syns.is_copy(hash, segment)
        {
            self.announce(segment, imminent);
        }
    }
}
