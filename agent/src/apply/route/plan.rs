//! What is to be changed so that our routes match the desired starts. Pure.

use std::collections::BTreeMap;

use spand_proto::network::Network;
use spand_proto::units::{Micros, Segments, Timestamp};
use strum::{Display, IntoStaticStr};

use super::monitor::Disturbance;
use super::netlink::Change;
use super::view::{Hop, View};
use crate::apply::{Desired, DesiredStarts};

/// Networks that are remembered as stepped back from; beyond, nothing new is applied.
pub(super) const MOST_STEPPED_BACK: usize = 65_536;

/// A route of ours.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) hop: Hop,
    pub(super) link: String,
    pub(super) window: Segments,
}

/// Everything that a plan depends on.
pub(super) struct Situation<'a> {
    pub(super) desired: &'a DesiredStarts,
    pub(super) view: &'a View,
    pub(super) in_force: &'a BTreeMap<Network, InForce>,
    pub(super) stepped_back: &'a StepBacks,
    pub(super) unsettled: &'a [(Timestamp, Disturbance)],
    pub(super) refused: &'a BTreeMap<Network, Timestamp>,
    pub(super) limit: usize,
    pub(super) now: Timestamp,
}

/// Networks whose route of ours somebody removed or changed. A manager of the network that is restarted removes the routes of everybody
/// once; who removes them again means it. So ours comes back after a time that doubles with each removal.
#[derive(Debug, Default)]
pub(super) struct StepBacks(BTreeMap<Network, StepBack>);

#[derive(Clone, Copy, Debug)]
struct StepBack {
    length: Micros,
    until: Timestamp,
}

impl StepBacks {
    /// The first time without our route, and the longest, after which another removal counts as the first.
    const FIRST: Micros = Micros::from_secs(4);
    const LONGEST: Micros = Micros::from_secs(3_600);

    /// Takes a removal at `now`; for how long ours stays away.
    pub(super) fn on_lost(&mut self, network: Network, now: Timestamp) -> Micros {
        let before = self.0.get(&network).map(|one| Micros(one.length.0.saturating_mul(2)).min(Self::LONGEST));
        let length = before.unwrap_or(Self::FIRST);
        if before.is_some() || !self.is_full() {
            self.0.insert(network, StepBack { length, until: now.after(length) });
        }
        length
    }

    /// Forgets removals that are long ago.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, one| one.until.after(Self::LONGEST) > now);
    }

    pub(super) fn is_away(&self, network: Network, now: Timestamp) -> bool {
        self.0.get(&network).is_some_and(|one| one.until > now)
    }

    fn is_full(&self) -> bool {
        self.0.len() >= MOST_STEPPED_BACK
    }
}

/// Changes, in the order in which they are made: removals first.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) removals: Vec<(&'static str, Vec<Network>)>,
    pub(super) steps: Vec<Step>,
    pub(super) obstacles: BTreeMap<Network, Obstacle>,
}

/// A route that is added or gets another window.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) network: Network,
    pub(super) window: Segments,
    pub(super) hop: Hop,
    pub(super) link: String,
    /// The window it has now, where it is in force.
    pub(super) before: Option<Segments>,
}

impl Step {
    pub(super) fn change(&self) -> Change {
        let route = self.hop.route(self.network, self.window);
        if self.before.is_some() { Change::Replace(route) } else { Change::Add(route) }
    }
}

impl Plan {
    pub(super) fn new(situation: &Situation<'_>) -> Self {
        let mut plan = Self::default();
        let mut unwished = Vec::new();
        let mut blocked = Vec::new();
        for network in situation.in_force.keys() {
            if !situation.desired.contains_key(network) {
                unwished.push(*network);
            }
        }
        let mut room = situation.limit;
        for (network, wanted) in by_urgency(situation) {
            let now = situation.in_force.get(&network);
            // Looked at in this order because a look at the routes costs most, and there may be many more desired starts than room.
            let hop = if room == 0 { Err(Obstacle::NoRoom) } else { situation.hop(network) };
            // Where its covering route changed, the copy goes now and comes back with the next look.
            let hop = hop.and_then(|hop| match now {
                Some(route) if route.hop != hop => Err(Obstacle::Settling),
                _ => Ok(hop),
            });
            match hop {
                Err(obstacle) => {
                    plan.obstacles.insert(network, obstacle);
                    blocked.extend(now.map(|_| network));
                }
                Ok(hop) => {
                    room -= 1;
                    if now.is_some_and(|route| route.window == wanted.window) {
                        continue;
                    }
                    let link = situation.view.link_name(hop.link);
                    let before = now.map(|route| route.window);
                    plan.steps.push(Step { network, window: wanted.window, hop, link, before });
                }
            }
        }
        plan.removals = vec![("no longer advised", unwished), ("its path changed or is taken", blocked)];
        plan
    }
}

