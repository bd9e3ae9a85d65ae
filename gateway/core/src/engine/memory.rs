//! The most that an engine takes in memory.

use super::thinning::Thinning;
use crate::config::Limits;
use crate::event::Event;
use crate::flow::table::FlowTable;
use crate::mem::listed;
use crate::networks::NetworkTable;
use crate::service::ServiceTable;

/// The most that an engine takes with its limits, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryNeed {
    /// Places of connections.
    pub connections: usize,
    /// What senders have outstanding.
    pub segments: usize,
    /// All else that is kept of senders.
    pub senders: usize,
    /// Places of networks, and their samples.
    pub networks: usize,
    /// Services.
    pub services: usize,
    /// Starts by network, under overload.
    pub starts: usize,
    /// Events that wait.
    pub events: usize,
}

impl MemoryNeed {
    /// Of an engine with these limits.
    #[must_use]
    pub fn of(limits: &Limits) -> Self {
        let connections = limits.connections.get();
        Self {
            connections: FlowTable::places_bytes(connections),
            segments: limits.segment_memory_bytes.get().max(FlowTable::few_bytes(connections)),
            senders: limits.sender_memory_bytes.get(),
            networks: NetworkTable::places_bytes(limits.networks.get())
                .saturating_add(limits.network_memory_bytes.get()),
            services: ServiceTable::places_bytes(limits.services.get()),
            starts: Thinning::BYTES,
            // Those that were polled and are on their way to the publisher beside those that wait.
            events: 2 * listed::<Event>(limits.events.get()),
        }
    }
}
