//! What is published and what was made of it, under one lock: networks with their retreats, parts of budgets, services.

use std::sync::Arc;

use spand_core::shard::Partition;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;
use spand_proto::units::{Segments, Timestamp};

use super::PublisherConfig;
use super::adoption::Withdrawn;
use super::change::{Change, not_published};
use super::leases::Leases;
use super::networks::{Networks, Put};
use super::retreat::client_network;
use super::services::Services;

/// The published state. Pure: takes the time, and returns what is to be sent.
#[derive(Debug)]
pub(super) struct State {
    pub(super) networks: Networks,
    pub(super) leases: Leases,
    pub(super) services: Services,
    pub(super) withdrawn: Withdrawn,
    /// What makes networks since the configuration was read again; `None` before that.
    pub(super) made_by: Option<Partition>,
}

/// Changes of networks that are to be sent.
#[derive(Debug, Default)]
pub(super) struct Advertised {
    pub(super) changes: Vec<Change>,
    /// Estimates that ended, and why.
    pub(super) withdrawn: Vec<(Network, WithdrawalReason)>,
    /// How many changes are estimates, and how many ends of one.
    pub(super) estimates: u64,
    pub(super) ends: u64,
}

impl State {
    pub(super) fn new(config: &PublisherConfig) -> Self {
        let leases =
            Leases::new(config.lifetime, config.leased_networks.get(), config.leases.get(), config.max_hosts());
        Self {
            networks: Networks::new(),
            leases,
            services: Services::default(),
            withdrawn: Withdrawn::default(),
            made_by: None,
        }
    }

    /// The estimate of a network that is in force.
    pub(super) fn estimate(&self, network: Network, now: Timestamp, config: &PublisherConfig) -> Option<Arc<Estimate>> {
        self.networks.estimate(network).filter(|estimate| estimate.age(now) <= config.max_age)
    }

    /// Takes down what became of networks, and has their budgets divided again.
    pub(super) fn advertise(
        &mut self,
        put: impl IntoIterator<Item = (Network, Put)>,
        reason: WithdrawalReason,
        now: Timestamp,
        advertised: &mut Advertised,
    ) {
        for (network, put) in put {
            let change = match put {
                Put::Silent => continue,
                Put::Advertise => Change::Estimate(network),
                Put::Withdraw => {
                    advertised.withdrawn.push((network, reason));
                    Change::Withdrawn(network)
                }
                Put::Rejoin => Change::Withdrawn(network),
            };
            if matches!(change, Change::Estimate(_)) {
                advertised.estimates += 1;
            } else {
                self.withdrawn.note(network, now);
                advertised.ends += 1;
            }
            advertised.changes.push(change);
            self.leases.moved(network, now);
        }
    }

    /// What a host may grant in a network with this estimate.
    pub(super) fn lease(&mut self, host_id: u64, estimate: &Estimate, now: Timestamp) -> Segments {
        let share = estimate.share_segments(estimate.mss);
        // The whole budget of a network is less than a share where another gateway's tap sees its connections.
        let share = self.networks.budget(estimate.network).map_or(share, |budget| budget.min(share));
        self.leases.lease(host_id, estimate.network, share, now)
    }

    /// Why a network has no estimate.
    pub(super) fn why_not(&self, network: Network) -> WithdrawalReason {
        if let Some(view) = self.networks.get(network) {
            return view.why_not.map_or(WithdrawalReason::Expired, not_published);
        }
        // The retreat of a remote address is over, so that it has no advice of its own any more.
        let address = network.prefix().addr();
        if network == client_network(address) && self.networks.network_of(address).is_some() {
            return WithdrawalReason::Expired;
        }
        let made = self.made_by.as_ref().is_none_or(|partition| partition.makes(network));
        if made { WithdrawalReason::Evicted } else { WithdrawalReason::Administrator }
    }
}
