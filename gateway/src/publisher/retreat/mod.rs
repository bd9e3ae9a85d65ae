//! Retreats: a network loses its advice after losses in first flights, or after transfers slower than the control group's (`docs/explain/decisions/retreat-and-budget.md`).
//!
//! Six advised first flights in a row that are lost for the most part make the network's share the host's default window, with
//! slow start ending there; six more within a minute keep it there for a minute. No more than three of six are of one address,
//! where another address had advised starts of late, and no more than three are of the applications of one host,
//! where any user may report what it likes. The share grows back by a segment with each advised transfer that filled its
//! window, at most one a round trip. Smaller losses are repaired in the next round trip, and plain TCP has them as well. Six in a
//! row of one address, among neighbours that lose less, are held against that address' advice alone ([`clients`]). Advised transfers
//! that take longer than those of the control group ([`slower`]) are answered by the same steps. Pure: takes the time.

mod clients;
mod shared;
pub(in crate::publisher) use self::shared::is_over;
mod slower;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use spand_core::mem::{allocated_for, boxed};
use spand_core::networks::view::NetworkView;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::start::DEFAULT_INITIAL_WINDOW;
use spand_proto::units::{Bytes, Micros, Segments, Timestamp, Window};
use strum::{IntoStaticStr, VariantArray};

pub(super) use self::clients::{Clients, Displaced, own_view};
pub(super) use self::slower::Comparisons;
pub(crate) use self::slower::Transfer;

/// Advised starts in a row that must have been lost.
const RUN: usize = 6;
/// Those of one address that count among them, where it is not the only one: no client takes the advice of its neighbours. And those of the
/// applications of one host: no user of it takes the advice of other hosts.
const OF_ONE: usize = RUN / 2;
/// A series is of no more than this, the span for which a path is taken as steady.
const SERIES_SPAN: Micros = Micros::from_secs(300);
/// A second retreat within this withdraws, for as long.
const TWICE: Micros = Micros::from_secs(60);
/// A second retreat for slower transfers within this withdraws: a comparison takes up to half an hour.
const SLOWER_TWICE: Micros = Micros::from_secs(3_600);
/// A retreat is dropped this long after its last loss: the samples that it contradicted have left the window.
const FORGET: Micros = Micros::from_secs(300);
/// Time that a retreat may take to reach hosts: a start before that was under the old advice.
const NEWS: Micros = Micros::from_secs(1);
/// A loss that is reported at once, without its transfer's beginning, is of a start at most this long ago: a timeout after it
/// and the time that the retreat takes to reach hosts.
const AT_ONCE: Micros = Micros::from_secs(3);
/// Time between two steps of growth where no round trip is known.
const USUAL_RTT: Micros = Micros::from_millis(100);
/// Losses remembered, so that the report at the transfer's end is not a second one.
const LOSSES: usize = 8;

/// What a host reported of one advised first flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstFlight {
    /// The host's end and the other.
    pub(crate) ends: [SocketAddr; 2],
    /// It was lost for the most part; of a host that does not count its losses, a segment of it was lost.
    pub(crate) lost: bool,
    /// When the transfer started, if measured.
    pub(crate) began: Option<Timestamp>,
    /// The window that was granted.
    pub(crate) advised: Segments,
    /// Payload that was acknowledged.
    pub(crate) acknowledged: Bytes,
    /// The host whose application reported it; `None` where a kernel did.
    pub(crate) application_of: Option<u64>,
}

/// What a report of a first flight led to.
#[derive(Clone, Copy, Debug, Eq, Hash, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Verdict {
    /// Most of it arrived.
    Clean,
    /// A loss among clean starts.
    Random,
    /// A loss beyond those of one address that count, in a network where others have advised starts.
    OneAddress,
    /// A loss beyond those of the applications of one host that count.
    OneHost,
    /// A loss that was known, or of a start before the advice was taken back.
    Known,
    /// The share was reduced to the default window, from which it grows back.
    Halved,
    /// The same, and for a minute it does not grow.
    Withdrawn,
    /// The share was reduced for one address.
    AddressHalved,
    /// The same, and for a minute it does not grow.
    AddressWithdrawn,
}

