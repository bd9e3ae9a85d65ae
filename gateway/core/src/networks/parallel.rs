//! How many connections send to a network at once, and which part of its starts is followed.

use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::NetworkTable;
use crate::types::{SampleRate, SenderId};

impl NetworkTable {
    /// A transfer to the network begins; of the connections like its own, this part is followed. Returns whether it is counted: a network
    /// without samples is not in the table yet.
    pub fn begin_transfer(&mut self, network: Network, at: Timestamp, rate: SampleRate) -> bool {
        let Some(entry) = self.slots.find(network).and_then(|slot| self.slots.get_mut(slot)) else { return false };
        entry.parallel.begin(at, self.method.config.bucket, rate);
        true
    }

    /// A transfer of `sender` ends; `counted` holds the part that [`Self::begin_transfer`] counted it with, if it did.
    pub fn end_transfer(&mut self, network: Network, at: Timestamp, sender: SenderId, counted: Option<SampleRate>) {
        if let Some(entry) = self.slots.find(network).and_then(|slot| self.slots.get_mut(slot)) {
            if let Some(rate) = counted {
                entry.parallel.end(at, self.method.config.bucket, rate);
            }
            if let Some(openings) = &mut entry.openings {
                openings.end(at, sender);
            }
        }
    }

    /// Notes which part of the network's starts is followed at `at`.
    pub(crate) fn note_rate(&mut self, network: Network, rate: SampleRate, at: Timestamp) {
        let window = self.method.config.span();
        if let Some(entry) = self.slots.find(network).and_then(|slot| self.slots.get_mut(slot)) {
            entry.parallel.rate.note(rate, at, window);
        }
    }
}
