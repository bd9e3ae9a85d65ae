//! One network's budget and the hosts that have a part of it.

use std::collections::BTreeMap;

use spand_core::mem::treed;
use spand_proto::units::{Micros, Timestamp};

use super::gateways::{LENT_AGAIN, LENT_ENDS};
use super::{Lease, NEWS};

/// Time in which a host's demand halves.
const HALVES: Micros = Micros::from_secs(60);
/// Demand below this is none: one start, four and a half minutes ago.
const LEAST: f64 = 0.045;
/// Leases change by at least this fraction of themselves, so that not every segment is a message.
const MOVE: u32 = 10;

/// Longer than any lease.
const NEVER: Timestamp = Timestamp(u64::MAX);

/// What a host may get.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// A part by its demand.
    Free,
    /// Nothing yet: another one may still hold everything.
    Waits,
    /// It is back, and was gone since then: what was on its way is sent again with its snapshot.
    Back(Timestamp),
    /// It is not connected since then: what it has ends by itself.
    Gone(Timestamp),
}

/// What there is to divide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    /// By the own tap: for hosts and gateways.
    pub(super) own: u32,
    /// Lent by other gateways: for hosts.
    pub(super) borrowed: u32,
}

impl Budget {
    pub(super) fn all(self) -> u32 {
        self.own.saturating_add(self.borrowed)
    }

    fn least(self, other: Self) -> Self {
        Self { own: self.own.min(other.own), borrowed: self.borrowed.min(other.borrowed) }
    }

    fn without(self, gone: u32) -> Self {
        let own = self.own.saturating_sub(gone);
        Self { own, borrowed: self.borrowed.saturating_sub(gone - (self.own - own)) }
    }
}

/// A network's budget.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    budget: Budget,
    shares: BTreeMap<u64, Share>,
    /// When it is divided next.
    pub(super) due: Timestamp,
}

/// One host's part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Share {
    /// Starts seen, as of a moment: spoofed SYNs are among them.
    demand: f64,
    as_of: Timestamp,
    /// Connections established, as of a moment.
    confirmed: f64,
    confirmed_as_of: Timestamp,
    lease: u32,
    /// Until then it may not know that its lease is no longer this.
    was: Option<(u32, Timestamp)>,
    /// Of a gateway: when its lease became less last, and when it was sent.
    cut_at: Timestamp,
    sent: Timestamp,
}

/// What is left of demand.
fn halved(demand: f64, as_of: Timestamp, now: Timestamp) -> f64 {
    demand * 0.5f64.powf(now.since(as_of).0 as f64 / HALVES.0 as f64)
}

impl Share {
    fn demand(&self, now: Timestamp) -> f64 {
        halved(self.demand, self.as_of, now)
    }

    fn confirmed(&self, now: Timestamp) -> f64 {
        halved(self.confirmed, self.confirmed_as_of, now)
    }

    fn held(&self, now: Timestamp) -> u32 {
        self.was.filter(|(_, until)| *until > now).map_or(self.lease, |(was, _)| was.max(self.lease))
    }

    /// A smaller lease that was on its way when the stream ended has not arrived.
    fn lost(&mut self, standing: Standing, arrives: Micros, now: Timestamp) {
        let Some((_, until)) = &mut self.was else { return };
        match standing {
            Standing::Gone(at) | Standing::Back(at) if *until > at => *until = NEVER,
            Standing::Free | Standing::Waits if *until == NEVER => *until = now.after(arrives),
            _ => {}
        }
    }

    fn cut(&mut self, to: u32, arrives: Micros, now: Timestamp) {
        self.was = Some((self.held(now), now.after(arrives)));
        (self.lease, self.cut_at) = (to, now);
    }
}

impl Pool {
    /// Bytes taken by N parts.
    pub(super) const fn parts_bytes(parts: usize) -> usize {
        treed::<u64, Share>(parts)
    }

    pub(super) fn new(budget: Budget, due: Timestamp) -> Self {
        Self { budget, shares: BTreeMap::new(), due }
    }

    /// Hosts that have a part or request one.
    pub(super) fn len(&self) -> usize {
        self.shares.len()
    }

    /// Whether a host has a part or requests one.
    pub(super) fn has(&self, id: u64) -> bool {
        self.shares.contains_key(&id)
    }

