//! The gateways of a cluster: the notices that this publisher sends them, and those that it accepts.
//!
//! Notices leave through a bounded channel on which no thread waits. Those without room are counted and dropped; each kind documents the
//! cost.

mod seats;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::OnceLock;

use parking_lot::RwLock;
use spand_cells::{Addressed, GatewayId, HeldBack, Notice, StartSeen, TapId};
use spand_core::event::{Established, StartImminent};
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;
use spand_proto::units::Timestamp;
use tokio::sync::mpsc::Sender;

use super::Published;
use super::adoption::{self, Membership};
use super::insight::Kind;
use super::leases::{Lease, Leases, TooManyHosts};
use super::networks::Networks;
use super::state::Advertised;
use crate::buckets::Buckets;

pub(super) use self::seats::Division;
use self::seats::Seats;

/// What a gateway lends, as the other one hears of it.
pub(super) fn lease_notice(network: Network, Lease { segments, as_of }: Lease) -> Notice {
    Notice::Lease { network, segments, as_of }
}

/// Bytes of what is known of other gateways and of what their hosts are sent first, with as many networks whose budgets are divided and
/// as many hosts.
pub(crate) const fn bytes_of_others(leased_networks: usize, subscribers: usize) -> usize {
    let known = Seats::most_bytes() + Networks::bytes_held_elsewhere() + Leases::bytes_borrowed(leased_networks);
    known.saturating_add(adoption::most_bytes(subscribers))
}

/// Starts that another gateway hands over for one host, a second and at once. A host that opens more connections has its advice all the
/// same; a gateway that makes starts up takes no more of the host's time than this.
const STARTS_PER_S: f64 = 500.0;
const STARTS_AT_ONCE: NonZeroU32 = NonZeroU32::new(1_024).unwrap();

/// How many starts another gateway may still hand over for a host.
#[derive(Debug)]
struct Handed(Buckets<(GatewayId, IpAddr)>);

impl Default for Handed {
    fn default() -> Self {
        Self(Buckets::new(STARTS_PER_S, STARTS_AT_ONCE))
    }
}

/// What the publisher has of other gateways.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    handed: Handed,
    /// What they have to know leaves by this.
    notices: OnceLock<Sender<Addressed>>,
    seats: RwLock<Seats>,
    pub(super) membership: OnceLock<Membership>,
}

impl Published {
    /// Has notices for other gateways leave by this channel. Once.
    pub(crate) fn share_by(&self, notices: Sender<Addressed>) {
        drop(self.shared.cluster.notices.set(notices));
    }

    /// Takes which other gateways there are, and whose packets they see.
    pub(crate) fn set_members(&self, own: (GatewayId, TapId), members: BTreeMap<GatewayId, TapId>) {
        let now = self.now();
        let mut state = self.shared.state.write();
        for gateway in state.leases.gateways() {
            if !members.contains_key(&gateway) {
                state.leases.gateway_left(gateway, now);
            }
        }
        let mut seats = self.shared.cluster.seats.write();
        seats.set_members(own, members, now);
        if state.networks.set_division(seats.division()) {
            // What others may have is no longer this gateway's, or is again.
            state.leases.all_moved(now);
        }
    }

    /// Whether there may be others.
    fn is_shared(&self) -> bool {
        self.shared.cluster.notices.get().is_some()
    }

    /// Has other gateways know, or one, where there are any. Whether it is on its way.
    pub(super) fn notify(&self, to: Option<GatewayId>, notice: Notice) -> bool {
        let Some(notices) = self.shared.cluster.notices.get() else { return false };
        let is_sent = notices.try_send(Addressed { to, notice }).is_ok();
        self.measures().notices_dropped.inc_by((!is_sent).into());
        is_sent
    }

    /// The networks whose advice this gateway holds back, for gateways that may not have heard of it.
    pub(crate) fn held_back(&self) -> Vec<HeldBack> {
        self.shared.state.read().networks.all_held_back()
    }

    /// The addresses of the hosts that are subscribed here.
    pub(crate) fn seated(&self) -> Vec<IpAddr> {
        self.shared.outbound.lock().subscribers.addresses()
    }

    /// Addresses of hosts that are subscribed at other gateways.
    pub(crate) fn seats_elsewhere(&self) -> usize {
        self.shared.cluster.seats.read().len()
    }

    /// The same, by gateway.
    pub(crate) fn seats_by_gateway(&self) -> BTreeMap<GatewayId, usize> {
        self.shared.cluster.seats.read().by_gateway()
    }

    /// Hosts came or went.
    pub(super) fn notify_seats(&self, hosts: &[IpAddr], here: bool) {
        if self.is_shared() {
            for host in hosts {
                self.notify(None, Notice::Seat { host: *host, here });
            }
        }
    }

