//! Which gateway each host is subscribed at, of the other gateways: its seat.
//!
//! A gateway names the addresses of its hosts as they come and go, and all of them again every
//! [`SEATS_AGAIN`](spand_cells::SEATS_AGAIN). One that was not named for [`HEARD`] has no seat.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use spand_cells::{GatewayId, TapId};
use spand_core::mem::hashed;
use spand_proto::units::{Micros, Timestamp};

/// Two of those may be lost.
const HEARD: Micros = Micros::from_secs(65);
/// Addresses of other gateways' hosts. At the limit starts of a further one are not handed on, counted.
const ADDRESSES: usize = 65_536;

/// A gateway that is silent may be cut off, and its hosts go on: it counts until what it saw has left the window.
const DIVIDING: Micros = Micros::from_secs(300);

/// Among how many gateways a budget is divided, this one among them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::publisher) struct Division {
    /// Those that see the packets of this one's tap, and so the same connections.
    pub(in crate::publisher) of_tap: u32,
    /// All.
    pub(in crate::publisher) all: u32,
}

/// Seats at other gateways, and which gateways there are.
#[derive(Debug, Default)]
pub(super) struct Seats {
    own: Option<(GatewayId, TapId)>,
    /// Those that were heard lately, and whose packets they see.
    members: BTreeMap<GatewayId, TapId>,
    /// Those that count where budgets are divided, and when they were heard last.
    dividing: BTreeMap<GatewayId, (TapId, Timestamp)>,
    by_address: HashMap<IpAddr, Seat>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    gateway: GatewayId,
    heard: Timestamp,
}

impl Seats {
    pub(super) fn set_members(&mut self, own: (GatewayId, TapId), members: BTreeMap<GatewayId, TapId>, now: Timestamp) {
        self.own = Some(own);
        self.dividing.retain(|_, (_, heard)| now.since(*heard) <= DIVIDING);
        self.dividing.extend(members.iter().map(|(gateway, tap)| (*gateway, (*tap, now))));
        self.members = members;
    }

    pub(super) fn is_member(&self, gateway: GatewayId) -> bool {
        self.members.contains_key(&gateway)
    }

    /// Among how many gateways budgets are divided; `None` where this one is alone.
    pub(super) fn division(&self) -> Option<Division> {
        let (_, own) = self.own.filter(|_| !self.dividing.is_empty())?;
        let count = |gateways: usize| u32::try_from(gateways).unwrap_or(u32::MAX).saturating_add(1);
        let of_tap = self.dividing.values().filter(|(tap, _)| *tap == own).count();
        Some(Division { of_tap: count(of_tap), all: count(self.dividing.len()) })
    }

    /// Bytes of all seats.
    pub(super) const fn most_bytes() -> usize {
        hashed::<(IpAddr, Seat)>(ADDRESSES)
    }

    /// A gateway named a host of its own. `false`: there is no room for its address.
    pub(super) fn take(&mut self, gateway: GatewayId, host: IpAddr, now: Timestamp) -> bool {
        let host = host.to_canonical();
        if self.by_address.len() >= ADDRESSES && !self.by_address.contains_key(&host) {
            self.forget_silent(now);
            if self.by_address.len() >= ADDRESSES {
                return false;
            }
        }
        self.by_address.insert(host, Seat { gateway, heard: now });
        true
    }

    /// A host left a gateway. It may be at another one by now.
    pub(super) fn leave(&mut self, gateway: GatewayId, host: IpAddr) {
        let host = host.to_canonical();
        if self.by_address.get(&host).is_some_and(|seat| seat.gateway == gateway) {
            self.by_address.remove(&host);
        }
    }

    /// The gateway that is to be handed what this one sees of a host: its seat, where that does not see it by itself. Of several gateways
    /// with one tap the one with the lowest number hands it on.
    pub(super) fn hand_to(&self, host: IpAddr, now: Timestamp) -> Option<GatewayId> {
        let seat = self.by_address.get(&host.to_canonical()).filter(|seat| now.since(seat.heard) <= HEARD)?;
        let (own, own_tap) = self.own?;
        let sees_it = *self.members.get(&seat.gateway)? == own_tap;
        let is_another_s = self.members.range(..own).any(|(_, tap)| *tap == own_tap);
        (!sees_it && !is_another_s).then_some(seat.gateway)
    }