    pub(super) fn lease(&self, id: u64) -> u32 {
        self.shares.get(&id).map_or(0, |share| share.lease)
    }

    /// A start of a host; the budget may have become less.
    pub(super) fn request(&mut self, id: u64, budget: Budget, now: Timestamp) {
        self.budget = self.budget.least(budget);
        let share = self.shares.entry(id).or_default();
        share.demand = share.demand(now) + 1.0;
        share.as_of = now;
    }

    /// A connection of a host that requests a part is established. `false`: it requests none.
    pub(super) fn confirm(&mut self, id: u64, now: Timestamp) -> bool {
        let Some(share) = self.shares.get_mut(&id) else { return false };
        share.confirmed = share.confirmed(now) + 1.0;
        share.confirmed_as_of = now;
        true
    }

    #[cfg(test)]
    pub(super) fn confirmed(&self, now: Timestamp) -> f64 {
        self.shares.values().map(|share| share.confirmed(now)).sum()
    }

    /// A first lease, at once: all that is free to the only host, and to one of several what is kept back and what is lent.
    pub(super) fn give_first(&mut self, id: u64, only: bool, now: Timestamp) {
        let free = self.free(now);
        let kept_back = (self.budget.own / 4).max(1).saturating_add(self.budget.borrowed);
        let first = if only { free } else { free.min(kept_back) };
        if let Some(share) = self.shares.get_mut(&id) {
            share.lease = first;
        }
    }

    /// Divides the budget by demand: first takes, then gives what nobody holds. Who has no standing is forgotten. Gives whose
    /// lease changed.
    pub(super) fn divide(
        &mut self,
        budget: Budget,
        standing: impl Fn(u64) -> Option<Standing>,
        gateway: impl Fn(u64) -> bool,
        only: Option<u64>,
        now: Timestamp,
    ) -> Vec<u64> {
        self.budget = budget;
        self.shares.retain(|id, _| standing(*id).is_some());
        let standing = |id: &u64| standing(*id).unwrap_or(Standing::Waits);
        let is_gone = |id: &u64| matches!(standing(id), Standing::Gone(_));
        let arrives = |id| if gateway(id) { LENT_ENDS } else { NEWS };
        for (id, share) in &mut self.shares {
            share.lost(standing(id), arrives(*id), now);
        }
        let gone: u32 = self.total(|id, share| if is_gone(id) { share.held(now) } else { 0 });
        let free = |id: &u64| matches!(standing(id), Standing::Free | Standing::Back(_));
        let targets = self.targets(budget.without(gone), only, now, free, &gateway);
        let over = self.total(|_, share| share.lease) > budget.all();
        let mut changed = Vec::new();
        for (id, share) in &mut self.shares {
            let target = targets.get(id).copied().unwrap_or(0);
            let less = share.lease.saturating_sub(target);
            if !is_gone(id) && less > 0 && (over || target == 0 || less > share.lease / MOVE) {
                share.cut(target, arrives(*id), now);
                changed.push(*id);
            }
        }
        // Summed once: a sum per target would be quadratic in the hosts, while starts wait for the lock.
        let mut free = self.free(now);
        for (id, target) in targets {
            let Some(share) = self.shares.get_mut(&id) else { continue };
            let more = target.saturating_sub(share.lease).min(free);
            if more > share.lease / MOVE {
                let before = share.held(now);
                share.lease += more;
                free = free.saturating_sub(share.held(now) - before);
                changed.push(id);
            }
        }
        changed
    }

    /// Whether no host requests a part, and none but the only host has one.
    pub(super) fn is_over(&self, only: Option<u64>, now: Timestamp) -> bool {
        let quiet = |(id, share): (&u64, &Share)| {
            let wants_nothing = share.demand(now).max(share.confirmed(now)) < LEAST;
            wants_nothing && (share.held(now) == 0 || Some(*id) == only)
        };
        self.shares.iter().all(quiet)
    }

