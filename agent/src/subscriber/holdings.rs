//! The advice that is held. Takes the time as an argument; does no IO.
//!
//! A gateway that adopts this host extends the lifetime of what another one of its cluster gave, once, so that it does not end while the
//! snapshot comes. A lease is not extended: the gateway that gave it passes it on to other hosts when its own lifetime is over.
//!
//! At the limit new advice evicts other advice: first that without effect on this host, then that without an announced connection, then
//! that used longest ago. So a client with very many networks displaces its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use spand_proto::network::Network;
use spand_proto::push::{EstimateUpdate, ServiceSize, UpdateEvent};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp};

use super::table::{Adopted, Held, Table};
use crate::policy::Advice;

/// Advice by network, each with the end of its lifetime.
#[derive(Debug)]
pub struct Holdings {
    held: Table,
    longest_lifetime: Micros,
    /// Counts snapshots: what an older one gave is not renewed, and gone when the newer one ends.
    snapshot: u64,
    /// A stream began, and its first snapshot did not yet.
    may_adopt: bool,
    /// The stream whose gateway adopted, by the number of its first snapshot, until that is complete.
    adopting: Option<u64>,
    /// The usual size of each service of this host, and when that ends.
    sizes: BTreeMap<SocketAddr, (Bytes, Timestamp)>,
    counts: HoldingCounts,
}

/// Services whose size is held, at most.
const MOST_SERVICES: usize = 4_096;

/// A lease that is not extended with its advice ends this long before its lifetime does: everything is looked at once a second, and
/// what is in the kernel is replaced before it ends.
const LEASE_ENDS_BEFORE: Micros = Micros::from_secs(2);

/// What happened to advice since the start.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct HoldingCounts {
    /// Estimates taken.
    pub estimates: u64,
    /// Snapshots that ended.
    pub snapshots: u64,
    /// Times the gateway started over because this host read too slowly or its state was replaced.
    pub resyncs: u64,
    /// Renewals of all lifetimes.
    pub renewals: u64,
    /// Times that a gateway adopted what another one of its cluster gave.
    #[serde(default)]
    pub adoptions: u64,
    /// Advice whose lifetime was extended by that.
    #[serde(default)]
    pub adopted: u64,
    /// Advice withdrawn by the gateway.
    pub withdrawn: u64,
    /// Advice that a snapshot no longer held.
    pub dropped_by_snapshot: u64,
    /// Advice whose lifetime ended.
    pub expired: u64,
    /// Estimates and sizes for which there was no room.
    pub no_room: u64,
    /// Advice that went so that other advice had room.
    #[serde(default)]
    pub evicted: u64,
    /// Usual sizes of this host's services.
    pub service_sizes: u64,
}

impl Holdings {
    /// Whether there is no room for another network.
    pub fn is_full(&self) -> bool {
        self.held.is_full()
    }

    /// Empty, for at most `limit` networks; no advice lives longer than `longest_lifetime` without a refresh.
    pub fn new(limit: NonZeroUsize, longest_lifetime: Micros) -> Self {
        Self {
            held: Table::new(limit),
            longest_lifetime,
            snapshot: 0,
            may_adopt: false,
            adopting: None,
            sizes: BTreeMap::new(),
            counts: HoldingCounts::default(),
        }
    }

    /// Takes in one event that arrived at `now`. Gives the network whose advice went so that other advice had room.
    pub fn on_event(&mut self, event: &UpdateEvent, now: Timestamp) -> Option<Network> {
        match event {
            UpdateEvent::SnapshotBegin { .. } => {
                self.snapshot += 1;
                self.may_adopt = false;
            }
            UpdateEvent::Adopted { lifetime } => self.adopt(*lifetime),
            UpdateEvent::SnapshotEnd { .. } => {
                self.counts.snapshots += 1;
                let newest = self.snapshot;
                self.adopting = None;
                self.counts.dropped_by_snapshot += self.held.retain(|held| held.given_by == newest);
            }
            UpdateEvent::Estimate(update) => return self.take(update, None, now),
            UpdateEvent::ImminentStart(start) => return self.take(&start.estimate, Some(now), now),
            UpdateEvent::Renewal { lifetime } => {
                self.counts.renewals += 1;
                let expires = now.after((*lifetime).min(self.longest_lifetime));
                for held in self.held.values_mut() {
                    match &mut held.adopted {
                        _ if held.given_by == self.snapshot => held.advice.expires = expires,
                        // The snapshot that replaces it is still on its way.
                        Some(Adopted { until, by }) if self.adopting == Some(*by) => *until = expires.max(*until),
                        _ => {}
                    }
                }
            }
            UpdateEvent::Withdrawal { network, .. } => {
                self.counts.withdrawn += u64::from(self.held.remove(*network).is_some());
            }
            UpdateEvent::Resync { .. } => self.counts.resyncs += 1,
            UpdateEvent::ServiceSize(size) => self.take_size(size, now),
        }
        None
    }

    fn take(&mut self, update: &EstimateUpdate, announced: Option<Timestamp>, now: Timestamp) -> Option<Network> {
        let expires = now.after(update.lifetime.min(self.longest_lifetime));
        let advice = Advice { estimate: update.estimate.clone(), lease: update.lease, expires };
        let gone = self.held.put(advice, self.snapshot, announced);
        if gone == Some(update.estimate.network) {
            self.counts.no_room += 1;
            return None;
        }
        self.counts.estimates += 1;
        self.counts.evicted += u64::from(gone.is_some());
        gone
    }