    /// Hands a start to the gateway that its host is subscribed at, if that is another one and does not see it. Whether it was.
    pub(super) fn hand_on(&self, start: &StartImminent) -> bool {
        let Some(to) = self.seat_of(start.host) else { return false };
        let StartImminent { host, network, trigger, at, .. } = *start;
        let (now, mut state) = (self.now(), self.shared.state.write());
        if !state.networks.has_estimate(network) {
            return false;
        }
        let budget = state.networks.budget(network);
        let lease = budget.and_then(|budget| state.leases.start_elsewhere(to, network, budget, now));
        drop(state);
        // So that the other has its part before the start.
        if let Some(lease) = lease {
            self.notify(Some(to), lease_notice(network, lease));
        }
        let is_sent = self.notify(Some(to), Notice::Start(StartSeen { host, network, trigger, at }));
        self.measures().starts_handed_on.inc_by(is_sent.into());
        is_sent
    }

    /// The same of a connection that is established.
    pub(super) fn hand_on_established(&self, connection: &Established) {
        let Established { host, network } = *connection;
        if let Some(to) = self.seat_of(host) {
            self.shared.state.write().leases.confirm_elsewhere(to, network, self.now());
            self.notify(Some(to), Notice::Established { host, network });
        }
    }

    fn seat_of(&self, host: IpAddr) -> Option<GatewayId> {
        if !self.is_shared() {
            return None;
        }
        self.shared.cluster.seats.read().hand_to(host, self.now())
    }

    /// Takes notices of another gateway. What it holds back counts also when it is gone; all else only of one that is known: an exchange
    /// may return a gateway's own notices.
    pub(crate) fn take_notices(&self, from: GatewayId, sent: Timestamp, notices: &[Notice]) {
        let is_member = self.shared.cluster.seats.read().is_member(from);
        for notice in notices {
            match *notice {
                Notice::HeldBack(held) => self.take_held_back(from, &held),
                _ if !is_member => {}
                Notice::Seat { host, here } => {
                    if here {
                        self.take_seat(from, host);
                    } else {
                        self.shared.cluster.seats.write().leave(from, host);
                    }
                }
                Notice::Start(StartSeen { host, network, trigger, at }) => {
                    // Its client is known only where it was seen.
                    let remote = network.prefix().network();
                    let at = at.min(self.now());
                    self.measures().starts_of_others.inc();
                    if !self.shared.cluster.handed.0.take_of((from, host)) {
                        self.measures().starts_of_others_refused.inc();
                        tracing::warn!(
                            gateway = from.0,
                            %host,
                            "the gateway hands over more than {STARTS_PER_S} starts a second for this host; starts are dropped"
                        );
                        continue;
                    }
                    self.push_start_here(StartImminent { host, remote, network, trigger, at });
                }
                Notice::Lease { network, segments, as_of } => {
                    let (now, mut state) = (self.now(), self.shared.state.write());
                    // No gateway has more to lend than there is.
                    let whole = state.networks.whole_budget(network).unwrap_or_default();
                    let lease = Lease { segments: segments.min(whole.0), as_of };
                    let settled = state.leases.take_lease(from, (network, lease), sent, now);
                    drop(state);
                    for (gateway, as_of) in settled {
                        self.notify(Some(gateway), Notice::Settled { network, as_of });
                    }
                }
                Notice::Settled { network, as_of } => {
                    self.shared.state.write().leases.settle(from, network, as_of, self.now());
                }
                Notice::Established { host, network } => {
                    self.established_here(&Established { host, network });
                }
            }
        }
    }

    /// A host is subscribed at another gateway, which has a part of budgets from now on.
    fn take_seat(&self, from: GatewayId, host: IpAddr) {
        let now = self.now();
        if !self.shared.cluster.seats.write().take(from, host, now) {
            self.measures().seats_no_room.inc();
        }
        if self.shared.state.read().leases.has_gateway(from) {
            return;
        }
        let outbound = self.shared.outbound.lock();
        let came = self.shared.state.write().leases.gateway_came(from, now);
        match came {
            Ok(only_one) => only_one.into_iter().for_each(|host_id| outbound.subscribers.request_snapshot(host_id)),
            // As one more host is refused; it is tried again with its next host.
            Err(TooManyHosts(_)) => drop(self.measures().seats_no_room.inc()),
        }
    }

    /// Holds advice back that another gateway holds back.
    fn take_held_back(&self, GatewayId(gateway): GatewayId, held: &HeldBack) {
        let now = self.now();
        let mut state = self.shared.state.write();
        let Some(changes) = state.networks.hold_back(held, now, &self.shared.config) else { return };
        let mut advertised = Advertised::default();
        state.advertise(changes, WithdrawalReason::Retreat, now, &mut advertised);
        drop(state);
        self.measures().retreats_of_others.inc();
        let what = if held.withdrawn.is_some() { "withdrawn_elsewhere" } else { "halved_elsewhere" };
        self.shared.insight.note(now, Kind::Retreat, what, held.network.to_string());
        tracing::debug!(gateway, network = %held.network, what, "advice is held back as at another gateway");
        self.send_out(advertised);
    }
}
