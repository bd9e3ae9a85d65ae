//! Hosts never use more than the budget, whatever happens.

use proptest::prelude::*;

use super::*;

/// Leases that hosts may use: the last ones sent, and the ones before for as long as a message may take.
#[derive(Debug, Default)]
struct Beliefs {
    last: BTreeMap<(u64, Network), u32>,
    fading: Vec<((u64, Network), u32, Timestamp)>,
}

impl Beliefs {
    fn sent(&mut self, host: u64, network: Network, lease: u32, now: Timestamp) {
        let before = self.last.insert((host, network), lease).unwrap_or(0);
        for (of, _, until) in &mut self.fading {
            if *of == (host, network) {
                *until = (*until).min(now.after(NEWS));
            }
        }
        self.fading.push(((host, network), before, now.after(NEWS)));
    }

    /// The host gets no renewals any more.
    fn cut_off(&mut self, host: u64, now: Timestamp) {
        for ((of, network), lease) in std::mem::take(&mut self.last) {
            if of == host {
                self.fading.push(((of, network), lease, now.after(LIFETIME)));
            } else {
                self.last.insert((of, network), lease);
            }
        }
    }

    fn held(&self, network: Network, now: Timestamp) -> u32 {
        let mut most: BTreeMap<u64, u32> = BTreeMap::new();
        let last = self.last.iter().map(|((host, of), lease)| (*host, *of, *lease));
        let fading = self.fading.iter().filter(|(.., until)| *until > now);
        for (host, of, lease) in last.chain(fading.map(|((host, of), lease, _)| (*host, *of, *lease))) {
            if of == network {
                let most = most.entry(host).or_default();
                *most = lease.max(*most);
            }
        }
        most.values().sum()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Join(u8),
    Leave(u8),
    Start(u8, u8),
    /// The snapshot that a host needs for being no longer the only one.
    Resend,
    Turn,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..4).prop_map(Step::Join),
        1 => (0u8..4).prop_map(Step::Leave),
        8 => ((0u8..4), (1u8..3)).prop_map(|(host, network)| Step::Start(host, network)),
        1 => Just(Step::Resend),
        4 => Just(Step::Turn),
        4 => prop_oneof![Just(100u64), Just(600), Just(1_500), Just(30_000), Just(61_000), Just(300_000)]
            .prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::default())]
    /// Whichever hosts join, leave and start: the leases they may use never sum to more than the budget, and the last
    /// one to be there has all of it in the end.
    #[test]
    fn hosts_never_hold_more_than_the_budget(budget in 1u32..60, steps in prop::collection::vec(step(), 1..120)) {
        let mut leases = Leases::new(LIFETIME, 100, 1_000_000, 3);
        let mut beliefs = Beliefs::default();
        let mut hosts: [Option<u64>; 4] = [None; 4];
        let mut resend = None;
        let mut ms = 0;
        let networks = [network(1), network(2)];
        for step in steps {
            let now = at(ms);
            let read = |leases: &mut Leases, beliefs: &mut Beliefs, id, network| {
                beliefs.sent(id, network, leases.lease(id, network, Segments(budget), now).0, now);
            };
            match step {
                Step::Join(n) => {
                    if hosts[usize::from(n)].is_none() {
                        // Three places for four hosts: one that is gone keeps its own.
                        let Ok(Joined { host: id, request_snapshot: other }) = leases.join(&host(n), now) else {
                            prop_assert_eq!(leases.host_count(), 3);
                            continue;
                        };
                        hosts[usize::from(n)] = Some(id);
                        // Until it gets the message, it is as if it were not connected: if it does not read, nothing renews its advice.
                        if let Some(other) = other {
                            beliefs.cut_off(other, now);
                        }
                        resend = other.or(resend);
                        for network in networks {
                            read(&mut leases, &mut beliefs, id, network);
                        }
                        leases.all_advertised(id, now);
                    }
                }
                Step::Leave(n) => {
                    if let Some(id) = hosts[usize::from(n)].take() {
                        leases.leave(id, now);
                        beliefs.cut_off(id, now);
                    }
                }
                Step::Start(n, to) => {
                    if let Some(id) = hosts[usize::from(n)] {
                        leases.start(id, network(to), Segments(budget), now);
                        read(&mut leases, &mut beliefs, id, network(to));
                    }
                }
                Step::Resend => {
                    if let Some(id) = resend.take().filter(|id| hosts.contains(&Some(*id))) {
                        for network in networks {
                            read(&mut leases, &mut beliefs, id, network);
                        }
                        leases.all_advertised(id, now);
                    }
                }
                Step::Turn => {
                    for (id, network) in leases.turn(now, 100, |_| Some(Segments(budget))).changed {
                        if hosts.contains(&Some(id)) {
                            read(&mut leases, &mut beliefs, id, network);
                        }
                    }
                }
                Step::Pass(passed) => ms += passed,
            }
            for network in networks {
                let held = beliefs.held(network, at(ms));
                prop_assert!(held <= budget, "{held} of {budget}");
            }
        }
        let mut last = hosts.into_iter().flatten();
        if let (Some(id), None) = (last.next(), last.next()) {
            for n in 0..200 {
                leases.turn(at(ms + 100_000 + n * 5_000), 100, |_| Some(Segments(budget)));
            }
            prop_assert_eq!(leases.lease(id, network(1), Segments(budget), at(ms + 2_000_000)), Segments(budget));
        }
    }
}
