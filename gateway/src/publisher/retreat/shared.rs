//! Retreats of other gateways: what one gateway's hosts lost holds back the advice of all.
//!
//! The harshest is in force: the least cap, and the latest end of a withdrawal. Each gateway then lets it grow by the transfers that its
//! own hosts report, and ends it by itself. Retreats of single addresses stay where they are: clients' addresses leave no gateway.

use spand_cells::HeldBack;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::{FORGET, Held, Retreat, TWICE};

impl Retreat {
    /// What other gateways have to know of it.
    pub(in crate::publisher) fn shared(&self, network: Network) -> Option<HeldBack> {
        let Held { cap, halved, withdrawn, .. } = self.held?;
        Some(HeldBack { network, cap, halved, withdrawn })
    }

    /// Takes the retreat of another gateway; whether anything changes by it.
    pub(in crate::publisher) fn join(&mut self, other: &HeldBack, now: Timestamp) -> bool {
        // Clocks differ a little; no retreat lasts longer for one that is ahead.
        let halved = other.halved.min(now);
        if is_over(other, now) {
            return false;
        }
        let withdrawn = other.withdrawn.map(|until| until.min(now.after(TWICE))).filter(|until| *until > now);
        let joined = match self.held {
            None => Held { cap: other.cap, halved, withdrawn, grown: halved },
            Some(own) => Held {
                cap: if other.cap < own.cap { other.cap } else { own.cap },
                halved: own.halved.max(halved),
                withdrawn: own.withdrawn.max(withdrawn),
                grown: own.grown.max(halved),
            },
        };
        if self.held.is_some_and(|own| own == joined) {
            return false;
        }
        // Losses under the advice of before are accounted for.
        self.row.clear();
        self.held = Some(joined);
        true
    }
}

/// Whether it holds nothing back any more.
pub(in crate::publisher) fn is_over(held: &HeldBack, now: Timestamp) -> bool {
    held.halved.after(FORGET) <= now
}