    pub(super) fn forget_silent(&mut self, now: Timestamp) {
        self.by_address.retain(|_, seat| now.since(seat.heard) <= HEARD);
    }

    /// Addresses with a seat at each other gateway that has some.
    pub(super) fn by_gateway(&self) -> BTreeMap<GatewayId, usize> {
        let mut counts = BTreeMap::new();
        self.by_address.values().for_each(|seat| *counts.entry(seat.gateway).or_default() += 1);
        counts
    }

    /// Addresses with a seat elsewhere.
    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn at(seconds: u64) -> Timestamp {
        Timestamp::default().after(Micros::from_secs(seconds))
    }

    /// Gateways 1 to 4, of which 2 and 3 have one tap.
    fn of(own: u16) -> Seats {
        let tap = |gateway: u16| match gateway {
            2 | 3 => TapId::of_group(1),
            alone => TapId::of_gateway(GatewayId(alone)),
        };
        let others = (1..=4).filter(|gateway| *gateway != own);
        let mut seats = Seats::default();
        seats.set_members(
            (GatewayId(own), tap(own)),
            others.map(|gateway| (GatewayId(gateway), tap(gateway))).collect(),
            at(0),
        );
        seats
    }

    #[test]
    fn what_is_seen_of_a_host_goes_to_its_seat_once() {
        let handed = |seat: u16| -> Vec<(u16, Option<u16>)> {
            let hand = |own: u16| {
                let mut seats = of(own);
                assert!(seats.take(GatewayId(seat), HOST, at(0)));
                (own, seats.hand_to(HOST, at(1)).map(|GatewayId(to)| to))
            };
            (1..=4).filter(|own| *own != seat).map(hand).collect()
        };
        assert_eq!(handed(1), [(2, Some(1)), (3, None), (4, Some(1))], "2 and 3 saw the same packet");
        assert_eq!(handed(2), [(1, Some(2)), (3, None), (4, Some(2))], "2 saw what 3 sees");
    }

    #[test]
    fn a_seat_is_the_last_one_named_until_its_gateway_is_silent_or_gone() {
        let mut seats = of(1);
        assert_eq!(seats.hand_to(HOST, at(0)), None);
        seats.take(GatewayId(2), "::ffff:10.0.0.1".parse().unwrap(), at(0));
        seats.take(GatewayId(4), HOST, at(1));
        seats.leave(GatewayId(2), HOST);
        assert_eq!(seats.hand_to(HOST, at(66)), Some(GatewayId(4)));
        assert_eq!(seats.hand_to(HOST, at(67)), None);
        seats.set_members((GatewayId(1), TapId(1)), BTreeMap::new(), at(2));
        assert_eq!(seats.hand_to(HOST, at(2)), None, "there is nobody to take it");
        seats.leave(GatewayId(4), HOST);
        assert_eq!(seats.len(), 0);
    }

    #[test]
    fn a_gateway_counts_where_budgets_are_divided_until_what_it_saw_has_left_the_window() {
        let division = |of_tap, all| Some(Division { of_tap, all });
        assert_eq!(
            (Seats::default().division(), of(1).division(), of(2).division()),
            (None, division(1, 4), division(2, 4))
        );
        let mut seats = of(2);
        let own = (GatewayId(2), TapId::of_group(1));
        seats.set_members(own, BTreeMap::from([(GatewayId(4), TapId(4))]), at(300));
        assert_eq!(seats.division(), division(2, 4));
        seats.set_members(own, BTreeMap::new(), at(301));
        assert_eq!(seats.division(), division(1, 2));
        seats.set_members(own, BTreeMap::new(), at(601));
        assert_eq!(seats.division(), None);
    }

    #[test]
    fn addresses_are_bounded_and_the_silent_ones_make_room() {
        let mut seats = of(1);
        let address = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        assert!((0..ADDRESSES).all(|n| seats.take(GatewayId(2), address(n), at(0))));
        assert!(!seats.take(GatewayId(2), address(ADDRESSES), at(1)) && seats.take(GatewayId(4), address(0), at(1)));
        assert!(seats.take(GatewayId(2), address(ADDRESSES), at(66)));
        assert_eq!(seats.len(), 2);
    }
}
