//! One network's budget and those who have a part of it.

use std::collections::BTreeMap;

use spand_proto::units::{Micros, Timestamp};

use super::NEWS;

/// Time in which a host's demand halves.
const HALVES: Micros = Micros::from_secs(60);
/// Demand below this is none: one start, four and a half minutes ago.
const LEAST: f64 = 0.045;
/// Leases move by at least this part of themselves, so that hosts are not told of every segment.
const MOVE: u32 = 10;

/// What a host may get.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// A part by its demand.
    Free,
    /// Nothing yet: another one may still hold everything.
    Waits,
    /// It is not connected: what it has ends by itself.
    Gone,
}

/// A network's budget.
#[derive(Debug)]
pub(super) struct Pool {
    budget: u32,
    shares: BTreeMap<u64, Share>,
    /// When it is divided next.
    pub(super) due: Timestamp,
}

/// One host's part.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    demand: f64,
    as_of: Timestamp,
    lease: u32,
    /// It may not have heard until then that its lease is no longer this.
    was: Option<(u32, Timestamp)>,
}

impl Share {
    fn demand(&self, now: Timestamp) -> f64 {
        self.demand * 0.5f64.powf(now.since(self.as_of).0 as f64 / HALVES.0 as f64)
    }

    fn held(&self, now: Timestamp) -> u32 {
        self.was.filter(|(_, until)| *until > now).map_or(self.lease, |(was, _)| was.max(self.lease))
    }

    fn cut(&mut self, to: u32, now: Timestamp) {
        self.was = Some((self.held(now), now.after(NEWS)));
        self.lease = to;
    }
}

impl Pool {
    pub(super) fn new(budget: u32, due: Timestamp) -> Self {
        Self { budget, shares: BTreeMap::new(), due }
    }

    pub(super) fn lease(&self, id: u64) -> u32 {
        self.shares.get(&id).map_or(0, |share| share.lease)
    }

    /// A start of a host; the budget may have become less.
    pub(super) fn want(&mut self, id: u64, budget: u32, now: Timestamp) {
        self.budget = self.budget.min(budget);
        let share = self.shares.entry(id).or_default();
        share.demand = share.demand(now) + 1.0;
        share.as_of = now;
    }

    /// A first lease, at once: all that is free to the only host, and to one of several what is kept back.
    pub(super) fn give_first(&mut self, id: u64, only: bool, now: Timestamp) {
        let free = self.free(now);
        let first = if only { free } else { free.min((self.budget / 4).max(1)) };
        if let Some(share) = self.shares.get_mut(&id) {
            share.lease = first;
        }
    }

    /// Divides the budget by demand: first takes, then gives what nobody holds. Gives whose lease changed.
    pub(super) fn divide(
        &mut self,
        budget: u32,
        standings: &BTreeMap<u64, Standing>,
        only: Option<u64>,
        now: Timestamp,
    ) -> Vec<u64> {
        self.budget = budget;
        self.shares.retain(|id, _| standings.contains_key(id));
        let standing = |id: &u64| standings.get(id).copied().unwrap_or(Standing::Gone);
        let gone: u32 = self.total(|id, share| if standing(id) == Standing::Gone { share.held(now) } else { 0 });
        let targets = self.targets(budget.saturating_sub(gone), only, now, |id| standing(id) == Standing::Free);
        let over = self.total(|_, share| share.lease) > budget;
        let mut changed = Vec::new();
        for (id, share) in &mut self.shares {
            let target = targets.get(id).copied().unwrap_or(0);
            let less = share.lease.saturating_sub(target);
            if standing(id) != Standing::Gone && less > 0 && (over || target == 0 || less > share.lease / MOVE) {
                share.cut(target, now);
                changed.push(*id);
            }
        }
        for (id, target) in targets {
            let free = self.free(now);
            let Some(share) = self.shares.get_mut(&id) else { continue };
            let more = target.saturating_sub(share.lease).min(free);
            if more > share.lease / MOVE {
                share.lease += more;
                changed.push(id);
            }
        }
        changed
    }

    /// Whether nobody wants anything of it, and nobody has anything but the only host.
    pub(super) fn is_over(&self, only: Option<u64>, now: Timestamp) -> bool {
        let quiet =
            |(id, share): (&u64, &Share)| share.demand(now) < LEAST && (share.held(now) == 0 || Some(*id) == only);
        self.shares.iter().all(quiet)
    }

    /// Whether a further division would change nothing but by new demand.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        self.shares.values().all(|share| share.held(now) == share.lease)
    }

    /// What each host should have. Parts are cut from a whole one after the other, so that they sum up to it.
    fn targets(
        &self,
        budget: u32,
        only: Option<u64>,
        now: Timestamp,
        may: impl Fn(&u64) -> bool,
    ) -> BTreeMap<u64, u32> {
        let wants = self.shares.iter().map(|(id, share)| (*id, share.demand(now)));
        let wants: Vec<_> = wants.filter(|(id, demand)| may(id) && *demand >= LEAST).collect();
        let whole = if only.is_some() { budget } else { budget - budget / 4 };
        let all: f64 = wants.iter().map(|(_, demand)| demand).sum();
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

    fn free(&self, now: Timestamp) -> u32 {
        self.budget.saturating_sub(self.total(|_, share| share.held(now)))
    }

    fn total(&self, of: impl Fn(&u64, &Share) -> u32) -> u32 {
        self.shares.iter().map(|(id, share)| of(id, share)).fold(0, u32::saturating_add)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u32, never negative")]
fn portion(whole: u32, part: f64) -> u32 {
    ((f64::from(whole) * part).round() as u32).min(whole)
}