    /// Whether connections start differently, or are compared, because of a network's advice: what changes nothing goes first where room is
    /// needed.
    pub fn set_matters(&mut self, network: Network, matters: bool) {
        self.held.set_matters(network, matters);
    }

    /// Extends advice that the stream has not sent yet, until its snapshot is complete. Each estimate is extended by one stream until it is
    /// sent again, so that adoptions by gateways without a complete snapshot do not keep advice alive.
    fn adopt(&mut self, lifetime: Micros) {
        if !std::mem::take(&mut self.may_adopt) {
            return;
        }
        self.counts.adoptions += 1;
        let lifetime = lifetime.min(self.longest_lifetime);
        let given_by = self.snapshot;
        for held in self.held.values_mut().filter(|held| held.given_by != given_by && held.adopted.is_none()) {
            held.adopted = Some(Adopted { until: held.advice.expires.after(lifetime), by: given_by });
            self.counts.adopted += 1;
        }
        self.adopting = Some(given_by);
    }

    /// The gateway is lost: what was adopted ends within a lifetime, like all else.
    pub fn on_lost(&mut self, now: Timestamp) {
        let latest = now.after(self.longest_lifetime);
        for held in self.held.values_mut() {
            if let Some(Adopted { until, .. }) = &mut held.adopted {
                *until = latest.min(*until);
                held.advice.expires = latest.min(held.advice.expires);
            }
        }
    }

    fn take_size(&mut self, size: &ServiceSize, now: Timestamp) {
        if self.sizes.len() >= MOST_SERVICES && !self.sizes.contains_key(&size.service) {
            self.counts.no_room += 1;
            return;
        }
        self.counts.service_sizes += 1;
        self.sizes.insert(size.service, (size.quantile, now.after(size.lifetime)));
    }

    /// Forgets sizes that have lived too long; which services they were of.
    pub fn expire_sizes(&mut self, now: Timestamp) -> Vec<SocketAddr> {
        let over: Vec<SocketAddr> =
            self.sizes.iter().filter(|(_, (_, end))| *end <= now).map(|(service, _)| *service).collect();
        for service in &over {
            self.sizes.remove(service);
        }
        over
    }

    /// The usual size of what a service of this host sends.
    pub fn size(&self, service: SocketAddr) -> Option<Bytes> {
        self.sizes.get(&service).map(|(size, _)| *size)
    }

    /// Forgets advice for `network` that cannot be read.
    pub fn forget(&mut self, network: Network) {
        self.held.remove(network);
    }

    /// A new stream begins: nothing that the last one gave is renewed by it.
    pub fn on_new_stream(&mut self) {
        self.snapshot += 1;
        (self.may_adopt, self.adopting) = (true, None);
    }

    /// Drops what has lived too long, and ends leases of what lives on; true where anything was.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let ends = now.after(LEASE_ENDS_BEFORE);
        let mut extended = false;
        for Held { advice, adopted, .. } in self.held.values_mut() {
            if let Some(Adopted { until, .. }) = adopted
                && advice.expires <= ends
                && advice.expires < *until
            {
                (advice.expires, advice.lease) = (*until, Some(Segments(0)));
                extended = true;
            }
        }
        let expired = self.held.retain(|held| held.advice.expires > now);
        self.counts.expired += expired;
        extended || expired > 0
    }

    /// When the last of it expires, unless it is renewed; `None` where nothing is held.
    pub fn last_expiry(&self) -> Option<Timestamp> {
        self.held.iter().map(|(_, held)| held.adopted.map_or(held.advice.expires, |adopted| adopted.until)).max()
    }

    /// Advice about `network`.
    pub fn get(&self, network: Network) -> Option<&Advice> {
        self.held.get(network).map(|held| &held.advice)
    }

    /// The longest prefix held that contains `address`, and its advice.
    pub fn lookup(&self, address: IpAddr) -> Option<(Network, &Advice)> {
        let address = address.to_canonical();
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (0..=longest).rev().find_map(|len| {
            let network = Network::new(IpNet::new(address, len).ok()?);
            Some((network, self.get(network)?))
        })
    }

    /// The longest network held around one that is no more than one client: an IPv4 address, an IPv6 /64.
    pub fn around_client(&self, client: Network) -> Option<Network> {
        let prefix = client.prefix();
        if prefix.prefix_len() < if prefix.addr().is_ipv4() { 32 } else { 64 } {
            return None;
        }
        (0..prefix.prefix_len()).rev().find_map(|len| {
            let around = Network::new(IpNet::new(prefix.network(), len).ok()?);
            self.held.get(around).is_some().then_some(around)
        })
    }

    /// All of it, by network.
    pub fn iter(&self) -> impl Iterator<Item = (Network, &Advice)> {
        self.held.iter().map(|(network, held)| (network, &held.advice))
    }

    /// Networks held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.len() == 0
    }

    /// What happened since the start.
    pub const fn counts(&self) -> HoldingCounts {
        self.counts
    }
}
