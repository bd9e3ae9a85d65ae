//! The published services: how large the transfers of each are, for lists and for the host that each is one of.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;

use spand_core::mem::treed;
use spand_core::service::ServiceSize;
use spand_proto::units::Bytes;

/// Services by address and port. Holds as many as the engine's own table, which evicts them.
#[derive(Debug, Default)]
pub(super) struct Services {
    entries: BTreeMap<SocketAddr, Entry>,
}

#[derive(Debug)]
struct Entry {
    size: ServiceSize,
    /// The size that was sent last.
    sent: Bytes,
}

impl Services {
    /// Bytes taken by N services.
    pub(super) const fn bytes(services: usize) -> usize {
        treed::<SocketAddr, Entry>(services)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, service: SocketAddr) -> Option<ServiceSize> {
        self.entries.get(&service).map(|entry| entry.size)
    }

    /// Takes a service's new size; returns whether to send it to the host at once: it appeared or changed by `change`.
    pub(super) fn put(&mut self, size: ServiceSize, change: f64) -> bool {
        let entry = self.entries.entry(size.service).or_insert(Entry { size, sent: Bytes(0) });
        entry.size = size;
        let moved = size.quantile.0.abs_diff(entry.sent.0) as f64 > change * entry.sent.0 as f64;
        if moved {
            entry.sent = size.quantile;
        }
        moved
    }

    pub(super) fn remove(&mut self, service: SocketAddr) {
        self.entries.remove(&service);
    }

    /// Up to `limit` services in order of address and port, from the first one after `after` on; of one host, where
    /// `host` names it.
    pub(super) fn page(&self, host: Option<IpAddr>, after: Option<SocketAddr>, limit: usize) -> Vec<ServiceSize> {
        let first = host.map_or(Bound::Unbounded, |host| Bound::Included(SocketAddr::new(host, 0)));
        let from = after.map_or(first, Bound::Excluded);
        let of_host = |size: &ServiceSize| host.is_none_or(|host| size.service.ip() == host);
        let sizes = self.entries.range((from, Bound::Unbounded)).map(|(_, entry)| entry.size);
        sizes.take_while(of_host).take(limit).collect()
    }
}