impl Situation<'_> {
    fn hop(&self, network: Network) -> Result<Hop, Obstacle> {
        let forgetful = self.stepped_back.is_full() && !self.in_force.contains_key(&network);
        if forgetful || self.stepped_back.is_away(network, self.now) {
            return Err(Obstacle::SteppedBack);
        }
        if self.refused.contains_key(&network) {
            return Err(Obstacle::Kernel);
        }
        let hop = self.view.hop(network)?;
        if self.unsettled.iter().any(|(_, disturbance)| disturbance.touches(network, Some(hop.link))) {
            return Err(Obstacle::Settling);
        }
        // A route with our signature that is not in our hands: someone made it, so it is left alone.
        if self.view.signed(network).is_some() && !self.in_force.contains_key(&network) {
            return Err(Obstacle::Administrator);
        }
        Ok(hop)
    }
}

/// Newly announced starts first, then what is in force already, then the rest; the same input gives the same order.
fn by_urgency<'a>(situation: &Situation<'a>) -> Vec<(Network, &'a Desired)> {
    let mut order: Vec<(Network, &Desired)> =
        situation.desired.iter().map(|(network, wanted)| (*network, wanted)).collect();
    if order.len() > situation.limit {
        order.sort_by_key(|(network, wanted)| {
            (std::cmp::Reverse(wanted.announced), !situation.in_force.contains_key(network), *network)
        });
    }
    order
}

/// Routes of ours that the kernel no longer has as we left them.
pub(super) fn lost(in_force: &BTreeMap<Network, InForce>, view: &View) -> Vec<Network> {
    in_force
        .iter()
        .filter(|(network, route)| !view.signed(**network).is_some_and(|seen| route.hop.matches(seen, route.window)))
        .map(|(network, _)| *network)
        .collect()
}

// Why a network gets no route of ours: a closed list with stable names.

/// What prevents a route.
#[derive(Clone, Copy, Debug, Display, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "snake_case")]
pub enum Obstacle {
    /// Nothing leads to the network.
    NoRoute,
    /// The covering route has several next hops.
    Multipath,
    /// The covering route has no gateway: the network is on the link.
    OnLink,
    /// A route of someone else is for the same network, or the covering one has an initial window already.
    Administrator,
    /// Routes of someone else lie inside the network.
    MoreSpecific,
    /// Rules other than the kernel's own decide which table is looked up.
    PolicyRouting,
    /// The covering route has something that cannot be copied faithfully.
    NotCopyable,
    /// The covering route's link is down.
    LinkDown,
    /// Routes, rules or links changed a moment ago.
    Settling,
    /// Someone removed or changed our route a while ago.
    SteppedBack,
    /// As many routes as `limits.applied` allows are in force.
    NoRoom,
    /// The kernel refused it.
    Kernel,
    /// The ledger could not be written, and nothing is changed without it.
    Ledger,
    /// The supervising process is not running.
    Unguarded,
}

impl Obstacle {
    /// Its stable name in counters and output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// One sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoRoute => "no route of table main leads to the network",
            Self::Multipath => "the covering route has several next hops, and a copy of one would move traffic",
            Self::OnLink => "the network is on the link, without a gateway to copy",
            Self::Administrator => {
                "a route for this network that is not ours, or an initcwnd on the covering one, is already set: ours \
                 stays away"
            }
            Self::MoreSpecific => "routes of someone else lie inside the network",
            Self::PolicyRouting => {
                "policy rules of someone else choose the table, and a route could change their choice"
            }
            Self::NotCopyable => "the covering route has a property that a copy cannot keep",
            Self::LinkDown => "the covering route's link is down",
            Self::Settling => "routes, rules or links changed a moment ago: ours comes back when they stand still",
            Self::SteppedBack => {
                "someone removed or changed our route: it comes back after 4 s, and after twice the time with each removal"
            }
            Self::NoRoom => "limits.applied routes are in force already",
            Self::Kernel => "the kernel refused the route; see the log",
            Self::Ledger => "the ledger could not be written, and nothing is changed without it",
            Self::Unguarded => "the supervising process is not running, and routes must not outlive the agent",
        }
    }
}