    /// Whether a further division would change nothing but by new demand.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        self.shares.values().all(|share| share.held(now) == share.lease)
    }

    /// What each host should have. Parts are cut from a whole one after the other, so that they sum up to it.
    fn targets(
        &self,
        budget: Budget,
        only: Option<u64>,
        now: Timestamp,
        may: impl Fn(&u64) -> bool,
        gateway: impl Fn(u64) -> bool,
    ) -> BTreeMap<u64, u32> {
        // A start can be spoofed with one SYN: it does not count against a host whose connections are established.
        let is_confirmed = |(id, share): (&u64, &Share)| may(id) && share.confirmed(now) >= LEAST;
        let confirmed = self.shares.iter().any(is_confirmed);
        let demand = |share: &Share| if confirmed { share.confirmed(now) } else { share.demand(now) };
        let wants = self.shares.iter().map(|(id, share)| (*id, demand(share)));
        let wants: Vec<_> = wants.filter(|(id, demand)| may(id) && *demand >= LEAST).collect();
        let whole = if only.is_some() { budget.own } else { budget.own - budget.own / 4 };
        let all: f64 = wants.iter().map(|(_, demand)| demand).sum();
        let (gateways, hosts): (Vec<_>, Vec<_>) = wants.into_iter().partition(|(id, _)| gateway(*id));
        // What is borrowed is for own hosts: nothing is lent twice.
        let mut targets = cut_by_demand(whole, all, gateways);
        let rest = whole.saturating_sub(targets.values().copied().fold(0, u32::saturating_add));
        let of_hosts = hosts.iter().map(|(_, demand)| demand).sum();
        targets.extend(cut_by_demand(rest.saturating_add(budget.borrowed), of_hosts, hosts));
        targets
    }

    /// What is to be sent to gateways: leases of which they may not know, and those that they are to keep. Each is sent by that.
    pub(super) fn lent(&mut self, gateway: impl Fn(u64) -> bool, changed: &[u64], now: Timestamp) -> Vec<(u64, Lease)> {
        let mut lent = Vec::new();
        for (id, share) in self.shares.iter_mut().filter(|(id, _)| gateway(**id)) {
            let is_known = share.lease == 0 && share.held(now) == 0;
            if changed.contains(id) || (!is_known && now.since(share.sent) >= LENT_AGAIN) {
                share.sent = now;
                lent.push((*id, Lease { segments: share.lease, as_of: share.cut_at }));
            }
        }
        lent
    }

    /// What a gateway may divide.
    pub(super) fn lent_to(&mut self, id: u64, now: Timestamp) -> Option<Lease> {
        let share = self.shares.get_mut(&id).filter(|share| share.lease > 0)?;
        share.sent = now;
        Some(Lease { segments: share.lease, as_of: share.cut_at })
    }

    /// A gateway holds no more than what it has since its lease became less then. Whether that frees anything.
    pub(super) fn settle(&mut self, id: u64, as_of: Timestamp) -> bool {
        let share = self.shares.get_mut(&id).filter(|share| share.cut_at == as_of);
        share.is_some_and(|share| share.was.take().is_some())
    }

    /// Whether all that is held is no more than the budget.
    pub(super) fn is_within(&self, now: Timestamp) -> bool {
        self.total(|_, share| share.held(now)) <= self.budget.all()
    }

    /// Whether a gateway may hold something.
    pub(super) fn is_lent(&self, gateway: impl Fn(u64) -> bool, now: Timestamp) -> bool {
        self.shares.iter().any(|(id, share)| gateway(*id) && share.held(now) > 0)
    }

    fn free(&self, now: Timestamp) -> u32 {
        self.budget.all().saturating_sub(self.total(|_, share| share.held(now)))
    }

    fn total(&self, of: impl Fn(&u64, &Share) -> u32) -> u32 {
        self.shares.iter().map(|(id, share)| of(id, share)).fold(0, u32::saturating_add)
    }
}