impl Verdict {
    /// Its stable name.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

/// What hosts reported of a network, or of one client in it, and how far its advice is held back.
#[derive(Debug, Default)]
pub(super) struct Retreat {
    /// The engine's own estimate.
    own: Option<Estimate>,
    /// The clients of the last advised starts, which all lost, each with [`FirstFlight::application_of`]: fewer than [`RUN`].
    row: Vec<(IpAddr, Option<u64>)>,
    newest: Timestamp,
    /// The two addresses with the most recent advised starts, and when.
    heard: Option<(IpAddr, Timestamp)>,
    heard_before: Option<(IpAddr, Timestamp)>,
    /// The connections of the last losses, at most [`LOSSES`], and when each was reported.
    losses: VecDeque<([SocketAddr; 2], Timestamp)>,
    held: Option<Held>,
    /// When the last advice that was held back was in force again.
    released: Timestamp,
    /// When advised transfers were last found to be slower.
    slower: Option<Timestamp>,
}

/// Advice that is held back.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    /// The share is not more than this.
    cap: Window,
    /// Time of the last retreat.
    halved: Timestamp,
    /// No growth until then.
    withdrawn: Option<Timestamp>,
    /// Time of the last growth.
    grown: Timestamp,
}

impl Retreat {
    /// Of one network.
    pub(super) const BYTES: usize = boxed::<Self>() + allocated_for::<([SocketAddr; 2], Timestamp)>(LOSSES);

    /// Takes the engine's state of the network (of a client, the published state of its network); returns the state to publish.
    pub(super) fn hold(&mut self, view: NetworkView) -> NetworkView {
        self.own.clone_from(&view.estimate);
        self.held_back(view)
    }

    /// The state to publish after a change of the retreat.
    pub(super) fn renew(&self, published: &NetworkView) -> NetworkView {
        self.held_back(NetworkView { estimate: self.own.clone(), ..published.clone() })
    }

    fn held_back(&self, view: NetworkView) -> NetworkView {
        let Some(Held { cap, withdrawn, .. }) = self.held else { return view };
        let held = view.estimate.as_ref().map(|own| {
            // Not without an estimate: hosts would start with the same window, and in open slow start.
            let cap = if withdrawn.is_some() { default_share(own) } else { cap };
            capped(own, cap)
        });
        NetworkView { estimate: held, ..view }
    }

    /// Whether advice is held back.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Since when hosts start on the engine's own advice, `None` while it is held back; and whether one client alone had such starts of late.
    pub(super) fn comparable(&self, now: Timestamp) -> Option<(Timestamp, bool)> {
        let is_alone = self.heard_before.is_none_or(|(_, at)| now.since(at) > SERIES_SPAN);
        self.held.is_none().then(|| (self.released.after(NEWS), is_alone))
    }

    /// Advised transfers are slower than those of the control group.
    pub(super) fn slower(&mut self, now: Timestamp) -> Verdict {
        let before = self.slower.replace(now);
        self.retreat(before.is_some_and(|before| now.since(before) <= SLOWER_TWICE), now)
    }

    /// Takes a report.
    pub(super) fn report(&mut self, flight: &FirstFlight, now: Timestamp) -> Verdict {
        if now.since(self.newest) > SERIES_SPAN {
            self.row.clear();
        }
        let client = client_of(flight.ends[1].ip());
        let is_alone = self.note_client(client, now);
        if flight.lost && self.is_known(flight, now) {
            return Verdict::Known;
        }
        // What any host sends arrives on paths that a start's window is too much for, and is lost without any advice.
        let default = |own: &Estimate| DEFAULT_INITIAL_WINDOW.bytes(own.mss);
        let is_small = flight.advised <= DEFAULT_INITIAL_WINDOW;
        if !flight.lost && (is_small || self.own.as_ref().is_some_and(|own| flight.acknowledged <= default(own))) {
            self.grow(flight, now);
            return Verdict::Clean;
        }
        if is_small {
            return Verdict::Random;
        }
        if !flight.lost {
            // What an application reports takes back what those of its host reported, and no loss that others saw.
            self.row.retain(|(_, of)| flight.application_of.is_some() && *of != flight.application_of);
            self.newest = now;
            self.grow(flight, now);
            return Verdict::Clean;
        }
        if self.losses.len() >= LOSSES {
            self.losses.pop_front();
        }
        self.losses.push_back((flight.ends, now));
        if !is_alone && !self.has_place_for(client) {
            return Verdict::OneAddress;
        }
        let is_of_same = |(_, of): &&(IpAddr, Option<u64>)| of.is_some() && *of == flight.application_of;
        if self.row.iter().filter(is_of_same).count() >= OF_ONE {
            return Verdict::OneHost;
        }
        self.newest = now;
        self.row.push((client, flight.application_of));
        if self.row.len() < RUN {
            return Verdict::Random;
        }
        self.retreat(self.held.is_some_and(|held| now.since(held.halved) <= TWICE), now)
    }

