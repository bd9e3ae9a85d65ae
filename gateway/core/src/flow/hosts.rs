//! Which congestion control the hosts inside run: usually one for all their connections, the system's default.
//!
//! A connection whose own packets make it clear votes once; where several of a host agree, the others that say nothing of
//! their own, or nothing yet, are taken for the same.

use std::net::IpAddr;

use hashbrown::HashMap;

use crate::flow::shadow::flavour::Flavour;
use crate::flow::tuple::SeededState;

/// Hosts remembered; at the limit no more are taken in.
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
    votes: HashMap<IpAddr, Votes, SeededState>,
}

impl Hosts {
    /// No host known.
    pub(crate) fn new(seed: u64) -> Self {
        Self { votes: HashMap::with_hasher(SeededState(seed)) }
    }

    /// A connection of `host` that spoke for `before` speaks for `now`; false where there was no room for the host.
    pub(crate) fn vote(&mut self, host: IpAddr, before: Flavour, now: Flavour) -> bool {
        let known = self.votes.contains_key(&host);
        if !known && self.votes.len() >= HOSTS {
            return false;
        }
        let votes = self.votes.entry(host).or_default();
        if let Some(count) = votes.of(before) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = votes.of(now) {
            *count += 1;
        }
        if votes.all() > VOTES_MOST {
            votes.0 = votes.0.map(|count| count / 2);
        }
        true
    }

    /// What the connections of `host` agree on; else unknown.
    pub(crate) fn agreed(&self, host: IpAddr) -> Flavour {
        let Some(mut votes) = self.votes.get(&host).copied() else { return Flavour::Unknown };
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
            (0..*times).for_each(|_| assert!(hosts.vote(HOST, Flavour::Unknown, *flavour)));
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
        assert!(changed.vote(HOST, Flavour::Bbr, Flavour::Unknown));
        assert_eq!(changed.agreed(HOST), Flavour::Unknown);
        let many = hosts(&[(Flavour::Cubic, 1_000), (Flavour::Bbr, 400)]);
        assert_eq!(many.agreed(HOST), Flavour::Bbr, "a thousand votes do not hold for ever");
    }

    #[test]
    fn no_more_hosts_are_taken_in_than_there_is_room_for() {
        let mut full = Hosts::new(0);
        for n in 0..=u32::try_from(HOSTS).unwrap() {
            let taken = full.vote(IpAddr::V4(n.into()), Flavour::Unknown, Flavour::Reno);
            assert_eq!(taken, (n as usize) < HOSTS);
        }
    }
}
