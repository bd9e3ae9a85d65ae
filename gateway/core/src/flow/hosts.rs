//! Which congestion control the hosts inside run: usually one for all their connections, the system's default.
//!
//! A connection votes once ([`crate::flow::evidence::control::Leaning`]), with the part of a clear verdict that its own packets give.
//! Where several of a host agree, its others without evidence of their own are taken for the same.

use std::net::IpAddr;

use hashbrown::HashMap;

use crate::flow::evidence::control::{Prior, Vote};
use crate::hash::SeededState;

/// Hosts remembered, half of them those heard of lately: when that half is full, the other one is forgotten. So hosts that
/// are gone, and addresses of a day (RFC 8981), do not fill it for good.
const HOSTS: usize = 65_536;
/// Connections that must agree, and how many of them for each that does not.
const AGREE_LEAST: u16 = 3;
const AGREE_PER_DISSENT: u16 = 8;
/// The same for BBR: while its window is small, acknowledgements clock it, and a short connection of it says that it is something else.
const BBR_PER_DISSENT: u16 = 2;
/// Votes at which all are halved: a host may change its default.
const VOTES_MOST: u16 = 64;
const WHOLE: u16 = Vote::WHOLE.unsigned_abs() as u16;

/// Votes of one host's connections for and against BBR, in parts of a vote.
#[derive(Clone, Copy, Debug, Default)]
struct Votes([u16; 2]);

impl Votes {
    fn side(&mut self, part: i8) -> &mut u16 {
        let [towards, away] = &mut self.0;
        if part > 0 { towards } else { away }
    }

    fn change(&mut self, before: i8, now: i8) {
        let side = self.side(before);
        *side = side.saturating_sub(before.unsigned_abs().into());
        let side = self.side(now);
        *side = side.saturating_add(now.unsigned_abs().into());
        let most = VOTES_MOST * WHOLE;
        if self.0.iter().sum::<u16>() > most {
            self.0 = self.0.map(|parts| parts / 2);
        }
    }

    /// Whether they agree on BBR, or against it.
    fn agreed(self) -> Option<bool> {
        let clear = |agree: u16, dissent: u16, times: u16| agree >= AGREE_LEAST * WHOLE && agree >= dissent * times;
        let [towards, away] = self.0;
        if clear(towards, away, BBR_PER_DISSENT) {
            Some(true)
        } else {
            clear(away, towards, AGREE_PER_DISSENT).then_some(false)
        }
    }
}

/// The congestion control of hosts, as far as their connections agree.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    lately: HashMap<IpAddr, Votes, SeededState>,
    before: HashMap<IpAddr, Votes, SeededState>,
}

impl Hosts {
    /// No host known.
    pub(crate) fn new(seed: u64) -> Self {
        let none = HashMap::with_hasher(SeededState(seed));
        Self { lately: none.clone(), before: none }
    }

    /// A connection of `host` that reported `before` reports `now`; returns how many hosts were evicted for it.
    pub(crate) fn vote(&mut self, host: IpAddr, before: Vote, now: Vote) -> u64 {
        let mut forgotten = 0;
        if !self.lately.contains_key(&host) {
            let votes = self.before.remove(&host).unwrap_or_default();
            if self.lately.len() >= HOSTS / 2 {
                forgotten = self.before.len() as u64;
                self.before.clear();
                std::mem::swap(&mut self.lately, &mut self.before);
            }
            self.lately.insert(host, votes);
        }
        let Some(votes) = self.lately.get_mut(&host) else { return forgotten };
        votes.change(before.0, now.0);
        forgotten
    }

    /// What the connections of `host` agree on.
    pub(crate) fn agreed(&self, host: IpAddr) -> Prior {
        let votes = self.lately.get(&host).or_else(|| self.before.get(&host)).copied().unwrap_or_default();
        match votes.agreed() {
            None => Prior::Unknown,
            Some(true) => Prior::Bbr,
            Some(false) => Prior::LossBased,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    const LOSS_BASED: Vote = Vote(-Vote::WHOLE);
    const BBR: Vote = Vote(Vote::WHOLE);
    const NONE: Vote = Vote(0);

    fn hosts(votes: &[(Vote, u32)]) -> Hosts {
        let mut hosts = Hosts::new(0);
        for (vote, times) in votes {
            (0..*times).for_each(|_| assert_eq!(hosts.vote(HOST, NONE, *vote), 0));
        }
        hosts
    }

    #[test]
    fn several_connections_must_agree_and_few_may_dissent() {
        let agreed = |votes: &[(Vote, u32)]| hosts(votes).agreed(HOST);
        assert_eq!(agreed(&[(LOSS_BASED, 2)]), Prior::Unknown);
        assert_eq!(agreed(&[(LOSS_BASED, 3)]), Prior::LossBased);
        assert_eq!(agreed(&[(LOSS_BASED, 7), (BBR, 1)]), Prior::Unknown);
        assert_eq!(agreed(&[(LOSS_BASED, 8), (BBR, 1)]), Prior::LossBased);
        assert_eq!(agreed(&[(BBR, 4), (LOSS_BASED, 2)]), Prior::Bbr, "two of six were short");
        assert_eq!(agreed(&[(BBR, 4), (LOSS_BASED, 3)]), Prior::Unknown);
        assert_eq!(hosts(&[(LOSS_BASED, 8)]).agreed("192.0.2.2".parse().unwrap()), Prior::Unknown);
    }

    #[test]
    fn several_with_little_evidence_are_enough_together_and_one_counts_at_most_a_vote() {
        let agreed = |votes: &[(Vote, u32)]| hosts(votes).agreed(HOST);
        let little = Vote(-1);
        assert_eq!(agreed(&[(little, 11)]), Prior::Unknown);
        assert_eq!(agreed(&[(little, 12)]), Prior::LossBased);
        let mut changed = hosts(&[(little, 11)]);
        assert_eq!(changed.vote(HOST, little, LOSS_BASED), 0);
        assert_eq!(changed.agreed(HOST), Prior::LossBased);
        assert_eq!(changed.vote(HOST, LOSS_BASED, BBR), 0);
        assert_eq!(changed.agreed(HOST), Prior::Unknown);
    }

    #[test]
    fn a_connection_may_change_its_mind_and_a_host_its_default() {
        let mut changed = hosts(&[(BBR, 3)]);
        assert_eq!(changed.vote(HOST, BBR, NONE), 0);
        assert_eq!(changed.agreed(HOST), Prior::Unknown);
        let many = hosts(&[(LOSS_BASED, 1_000), (BBR, 400)]);
        assert_eq!(many.agreed(HOST), Prior::Bbr, "a thousand votes do not hold for ever");
    }

    #[test]
    fn the_hosts_heard_of_longest_ago_are_forgotten_and_counted() {
        let mut hosts = hosts(&[(LOSS_BASED, 3)]);
        let mut forgotten = 0;
        for n in 0..u32::try_from(3 * HOSTS).unwrap() {
            forgotten += hosts.vote(IpAddr::V4(n.into()), NONE, BBR);
            if n % 1_000 == 0 {
                hosts.vote(HOST, NONE, NONE);
            }
            assert!(hosts.lately.len() + hosts.before.len() <= HOSTS);
        }
        assert_eq!(hosts.agreed(HOST), Prior::LossBased, "it was heard of all the time");
        let kept = hosts.lately.len() + hosts.before.len();
        assert_eq!(forgotten, (3 * HOSTS + 1 - kept) as u64);
    }
}
