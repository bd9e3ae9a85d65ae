//! Which prefixes are in force: what the threads go by, and may be given others while they run.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::IpNet;
use parking_lot::Mutex;
use spand_core::config::EngineConfig;
use spand_core::shard::Partition;

/// What says who is inside, which networks there are, and which engine has one.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    pub(super) internal: Vec<IpNet>,
    pub(super) networks: Vec<IpNet>,
    pub(super) partition: Partition,
    /// The gateway's own sockets, whose connections are not followed.
    pub(super) own_listeners: BTreeSet<SocketAddr>,
    /// Grows with each that came into force.
    generation: u64,
}

impl Groups {
    /// Those of a configuration, divided among N engines.
    pub(super) fn of(config: &EngineConfig, partition: Partition) -> Self {
        Self {
            internal: config.internal.clone(),
            networks: config.prefixes.clone(),
            partition,
            own_listeners: config.own_listeners.clone(),
            generation: 0,
        }
    }
}

/// The groups in force. Each thread keeps those that it knows and asks between two packets whether there are others; so it never
/// waits, and a network is always its owner's, whichever of the two a thread knows: owners go by the network alone.
#[derive(Debug)]
pub(super) struct Grouping {
    generation: AtomicU64,
    in_force: Mutex<Arc<Groups>>,
}

impl Grouping {
    pub(super) fn new(groups: Groups) -> Self {
        Self { generation: AtomicU64::new(groups.generation), in_force: Mutex::new(Arc::new(groups)) }
    }

    pub(super) fn in_force(&self) -> Arc<Groups> {
        Arc::clone(&self.in_force.lock())
    }

    /// Brings others into force.
    pub(super) fn replace(&self, groups: Groups) {
        let mut in_force = self.in_force.lock();
        let generation = in_force.generation + 1;
        *in_force = Arc::new(Groups { generation, ..groups });
        self.generation.store(generation, Ordering::Release);
    }

    /// Looks whether `known` are still in force, and replaces them where they are not; whether they were not.
    pub(super) fn renew(&self, known: &mut Arc<Groups>) -> bool {
        if self.generation.load(Ordering::Acquire) == known.generation {
            return false;
        }
        *known = self.in_force();
        true
    }
}
