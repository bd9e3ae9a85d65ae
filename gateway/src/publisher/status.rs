//! State of the gateway's parts: for `/readyz` and `/metrics`.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use spand_capture::Backend;
use spand_core::counters::Counters;
use spand_core::mem::MemoryUse;
use spand_core::networks::reported::ReportCounts;
use spand_proto::units::Timestamp;
use strum::{IntoStaticStr, VariantArray};

/// The engine's own numbers at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStatus {
    /// The engine's index; 0 in the total that [`super::Published::engine`] returns.
    pub shard: usize,
    /// Everything counted since the start.
    pub counters: Counters,
    /// What became of the reports of QUIC connections.
    pub reports: ReportCounts,
    /// Connections in the flow table.
    pub connections: usize,
    /// Networks in the table, including aged ones that were not evaluated since.
    pub networks: usize,
    /// When the first packet was captured.
    pub oldest: Option<Timestamp>,
    /// When the newest packet was captured.
    pub newest: Option<Timestamp>,
    /// Samples that were not handed over to be shown, because too many came at once.
    pub samples_dropped: u64,
    /// Networks that changed and were not published nor handed to the store since.
    pub networks_changed: usize,
    /// What the accounts in bytes have come to, and their limits.
    pub memory: MemoryUse,
    /// Share of the connections that is left alone under overload, from 0 to 1.
    pub shed: f64,
}

impl EngineStatus {
    /// The numbers of several engines together.
    pub(super) fn total(engines: &[Self]) -> Self {
        let mut total = Self::default();
        for engine in engines {
            total.counters.add(&engine.counters);
            total.reports.add(&engine.reports);
            total.connections += engine.connections;
            total.networks += engine.networks;
            total.oldest = [total.oldest, engine.oldest].into_iter().flatten().min();
            total.newest = total.newest.max(engine.newest);
            total.samples_dropped += engine.samples_dropped;
            total.networks_changed += engine.networks_changed;
            total.memory = total.memory.with(engine.memory);
            total.shed = total.shed.max(engine.shed);
        }
        total
    }
}

/// One packet source's numbers since the start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CaptureStatus {
    /// Interface, or name of the source: one of those configured, so a bounded label.
    pub interface: String,
    /// What reads it; `None` before it was first open.
    pub backend: Option<Backend>,
    /// Packets that passed the filter, those that the kernel then dropped among them.
    pub received: u64,
    /// Packets the kernel dropped because the capture buffer was full.
    pub dropped_kernel: u64,
    /// Packets the interface or its driver dropped.
    pub dropped_interface: u64,
    /// Packets dropped because the engine did not keep up.
    pub dropped_queue: u64,
    /// Times the packet ring was full and the kernel stopped filling it.
    pub ring_freezes: u64,
    /// Packets dropped at a CPU's backlog, of the whole host.
    pub dropped_backlog: u64,
    /// Rise of the interface's `rx_dropped`; captured packets may be among them.
    pub interface_rx_dropped: u64,
    /// Rise of its `rx_missed_errors`.
    pub interface_rx_missed: u64,
    /// Rise of its `rx_fifo_errors`.
    pub interface_rx_fifo: u64,
    /// Times the source was lost: the interface vanished or went down, or the kernel refused. Each is retried.
    pub losses: u64,
    /// Whether the interface has no address of its own, as a mirror port has none: silence there is a fault, while a host can be quiet.
    pub is_mirror: bool,
}

/// A part of the gateway that has to work before it is ready.
#[derive(Clone, Copy, Debug, Eq, Hash, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Part {
    /// The packet sources.
    Capture,
    /// The engine.
    Engine,
    /// The store: a gateway that starts cold after a damaged store is ready; one whose writes fail is not.
    Store,
}

impl Part {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Which parts work, and why not. Initially every part is starting.
#[derive(Debug)]
pub struct Readiness {
    not_ready: Mutex<BTreeMap<Part, String>>,
}

impl Readiness {
    /// The part works.
    pub fn ready(&self, part: Part) {
        self.not_ready.lock().remove(&part);
    }

    /// The part does not work, and why: one short sentence.
    pub fn not_ready(&self, part: Part, why: impl Into<String>) {
        self.not_ready.lock().insert(part, why.into());
    }

    /// The parts that do not work, with their reasons; empty when the gateway is ready.
    pub fn reasons(&self) -> Vec<(Part, String)> {
        self.not_ready.lock().iter().map(|(part, why)| (*part, why.clone())).collect()
    }
}

impl Default for Readiness {
    fn default() -> Self {
        let starting = Part::VARIANTS.iter().map(|part| (*part, "it has not started yet".to_owned()));
        Self { not_ready: Mutex::new(starting.collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_share_the_networks_and_each_sheds_by_itself() {
        let engine = |networks, shed| EngineStatus { networks, shed, ..EngineStatus::default() };
        let total = EngineStatus::total(&[engine(3, 0.0), engine(4, 0.5), engine(0, 0.25)]);
        assert_eq!(total, engine(7, 0.5));
    }
}
