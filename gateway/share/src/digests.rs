//! Which buckets of other gateways did not come whole, by what these name of them, and who asked for own ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use spand_cells::{Digest, GatewayId};

use super::format::{AGAIN_AT_ONCE, Member};

/// A gateway that is behind reads on for this long.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(4) };
/// Until a bucket is asked for once more, and how often it is in all.
const AGAIN: Duration = if cfg!(test) { Duration::from_millis(400) } else { Duration::from_secs(30) };
const TIMES: u32 = 3;
/// In this time one gateway is sent [`ANSWERS`] buckets at most: for each of them all networks are gone through.
const HEEDED: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(10) };
const ANSWERS: usize = AGAIN_AT_ONCE;

/// Buckets of others that differ, and those of this gateway that others were sent.
#[derive(Debug, Default)]
pub(super) struct Digests {
    differ: BTreeMap<(GatewayId, u64), Differs>,
    /// Since when, and how many, by gateway.
    answered: BTreeMap<GatewayId, (Instant, usize)>,
}

/// A bucket of which other cells are here than left.
#[derive(Clone, Copy, Debug)]
struct Differs {
    since: Instant,
    asked: Option<Instant>,
    times: u32,
}

/// What to ask a gateway for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Missing {
    pub(super) gateway: GatewayId,
    /// The newest first.
    pub(super) buckets: Vec<u64>,
}

impl Digests {
    /// Compares what members name with what came of them, by `is_here`. Gives what to ask each for, which counts as asked.
    pub(super) fn ask<'a>(
        &mut self,
        members: impl Iterator<Item = &'a Member>,
        is_here: impl Fn(&(GatewayId, u64), &Digest) -> bool,
        now: Instant,
    ) -> Vec<Missing> {
        let (mut missing, mut differ) = (Vec::new(), BTreeMap::new());
        for Member { gateway, digests, .. } in members {
            let mut buckets = Vec::new();
            for (index, sent) in digests.iter().rev() {
                let key = (*gateway, *index);
                if is_here(&key, sent) {
                    continue;
                }
                let known = self.differ.get(&key).copied();
                let mut differs = known.unwrap_or(Differs { since: now, asked: None, times: 0 });
                let is_late = match differs.asked {
                    Some(asked) => now.duration_since(asked) >= AGAIN,
                    None => now.duration_since(differs.since) >= PATIENCE,
                };
                if is_late && differs.times < TIMES && buckets.len() < AGAIN_AT_ONCE {
                    (differs.asked, differs.times) = (Some(now), differs.times + 1);
                    buckets.push(*index);
                }
                differ.insert(key, differs);
            }
            if !buckets.is_empty() {
                missing.push(Missing { gateway: *gateway, buckets });
            }
        }
        self.differ = differ;
        missing
    }

    /// Which of these buckets a gateway is sent: of those that this gateway names, `own`, a bounded number.
    pub(super) fn answer(
        &mut self,
        gateway: GatewayId,
        buckets: &[u64],
        own: &[(u64, Digest)],
        now: Instant,
    ) -> BTreeSet<u64> {
        let (since, count) = self.answered.entry(gateway).or_insert((now, 0));
        if now.duration_since(*since) >= HEEDED {
            (*since, *count) = (now, 0);
        }
        let named = buckets.iter().filter(|index| own.iter().any(|(named, _)| named == *index));
        let answers: BTreeSet<u64> = named.copied().take(ANSWERS - *count).collect();
        *count += answers.len();
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::tests::member;
    use super::*;

    fn digest(hash: u64) -> Digest {
        Digest { cells: 2, hash }
    }

    #[test]
    fn a_bucket_that_differs_for_long_is_asked_for_a_few_times_and_the_newest_first() {
        let (mut digests, begun) = (Digests::default(), Instant::now());
        let other = Member { digests: vec![(5, digest(1)), (6, digest(2)), (7, digest(3))], ..member(9) };
        let mut heard = BTreeMap::from([((GatewayId(9), 6), digest(2)), ((GatewayId(9), 7), digest(4))]);
        let mut ask = |heard: &BTreeMap<_, _>, after| {
            digests.ask([&other].into_iter(), |of, sent| heard.get(of) == Some(sent), begun + after)
        };
        let missing = |buckets: &[u64]| vec![Missing { gateway: GatewayId(9), buckets: buckets.to_vec() }];
        assert_eq!(ask(&heard, Duration::ZERO), [], "it may still come");
        assert_eq!(ask(&heard, PATIENCE), missing(&[7, 5]));
        assert_eq!(ask(&heard, PATIENCE + AGAIN / 2), []);
        heard.insert((GatewayId(9), 7), digest(3));
        assert_eq!(ask(&heard, PATIENCE + AGAIN), missing(&[5]));
        assert_eq!(ask(&heard, PATIENCE + 2 * AGAIN), missing(&[5]));
        assert_eq!(ask(&heard, PATIENCE + 9 * AGAIN), [], "what is refused each time does not come by asking");
        // One that came and differs again is asked for again.
        heard.insert((GatewayId(9), 5), digest(1));
        assert_eq!(ask(&heard, PATIENCE + 10 * AGAIN), []);
        heard.clear();
        assert_eq!(ask(&heard, PATIENCE + 10 * AGAIN), []);
        assert_eq!(ask(&heard, 2 * PATIENCE + 10 * AGAIN), missing(&[7, 6, 5]));
    }

    #[test]
    fn a_gateway_is_sent_a_bounded_number_of_buckets_that_are_named_however_often_it_asks() {
        let (mut digests, begun) = (Digests::default(), Instant::now());
        let own: Vec<_> = (5..30).map(|index| (index, digest(1))).collect();
        let all: Vec<u64> = (0..100).collect();
        let mut answer = |gateway, after| digests.answer(GatewayId(gateway), &all, &own, begun + after).len();
        assert_eq!(answer(1, Duration::ZERO), ANSWERS);
        assert_eq!(answer(1, HEEDED / 2), 0);
        assert_eq!(answer(2, HEEDED / 2), ANSWERS, "another one has its own");
        assert_eq!(answer(1, HEEDED), ANSWERS);
        let made_up = digests.answer(GatewayId(3), &[0, 4, 30, u64::MAX], &own, begun);
        assert_eq!(made_up, BTreeSet::new());
    }
}
