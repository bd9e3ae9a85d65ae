//! What the demo of two gateways has to show, and what of it was not so.

use std::time::Duration;

use ipnet::IpNet;

use super::shares::Share;
use super::watch::Seen;
use crate::sequence::INITIAL_WINDOW;

/// Everything that was measured and is judged.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// What both gateways had to say of each network.
    pub(crate) shares: Vec<Share>,
    /// How the agent was seen.
    pub(crate) seen: Seen,
    /// The agent's way from one gateway to the other.
    pub(crate) changeover: Changeover,
    /// From the start of the killed gateway until it had every network out of the other's cells.
    pub(crate) known_again: Option<Duration>,
    /// From the kill until transfers began with as much as before.
    pub(crate) large_again: Option<Duration>,
}

/// What happened when the gateway in use was killed.
#[derive(Clone, Debug)]
pub(crate) struct Changeover {
    /// From the kill to the subscription at the other gateway.
    pub(crate) took: Option<Duration>,
    /// First flights of the transfers that began in between, in segments.
    pub(crate) meanwhile: Vec<(IpNet, u64)>,
    /// Of those that began right after it, when leases are not back yet.
    pub(crate) after: Vec<(IpNet, u64)>,
}

impl Outcome {
    /// One sentence for each thing that was not as it has to be.
    pub(crate) fn shortcomings(&self) -> Vec<String> {
        let mut short = Vec::new();
        for share in &self.shares {
            if !share.is_equal() {
                short.push(format!("the gateways do not have the same share for {}", share.network));
            }
            if !share.is_divided() {
                short.push(format!("no gateway saw a part of its own of the connections to {}", share.network));
            }
        }
        if self.changeover.took.is_none() {
            short.push("the agent did not subscribe at the other gateway".to_owned());
        }
        short.extend(self.lapses());
        if self.known_again.is_none() {
            short.push("the gateway that was started again did not learn every network from the other one".to_owned());
        }
        if self.large_again.is_none() {
            short.push("transfers did not begin with as much as before the kill again".to_owned());
        }
        short
    }

    /// Why it cannot be claimed that the host was never without advice.
    pub(crate) fn lapses(&self) -> Vec<String> {
        let mut lapses = Vec::new();
        if self.seen.looks == 0 {
            lapses.push("the agent never answered".to_owned());
        }
        if self.seen.without_advice > 0 {
            let why = self.seen.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            let Seen { without_advice, looks, .. } = self.seen;
            lapses.push(format!("at {without_advice} of {looks} looks a network was without advice{why}"));
        }
        if self.seen.ended > 0 {
            lapses.push(format!("advice ended {} times, by the agent's counters", self.seen.ended));
        }
        for (network, flight) in self.changeover.meanwhile.iter().filter(|(_, flight)| *flight <= INITIAL_WINDOW) {
            lapses.push(format!(
                "a transfer to {network} that began while the agent changed over began with {flight} segments, as plain TCP does"
            ));
        }
        lapses
    }

    /// What was smaller for a while though there was advice, in one sentence.
    pub(crate) fn smaller(&self) -> Option<String> {
        let after = &self.changeover.after;
        let small = after.iter().filter(|(_, flight)| *flight <= INITIAL_WINDOW).count();
        (small > 0).then(|| {
            format!(
                "but {small} of {} transfers right after the changeover began with no more than plain TCP's {INITIAL_WINDOW} segments: leases \
                 are not taken along (docs/operate/share.md, Budgets)",
                after.len()
            )
        })
    }
}

/// Whether to every network the smallest first flight is nine tenths of what it was, or more, and above plain TCP's.
pub(crate) fn are_as_large(before: &[(IpNet, u64)], after: &[(IpNet, u64)]) -> bool {
    let smallest = |of: &[(IpNet, u64)], network: IpNet| {
        of.iter().filter(|(one, _)| *one == network).map(|(_, flight)| *flight).min()
    };
    before.iter().all(|(network, _)| {
        let (before, after) = (smallest(before, *network), smallest(after, *network));
        before.zip(after).is_some_and(|(before, after)| after > INITIAL_WINDOW && after * 10 >= before * 9)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Outcome {
        let network = "198.51.100.0/24".parse().unwrap();
        let clients = [["11".to_owned()].into(), ["12".to_owned()].into()];
        Outcome {
            shares: vec![Share { network, bytes: [Some(29_000.25), Some(29_000.25)], clients }],
            seen: Seen { looks: 9, ..Seen::default() },
            changeover: Changeover {
                took: Some(Duration::from_secs(1)),
                meanwhile: vec![(network, 20)],
                after: vec![(network, 21)],
            },
            known_again: Some(Duration::from_secs(1)),
            large_again: Some(Duration::from_secs(20)),
        }
    }

    fn short(change: impl Fn(&mut Outcome)) -> String {
        let mut outcome = good();
        change(&mut outcome);
        outcome.shortcomings().join("; ")
    }

    #[test]
    fn what_is_as_it_has_to_be_has_no_shortcoming() {
        assert_eq!(short(|_| {}), "");
    }

    #[test]
    fn advice_that_lapsed_is_named() {
        assert_eq!(short(|o| o.seen.without_advice = 2), "at 2 of 9 looks a network was without advice");
        assert!(short(|o| o.seen.ended = 1).contains("ended 1 times"));
        assert!(short(|o| o.seen.looks = 0).contains("never answered"));
        let plain = ("198.51.100.0/24".parse().unwrap(), 10);
        assert!(short(|o| o.changeover.meanwhile.push(plain)).contains("began with 10 segments"));
    }

    #[test]
    fn starts_that_are_small_for_a_while_are_named_and_are_no_lapse() {
        let mut outcome = good();
        assert_eq!(outcome.smaller(), None);
        outcome.changeover.after.push(("198.51.100.0/24".parse().unwrap(), 10));
        assert!(outcome.smaller().unwrap().contains("1 of 2 transfers"));
        assert!(outcome.lapses().is_empty());
    }

    #[test]
    fn gateways_that_do_not_share_are_named() {
        let share = |change: fn(&mut Share)| short(|o| o.shares.iter_mut().for_each(change));
        assert!(share(|s| s.bytes = [Some(29_000.25), Some(29_000.250_000_01)]).contains("not have the same share"));
        assert!(share(|s| s.bytes = [None, None]).contains("not have the same share"));
        assert!(share(|s| s.clients = [["11".to_owned()].into(), ["11".to_owned()].into()]).contains("of its own"));
        assert!(share(|s| s.clients = [["11".to_owned()].into(), [].into()]).contains("of its own"));
    }

    #[test]
    fn a_gateway_that_is_not_reached_or_does_not_come_back_is_named() {
        assert!(short(|o| o.changeover.took = None).contains("did not subscribe"));
        assert!(short(|o| o.known_again = None).contains("did not learn"));
        assert!(short(|o| o.large_again = None).contains("as much as before"));
    }

    #[test]
    fn first_flights_are_compared_network_by_network() {
        let flights = |first: u64, second: u64| {
            [("198.51.100.0/24".parse().unwrap(), first), ("203.0.113.0/24".parse().unwrap(), second)]
        };
        assert!(are_as_large(&flights(20, 40), &flights(18, 36)));
        assert!(!are_as_large(&flights(20, 40), &flights(30, 35)));
        assert!(!are_as_large(&flights(11, 40), &flights(10, 40)));
        assert!(!are_as_large(&flights(20, 40), &flights(20, 40)[..1]));
    }
}