/// Cuts parts from a whole one after the other, by their demand of all of it, so that they sum up to it.
fn cut_by_demand(whole: u32, all: f64, wants: Vec<(u64, f64)>) -> BTreeMap<u64, u32> {
    let (mut sum, mut given) = (0.0, 0);
    let part = |(id, demand)| {
        sum += demand;
        let upto = if all > 0.0 { portion(whole, sum / all) } else { 0 };
        let target = upto - given;
        given = upto;
        (id, target)
    };
    wants.into_iter().map(part).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u32, never negative")]
fn portion(whole: u32, part: f64) -> u32 {
    ((f64::from(whole) * part).round() as u32).min(whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Pool {
        /// As [`Pool::divide`], but the free part is summed again before each grant.
        fn divide_naive(
            &mut self,
            budget: u32,
            standings: &BTreeMap<u64, Standing>,
            only: Option<u64>,
            now: Timestamp,
        ) -> Vec<u64> {
            self.budget = budget_of(budget);
            self.shares.retain(|id, _| standings.contains_key(id));
            let is = |id: &u64, standing| standings.get(id) == Some(&standing);
            let is_gone = |id: &u64| matches!(standings.get(id), Some(Standing::Gone(_)));
            for (id, share) in &mut self.shares {
                standings.get(id).inspect(|standing| share.lost(**standing, NEWS, now));
            }
            let gone = self.total(|id, share| if is_gone(id) { share.held(now) } else { 0 });
            let targets =
                self.targets(budget_of(budget).without(gone), only, now, |id| is(id, Standing::Free), |_| false);
            let over = self.total(|_, share| share.lease) > budget;
            let ids: Vec<u64> = self.shares.keys().copied().collect();
            let (mut taken, mut given) = (Vec::new(), Vec::new());
            for id in &ids {
                let target = targets.get(id).copied().unwrap_or(0);
                let share = self.shares.get_mut(id).unwrap();
                let less = share.lease.saturating_sub(target);
                let worth = over || target == 0 || less > share.lease / MOVE;
                if !is_gone(id) && less > 0 && worth {
                    share.cut(target, NEWS, now);
                    taken.push(*id);
                }
            }
            for id in ids {
                let Some(target) = targets.get(&id) else { continue };
                let free = self.free(now);
                let share = self.shares.get_mut(&id).unwrap();
                let more = target.saturating_sub(share.lease).min(free);
                if more > share.lease / MOVE {
                    share.lease += more;
                    given.push(id);
                }
            }
            taken.into_iter().chain(given).collect()
        }
    }

    fn budget_of(own: u32) -> Budget {
        Budget { own, borrowed: 0 }
    }

    const NOW_MS: u64 = 1_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::default().after(Micros::from_millis(ms))
    }

    /// What a host has, and where it stands.
    fn share() -> impl Strategy<Value = (Share, Standing)> {
        let was = prop::option::of((0u32..400, NOW_MS - 1_000..NOW_MS + 1_000));
        let standing = prop_oneof![4 => Just(Standing::Free), 1 => Just(Standing::Waits), 1 => (NOW_MS - 2_000..NOW_MS).prop_map(|ms| Standing::Gone(at(ms)))];
        let confirmed = prop_oneof![Just(0.0), 0.0f64..20.0];
        (0.0f64..20.0, confirmed, 0u64..200_000, 0u32..300, was, standing).prop_map(
            |(demand, confirmed, ago_ms, lease, was, standing)| {
                let was = was.map(|(was, until_ms)| (was, at(until_ms)));
                let as_of = at(NOW_MS - ago_ms);
                (Share { demand, as_of, confirmed, confirmed_as_of: as_of, lease, was, ..Share::default() }, standing)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn what_is_free_is_the_same_summed_up_once_as_before_each_grant(
            shares in prop::collection::vec(share(), 0..24),
            budget in prop_oneof![0u32..3_000, Just(u32::MAX)],
            alone in any::<bool>(),
        ) {
            let standings: BTreeMap<u64, Standing> = (0..).zip(shares.iter().map(|(_, standing)| *standing)).collect();
            let shares = (0..).zip(shares.into_iter().map(|(share, _)| share)).collect();
            let mut pool = Pool { budget: budget_of(budget), shares, due: at(NOW_MS) };
            let mut twin = pool.clone();
            let only = alone.then_some(0);
            let changed = pool.divide(budget_of(budget), |id| standings.get(&id).copied(), |_| false, only, at(NOW_MS));
            prop_assert_eq!(changed, twin.divide_naive(budget, &standings, only, at(NOW_MS)));
            let but_cut_at = |shares: BTreeMap<u64, Share>| -> Vec<_> { shares.into_values().map(|share| Share { cut_at: at(0), ..share }).collect() };
            prop_assert_eq!(but_cut_at(pool.shares), but_cut_at(twin.shares));
        }
    }
}
