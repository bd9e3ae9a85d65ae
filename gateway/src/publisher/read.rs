//! Queries of the published state.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use spand_core::networks::view::NetworkView;
use spand_core::service::ServiceSize;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::measure::Measures;
use super::status::{CaptureStatus, EngineStatus, Readiness};
use super::{Published, PublisherConfig};

impl Published {
    /// The longest published network that contains `address`: what a host's routing table would choose among them. Where
    /// a prefix list names a longer one of which nothing is known, that is the network around it.
    pub fn lookup(&self, address: IpAddr) -> Option<Arc<NetworkView>> {
        self.shared.state.read().networks.longest_match(address).cloned()
    }

    /// The networks of addresses, also of those with their own advice, under one hold of the lock: for a few.
    pub(crate) fn networks_of(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Option<Network>> {
        let state = self.shared.state.read();
        addresses.into_iter().map(|address| state.networks.network_of(address)).collect()
    }

    /// One network.
    pub fn network(&self, network: Network) -> Option<Arc<NetworkView>> {
        self.shared.state.read().networks.get(network).cloned()
    }

    /// The estimate of a network that is in force now.
    pub fn estimate(&self, network: Network) -> Option<Arc<Estimate>> {
        self.shared.state.read().estimate(network, self.now(), &self.shared.config)
    }

    /// Up to `limit` networks in order of prefix, from the first one after `after` on.
    pub fn page(&self, after: Option<Network>, limit: usize) -> Vec<Arc<NetworkView>> {
        self.shared.state.read().networks.page(after, limit)
    }

    /// How large the transfers of a service are, where that is known.
    pub fn service(&self, service: SocketAddr) -> Option<ServiceSize> {
        self.shared.state.read().services.get(service)
    }

    /// Up to `limit` services in order of address and port, from the first one after `after` on; of one host, where
    /// `host` names it.
    pub fn services(&self, host: Option<IpAddr>, after: Option<SocketAddr>, limit: usize) -> Vec<ServiceSize> {
        self.shared.state.read().services.page(host, after, limit)
    }

    /// Services whose size is known.
    pub fn service_count(&self) -> usize {
        self.shared.state.read().services.len()
    }

    /// Networks published.
    pub fn network_count(&self) -> usize {
        self.shared.state.read().networks.len()
    }

    /// Networks with an estimate, and remote addresses with their own.
    pub fn estimate_count(&self) -> usize {
        self.shared.state.read().networks.estimates()
    }

    /// Networks whose budgets are divided by demand.
    pub fn leased_networks(&self) -> usize {
        self.shared.state.read().leases.len()
    }

    /// Hosts that are subscribed, or were within the lifetime of advice.
    pub fn host_count(&self) -> usize {
        self.shared.state.read().leases.host_count()
    }

    /// Networks whose advice is held back because of what hosts reported.
    pub fn retreats(&self) -> usize {
        self.shared.state.read().networks.retreats()
    }

    /// Remote addresses whose own advice is held back.
    pub fn address_retreats(&self) -> usize {
        self.shared.state.read().networks.client_retreats()
    }

    /// Subscribers now.
    pub fn subscriber_count(&self) -> usize {
        self.shared.outbound.lock().subscribers.len()
    }

    /// The packet clock's time.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The settings in force.
    pub fn config(&self) -> &PublisherConfig {
        &self.shared.config
    }

    /// Counters and histograms.
    pub fn measures(&self) -> &Measures {
        &self.shared.measures
    }

    /// Which parts of the gateway work.
    pub fn readiness(&self) -> &Readiness {
        &self.shared.readiness
    }

    /// The engines' numbers, as of their last batches.
    pub fn engine(&self) -> EngineStatus {
        EngineStatus::total(&self.shared.engines.read())
    }

    /// Renews the numbers of all packet sources.
    pub fn set_captures(&self, captures: Vec<CaptureStatus>) {
        self.shared.insight.captures(self.now(), &captures);
        *self.shared.captures.write() = captures;
    }

    /// The numbers of all packet sources.
    pub fn captures(&self) -> Vec<CaptureStatus> {
        self.shared.captures.read().clone()
    }
}
