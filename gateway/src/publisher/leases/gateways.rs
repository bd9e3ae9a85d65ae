//! Other gateways as holders of leases, and what they lend.
//!
//! A gateway has the budget of the connections at its own tap. If it sees starts of hosts that are subscribed at another gateway, it lends
//! that gateway a part by their demand, as it leases a part to a host. The other gateway divides the part among its own hosts. So
//! budgets add up over the gateways: a lost or late message leaves a part unused, and nothing is used twice.
//!
//! A loan holds for [`LENT`] from its sending and is sent again every [`LENT_AGAIN`]. It counts as in use until the other gateway holds
//! at most a smaller lease, or until [`LENT_ENDS`] has passed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use spand_cells::GatewayId;
use spand_core::mem::treed;
use spand_proto::network::Network;
use spand_proto::push::ADVICE_LIFETIME;
use spand_proto::units::{Micros, Timestamp};

use super::hosts::Hosts;
use super::{NEWS, TooManyHosts};

/// How long a lease of a gateway holds from when it was sent.
const LENT: Micros = Micros::from_secs(30);
/// How often it is sent.
pub(super) const LENT_AGAIN: Micros = Micros::from_secs(5);
/// Clocks of gateways differ by less than a bucket, and a message is on its way for less than one.
const CLOCKS: Micros = Micros::from_secs(20);
/// After this nobody uses it any more: hosts of the other gateway that are gone by then use their parts for the lifetime of advice.
pub(super) const LENT_ENDS: Micros = Micros(LENT.0 + ADVICE_LIFETIME.0 + NEWS.0 + CLOCKS.0);

/// What a gateway may divide among its hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::publisher) struct Lease {
    pub(in crate::publisher) segments: u32,
    /// When it became less last, by the clock of the gateway that lends.
    pub(in crate::publisher) as_of: Timestamp,
}

/// The other gateways among the hosts.
#[derive(Debug, Default)]
pub(super) struct Gateways {
    by_gateway: BTreeMap<GatewayId, u64>,
    by_number: BTreeMap<u64, GatewayId>,
}

impl Gateways {
    /// A gateway has hosts. Returns a host that needs a new snapshot: it was the only one.
    pub(super) fn came(
        &mut self,
        gateway: GatewayId,
        hosts: &mut Hosts,
        now: Timestamp,
    ) -> Result<Option<u64>, TooManyHosts> {
        if self.by_gateway.contains_key(&gateway) {
            return Ok(None);
        }
        let joined = hosts.join(&[address(gateway); 2], LENT_ENDS, now)?;
        self.by_gateway.insert(gateway, joined.host);
        self.by_number.insert(joined.host, gateway);
        Ok(joined.request_snapshot)
    }

    /// It is gone, or has no hosts any more: what was lent ends by itself.
    pub(super) fn left(&mut self, gateway: GatewayId, hosts: &mut Hosts, now: Timestamp) {
        if let Some(id) = self.by_gateway.remove(&gateway) {
            hosts.leave(id, now);
        }
        // Its number is asked for until its leases have ended.
        self.by_number.retain(|id, _| hosts.standing(*id).is_some());
    }

    pub(super) fn id(&self, gateway: GatewayId) -> Option<u64> {
        self.by_gateway.get(&gateway).copied()
    }

    pub(super) fn gateway(&self, id: u64) -> Option<GatewayId> {
        self.by_number.get(&id).copied()
    }

    pub(super) fn is_one(&self, id: u64) -> bool {
        self.by_number.contains_key(&id)
    }

    pub(super) fn is_here(&self, id: u64) -> bool {
        self.gateway(id).is_some_and(|gateway| self.by_gateway.contains_key(&gateway))
    }

    pub(super) fn all(&self) -> Vec<GatewayId> {
        self.by_gateway.keys().copied().collect()
    }
}

/// What stands for a gateway among the hosts' addresses. No host has one address twice.
fn address(GatewayId(gateway): GatewayId) -> IpAddr {
    Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, gateway).into()
}

/// What other gateways lend of their budgets.
#[derive(Debug)]
pub(super) struct Borrowed {
    /// Networks. At the limit nothing is borrowed in a further one.
    limit: usize,
    by_network: BTreeMap<Network, BTreeMap<GatewayId, Loan>>,
}

#[derive(Clone, Copy, Debug)]
struct Loan {
    lease: Lease,
    until: Timestamp,
    /// The gateway that lends knows that no more is held.
    is_settled: bool,
}

impl Borrowed {
    /// Bytes of what is lent of N networks, by as many gateways as a node of a tree has room for.
    pub(super) const fn bytes(networks: usize) -> usize {
        treed::<Network, BTreeMap<GatewayId, Loan>>(networks) + networks.saturating_mul(treed::<GatewayId, Loan>(1))
    }

    pub(super) fn new(limit: usize) -> Self {
        Self { limit, by_network: BTreeMap::new() }
    }

    /// A gateway lends this, since then by its clock.
    pub(super) fn take(
        &mut self,
        from: GatewayId,
        (network, lease): (Network, Lease),
        sent: Timestamp,
        now: Timestamp,
    ) {
        if self.by_network.len() >= self.limit && !self.by_network.contains_key(&network) {
            self.by_network.retain(|_, loans| loans.values().any(|loan| loan.until > now));
            if self.by_network.len() >= self.limit {
                return;
            }
        }
        let until = sent.min(now).after(LENT);
        let loans = self.by_network.entry(network).or_default();
        let is_known = loans.get(&from).is_some_and(|known| known.lease.as_of == lease.as_of && known.is_settled);
        loans.insert(from, Loan { lease, until, is_settled: is_known });
    }

    /// What is lent of a network.
    pub(super) fn total(&self, network: Network, now: Timestamp) -> u32 {
        let loans = self.by_network.get(&network).into_iter().flat_map(BTreeMap::values);
        loans.filter(|loan| loan.until > now).map(|loan| loan.lease.segments).fold(0, u32::saturating_add)
    }

    /// When the first of it ends.
    pub(super) fn ends(&self, network: Network, now: Timestamp) -> Option<Timestamp> {
        let loans = self.by_network.get(&network)?.values();
        loans.map(|loan| loan.until).filter(|until| *until > now).min()
    }

    /// Whether a gateway is to hear that no more is held than what it lends.
    pub(super) fn is_unsettled(&self, network: Network) -> bool {
        self.by_network.get(&network).is_some_and(|loans| loans.values().any(|loan| !loan.is_settled))
    }

    /// No more is held than what is lent. Returns whom to tell, and since when it is so. Forgets what has ended.
    pub(super) fn settle(&mut self, network: Network, now: Timestamp) -> Vec<(GatewayId, Timestamp)> {
        let Some(loans) = self.by_network.get_mut(&network) else { return Vec::new() };
        let mut settled = Vec::new();
        for (gateway, loan) in loans.iter_mut().filter(|(_, loan)| !loan.is_settled) {
            loan.is_settled = true;
            settled.push((*gateway, loan.lease.as_of));
        }
        loans.retain(|_, loan| loan.until > now);
        if loans.is_empty() {
            self.by_network.remove(&network);
        }
        settled
    }
}
