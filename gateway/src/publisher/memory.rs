//! The most that the publisher takes with its limits.

use std::net::IpAddr;
use std::sync::Arc;

use spand_core::event::StartImminent;
use spand_core::mem::{boxed, listed, treed};
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;

use super::config::BATCH_CHANGES;
use super::destinations::DestinationsInUse;
use super::gather::Gather;
use super::insight::Histories;
use super::leases::Leases;
use super::networks::Networks;
use super::retreat::Comparisons;
use super::services::Services;
use super::subscribers::SubscriberQueue;
use super::subscription::Subscription;
use super::{PublisherConfig, ToHosts};

/// Bytes, by what takes them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PublisherNeed {
    /// Published networks and services.
    pub(crate) published: usize,
    /// Remote addresses that lost first flights.
    pub(crate) losers: usize,
    /// What is remembered to be shown.
    pub(crate) remembered: usize,
    /// Changes on their way to subscribers.
    pub(crate) changes: usize,
    /// Subscribers with their addresses and waiting starts.
    pub(crate) subscribers: usize,
    /// Networks that wait to be sent.
    pub(crate) waiting_networks: usize,
    /// Parts of budgets, and the hosts that may have some.
    pub(crate) leases: usize,
    /// Networks in use by each host.
    pub(crate) destinations: usize,
}

impl PublisherNeed {
    /// With these limits, those of networks and services of all engines, and the buckets of a window.
    pub(crate) fn of(config: &PublisherConfig, (networks, services, buckets): (usize, usize, usize)) -> Self {
        let (subscribers, addresses) = (config.subscribers.get(), config.addresses.get());
        let hosts = config.max_hosts();
        let one = boxed::<SubscriberQueue>()
            + boxed::<Subscription>()
            + listed::<(StartImminent, Arc<Estimate>)>(config.waiting_starts.get())
            // Its own list, one of the addresses that it named, and for each address a list of its subscribers.
            + addresses * (2 * size_of::<IpAddr>() + 2 * size_of::<(IpAddr, Vec<Arc<SubscriberQueue>>)>() + boxed::<[usize; 4]>());
        Self {
            published: Networks::bytes(networks) + Comparisons::bytes() + Services::bytes(services),
            losers: Networks::bytes_of_clients(),
            remembered: Histories::bytes(config.remembered_networks.get(), buckets),
            changes: Gather::bytes(config.backlog_batches.get().saturating_mul(BATCH_CHANGES)),
            subscribers: subscribers.saturating_mul(one),
            // Beyond the limit each may have half of an equal part in each of two sets.
            waiting_networks: treed::<Network, ()>(config.waiting_networks.get().saturating_mul(2)),
            leases: Leases::bytes(config.leased_networks.get(), config.leases.get())
                + hosts.saturating_mul(addresses * size_of::<IpAddr>() + 512),
            destinations: match config.to_hosts {
                ToHosts::All => 0,
                ToHosts::InUse => DestinationsInUse::bytes(config.destinations.get() + hosts),
            },
        }
    }
}
