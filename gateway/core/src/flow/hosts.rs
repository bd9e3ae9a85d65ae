//! Which congestion control the hosts inside run: usually one for all their connections, the system's default.
//!
//! A connection whose own packets make it clear votes once; where several of a host agree, the others that say nothing of
//! their own, or nothing yet, are taken for the same.

use std::net::IpAddr;

use hashbrown::HashMap;

use crate::flow::shadow::flavour::Flavour;
use crate::flow::tuple::SeededState;

/// Hosts remembered, half of them those heard of lately: when that half is full, the other one is forgotten. So hosts that
/// are gone, and addresses of a day (RFC 8981), do not fill it for good.
const HOSTS: usize = 65_536;
/// Connections that must agree, and how many of them for each that does not.
const AGREE_LEAST: u16 = 3;
const AGREE_PER_DISSENT: u16 = 8;
/// Votes at which all are halved: a host may change its default.
const VOTES_MOST: u16 = 64;

/// Votes of one host's connections for Reno, CUBIC and BBR.
#[derive(Clone, Copy, Debug, Default)]
struct Votes([u16; 3]);

impl Votes {
    fn of(&mut self, flavour: Flavour) -> Option<&mut u16> {
        let [reno, cubic, bbr] = &mut self.0;
        match flavour {
            Flavour::Unknown => None,
            Flavour::Reno => Some(reno),
            Flavour::Cubic => Some(cubic),
            Flavour::Bbr => Some(bbr),
        }
    }

    fn all(self) -> u16 {
        self.0.iter().sum()
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

    /// A connection of `host` that spoke for `before` speaks for `now`; gives how many hosts were forgotten for it.
    pub(crate) fn vote(&mut self, host: IpAddr, before: Flavour, now: Flavour) -> u64 {
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
        if let Some(count) = votes.of(before) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = votes.of(now) {
            *count += 1;
        }
        if votes.all() > VOTES_MOST {
            votes.0 = votes.0.map(|count| count / 2);
        }
        forgotten
    }

    /// What the connections of `host` agree on; else unknown.
    pub(crate) fn agreed(&self, host: IpAddr) -> Flavour {
        let votes = self.lately.get(&host).or_else(|| self.before.get(&host));
        let Some(mut votes) = votes.copied() else { return Flavour::Unknown };
        let all = votes.all();
        [Flavour::Reno, Flavour::Cubic, Flavour::Bbr]
            .into_iter()
            .find(|&flavour| {
                let agree = votes.of(flavour).map_or(0, |count| *count);
                agree >= AGREE_LEAST && agree >= (all - agree) * AGREE_PER_DISSENT
            })
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn hosts(votes: &[(Flavour, u32)]) -> Hosts {
        let mut hosts = Hosts::new(0);
        for (flavour, times) in votes {
            (0..*times).for_each(|_| assert_eq!(hosts.vote(HOST, Flavour::Unknown, *flavour), 0));
        }
        hosts
    }

    #[test]
    fn several_connections_must_agree_and_few_may_dissent() {
        assert_eq!(hosts(&[(Flavour::Reno, 2)]).agreed(HOST), Flavour::Unknown);
        assert_eq!(hosts(&[(Flavour::Reno, 3)]).agreed(HOST), Flavour::Reno);
        assert_eq!(hosts(&[(Flavour::Reno, 7), (Flavour::Bbr, 1)]).agreed(HOST), Flavour::Unknown);
        assert_eq!(hosts(&[(Flavour::Reno, 8), (Flavour::Bbr, 1)]).agreed(HOST), Flavour::Reno);
        assert_eq!(hosts(&[(Flavour::Reno, 8)]).agreed("192.0.2.2".parse().unwrap()), Flavour::Unknown);
    }

    #[test]
    fn a_connection_may_change_its_mind_and_a_host_its_default() {
        let mut changed = hosts(&[(Flavour::Bbr, 3)]);
        assert_eq!(changed.vote(HOST, Flavour::Bbr, Flavour::Unknown), 0);
        assert_eq!(changed.agreed(HOST), Flavour::Unknown);
        let many = hosts(&[(Flavour::Cubic, 1_000), (Flavour::Bbr, 400)]);
        assert_eq!(many.agreed(HOST), Flavour::Bbr, "a thousand votes do not hold for ever");
    }

    #[test]
    fn the_hosts_heard_of_longest_ago_are_forgotten_and_counted() {
        let mut hosts = hosts(&[(Flavour::Reno, 3)]);
        let mut forgotten = 0;
        for n in 0..u32::try_from(3 * HOSTS).unwrap() {
            forgotten += hosts.vote(IpAddr::V4(n.into()), Flavour::Unknown, Flavour::Bbr);
            if n % 1_000 == 0 {
                hosts.vote(HOST, Flavour::Unknown, Flavour::Unknown);
            }
            assert!(hosts.lately.len() + hosts.before.len() <= HOSTS);
        }
        assert_eq!(hosts.agreed(HOST), Flavour::Reno, "it was heard of all the time");
        let kept = hosts.lately.len() + hosts.before.len();
        assert_eq!(forgotten, (3 * HOSTS + 1 - kept) as u64);
    }
}