    /// Whether one more loss of this address counts where it is not the only one. Others may have been alone before.
    fn has_place_for(&mut self, client: IpAddr) -> bool {
        let places = |row: &[(IpAddr, _)], of| row.iter().filter(|(other, _)| *other == of).count() < OF_ONE;
        let before = std::mem::take(&mut self.row);
        for of in before {
            if places(&self.row, of.0) {
                self.row.push(of);
            }
        }
        places(&self.row, client)
    }

    /// Notes whose start it was; whether no other address had one of late.
    fn note_client(&mut self, client: IpAddr, now: Timestamp) -> bool {
        if self.heard.is_some_and(|(last, _)| last != client) {
            self.heard_before = self.heard;
        }
        self.heard = Some((client, now));
        self.heard_before.is_none_or(|(_, at)| now.since(at) > SERIES_SPAN)
    }

    /// Lets what is over be over; whether the published state changes by it.
    pub(super) fn pass(&mut self, now: Timestamp) -> bool {
        let Some(held) = &mut self.held else { return false };
        if held.halved.after(FORGET) <= now {
            (self.held, self.released) = (None, now);
            return true;
        }
        let returns = held.withdrawn.is_some_and(|until| until <= now);
        if returns {
            held.withdrawn = None;
            // As many again within a minute are a second one.
            held.halved = now;
        }
        returns
    }

    /// When [`Retreat::pass`] has something to do.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let held = self.held?;
        Some(held.withdrawn.unwrap_or_else(|| held.halved.after(FORGET)))
    }

    /// Whether the loss was reported before, or is of a start from before the retreat reached the host.
    fn is_known(&self, flight: &FirstFlight, now: Timestamp) -> bool {
        let reported = |(ends, at): &([SocketAddr; 2], Timestamp)| {
            *ends == flight.ends && flight.began.is_some_and(|began| began <= *at)
        };
        let Some(held) = self.held else { return self.losses.iter().any(reported) };
        let more_than_now = |own: &Estimate| flight.advised > held.cap.segments(own.mss);
        let before = match flight.began {
            Some(began) => began <= held.halved.after(NEWS),
            None => now <= held.halved.after(AT_ONCE) || self.own.as_ref().is_none_or(more_than_now),
        };
        before || held.withdrawn.is_some() || self.losses.iter().any(reported)
    }

    fn retreat(&mut self, twice: bool, now: Timestamp) -> Verdict {
        // The losses under the old advice are accounted for; the next retreat is about the current advice.
        self.row.clear();
        let Some(own) = &self.own else { return Verdict::Known };
        let cap = default_share(own);
        let withdrawn = twice.then(|| now.after(TWICE));
        self.held = Some(Held { cap, halved: now, withdrawn, grown: now });
        if twice { Verdict::Withdrawn } else { Verdict::Halved }
    }

    /// Grows by one segment if the transfer filled its window and a round trip has passed since the last growth.
    fn grow(&mut self, flight: &FirstFlight, now: Timestamp) {
        let (Some(held), Some(own)) = (&mut self.held, &self.own) else { return };
        let rtt = own.rtt_mean.unwrap_or(USUAL_RTT);
        let filled = flight.acknowledged >= flight.advised.bytes(own.mss);
        if held.withdrawn.is_some() || !filled || now.since(held.grown) < rtt {
            return;
        }
        held.grown = now;
        held.cap = Window::from_bytes(held.cap.bytes() + own.mss.0 as f64).unwrap_or(held.cap);
        if held.cap >= own.share {
            (self.held, self.released) = (None, now);
        }
    }
}

/// The estimate with a share of at most `cap`. Lost first flights are evidence of loss even where the tap did not see them: slow start
/// ends at that share. With one lossy connection the window stays at the host's default or above. The opening, which senders under
/// way showed, is removed: it may exceed the reduced share. So is what the empty path holds: no start is raised above the share.
fn capped(own: &Estimate, cap: Window) -> Estimate {
    Estimate {
        share: if cap < own.share { cap } else { own.share },
        is_lower_bound: false,
        loss_connections: 1,
        loss_window: None,
        losses: own.losses.max(1),
        opening: None,
        bdp: None,
        mark: None,
        ..*own
    }
}

/// The window of a host that has no advice.
fn default_share(own: &Estimate) -> Window {
    Window::from_segments(DEFAULT_INITIAL_WINDOW, own.mss)
}

/// The prefix of a client.
pub(super) fn client_network(address: IpAddr) -> Network {
    let client = client_of(address);
    Network::new(IpNet::new_assert(client, if client.is_ipv4() { 32 } else { 64 }))
}

/// What counts as one client: an IPv4 address, an IPv6 /64.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        ipv4 @ IpAddr::V4(_) => ipv4,
    }
}

#[cfg(test)]
mod tests;
