//! Which host gets which part and when, and that hosts never hold more than the budget.

mod gateways;

use proptest::prelude::*;

use super::*;

const LIFETIME: Micros = Micros::from_secs(60);

fn at(ms: u64) -> Timestamp {
    Timestamp::default().after(Micros::from_millis(1_000_000 + ms))
}

fn network(n: u8) -> Network {
    Network::of([198, 51, n, 1].into())
}

fn host(n: u8) -> [IpAddr; 1] {
    [[10, 0, 0, n].into()]
}

/// Leases with one budget in every network.
struct Rig {
    leases: Leases,
    budget: u32,
}

impl Rig {
    fn new(budget: u32) -> Self {
        Self { leases: Leases::new(LIFETIME, 100, 1_000_000, 1_000), budget }
    }

    fn join(&mut self, n: u8, ms: u64) -> u64 {
        self.leases.join(&host(n), at(ms)).unwrap().host
    }

    fn start(&mut self, id: u64, ms: u64) {
        assert!(self.leases.start(id, network(1), Segments(self.budget), at(ms)));
    }

    fn turn(&mut self, ms: u64) -> Vec<(u64, Network)> {
        let budget = self.budget;
        self.leases.turn(at(ms), 100, |_| Some(Segments(budget))).changed
    }

    /// Turns during two seconds: enough for messages to arrive and free parts to be granted.
    fn settle(&mut self, ms: u64) {
        (0..=20).for_each(|n| drop(self.turn(ms + n * 100)));
    }

    fn lease(&mut self, id: u64, ms: u64) -> u32 {
        self.leases.lease(id, network(1), Segments(self.budget), at(ms)).0
    }
}

#[test]
fn the_only_host_has_all_of_every_budget_with_demand_and_without() {
    let mut rig = Rig::new(40);
    let one = rig.join(1, 0);
    assert_eq!(rig.lease(one, 0), 40);
    rig.start(one, 1);
    assert_eq!(rig.lease(one, 1), 40);
    rig.settle(600);
    assert_eq!(rig.lease(one, 2_600), 40);
    rig.settle(400_000);
    assert_eq!((rig.lease(one, 402_000), rig.leases.len()), (40, 0), "nothing is kept of demand that is long over");
}

#[test]
fn several_hosts_have_parts_by_their_starts_and_one_without_has_none() {
    let mut rig = Rig::new(40);
    let hosts = [1, 2, 3].map(|n| rig.join(n, 0));
    rig.leases.all_advertised(hosts[0], at(0));
    let [one, two, three] = hosts;
    (0..20).for_each(|_| rig.start(one, 2_000));
    (0..10).for_each(|_| rig.start(two, 2_000));
    rig.settle(3_000);
    assert_eq!(hosts.map(|id| rig.lease(id, 6_000)), [20, 10, 0], "three quarters, two to one");
    rig.start(three, 6_000);
    assert_eq!(rig.lease(three, 6_000), 10, "what is kept back, at its first start");
    rig.settle(6_500);
    assert_eq!(rig.lease(three, 9_000), 1, "its part of the demand");
    (0..60).for_each(|_| rig.start(three, 9_000));
    rig.settle(20_000);
    assert_eq!(hosts.map(|id| rig.lease(id, 22_000)).iter().sum::<u32>(), 30);
    assert!(rig.lease(three, 22_000) >= 18, "demand moved");
}

#[test]
fn what_is_taken_is_given_only_when_the_news_have_come() {
    let mut rig = Rig::new(40);
    let [one, two] = [1, 2].map(|n| rig.join(n, 0));
    rig.leases.all_advertised(one, at(0));
    rig.start(one, 2_000);
    rig.settle(3_000);
    assert_eq!(rig.lease(one, 5_000), 30);
    (0..100).for_each(|_| rig.start(two, 20_000));
    assert_eq!(rig.lease(two, 20_000), 10);
    let changed = rig.turn(20_500);
    assert!(changed.contains(&(one, network(1))), "{changed:?}");
    assert_eq!((rig.lease(one, 20_500), rig.lease(two, 20_500)), (0, 10), "taken and not granted yet");
    (20_600..21_500).step_by(100).for_each(|ms| assert_eq!(rig.turn(ms), []));
    rig.settle(21_500);
    assert_eq!(rig.lease(two, 23_500), 30);
}

#[test]
fn the_second_host_waits_until_the_first_no_longer_has_the_whole_budget() {
    let mut rig = Rig::new(40);
    let one = rig.join(1, 0);
    assert_eq!(rig.lease(one, 0), 40);
    let Joined { host: two, request_snapshot } = rig.leases.join(&host(2), at(10)).unwrap();
    assert_eq!(request_snapshot, Some(one));
    rig.start(two, 20);
    rig.settle(600);
    assert_eq!((rig.lease(one, 3_000), rig.lease(two, 3_000)), (0, 0));
    rig.leases.all_advertised(one, at(3_000));
    rig.start(two, 3_900);
    assert_eq!(rig.lease(two, 3_900), 0);
    rig.start(two, 4_000);
    assert_eq!(rig.lease(two, 4_000), 10);

    let mut rig = Rig::new(40);
    rig.join(1, 0);
    let two = rig.join(2, 10);
    rig.start(two, 61_000);
    assert_eq!(rig.lease(two, 61_000), 0);
    rig.start(two, 61_010);
    assert_eq!(rig.lease(two, 61_010), 10, "advice that was not renewed is over, whether or not the first one reads");
}

#[test]
fn a_host_that_is_gone_holds_its_lease_for_the_lifetime_of_advice_unless_it_comes_back() {
    let mut rig = Rig::new(40);
    let [one, two] = [1, 2].map(|n| rig.join(n, 0));
    rig.leases.all_advertised(one, at(0));
    rig.start(one, 2_000);
    rig.settle(3_000);
    rig.leases.leave(one, at(6_000));
    (0..3).for_each(|_| rig.start(two, 6_000));
    rig.settle(64_000);
    assert_eq!(rig.lease(two, 66_999), 8, "of the ten that the other does not hold, less what is kept back");
    assert_eq!(rig.join(1, 66_999), one, "the same addresses are the same host");
    assert_eq!(rig.lease(one, 66_999), 30);
    rig.leases.leave(one, at(67_000));
    rig.start(two, 128_100);
    rig.settle(128_200);
    assert_eq!(rig.lease(two, 131_000), 40, "the other is forgotten, and this one alone");
}

#[test]
fn agents_with_the_same_addresses_have_no_more_together_than_one_would() {
    let mut rig = Rig::new(40);
    let one = rig.join(1, 0);
    assert_eq!(rig.lease(one, 0), 40);
    assert_eq!(rig.leases.join(&host(1), at(10)), Ok(Joined { host: one, request_snapshot: Some(one) }));
    assert_eq!(rig.lease(one, 10), 20, "each");
    rig.start(one, 20);
    rig.settle(600);
    assert_eq!(rig.lease(one, 3_000), 20, "of a lease by demand as well");
    rig.leases.leave(one, at(4_000));
    assert_eq!(rig.lease(one, 64_999), 20, "a host that is gone may still use its lease");
    assert_eq!(rig.lease(one, 65_000), 40);

    // One that comes back after its stream ended.
    rig.leases.leave(one, at(70_000));
    assert_eq!(rig.leases.join(&host(1), at(71_000)), Ok(Joined { host: one, request_snapshot: None }));
    assert_eq!(rig.lease(one, 71_000), 40);
}

#[test]
fn a_budget_that_shrinks_is_cut_at_the_next_turn() {
    let mut rig = Rig::new(40);
    let hosts = [1, 2].map(|n| rig.join(n, 0));
    rig.leases.all_advertised(hosts[0], at(0));
    for id in hosts {
        rig.start(id, 2_000);
    }
    rig.settle(3_000);
    assert_eq!(hosts.map(|id| rig.lease(id, 5_000)), [15, 15]);
    rig.budget = 8;
    rig.leases.moved(network(1), at(5_000));
    assert_eq!(rig.turn(5_000).len(), 2);
    assert_eq!(hosts.map(|id| rig.lease(id, 5_000)), [3, 3]);
    rig.leases.turn(at(16_000), 100, |_| None);
    assert_eq!((rig.leases.len(), rig.lease(hosts[0], 16_000)), (0, 0), "no estimate, no leases");
}

#[test]
fn networks_with_demand_are_bounded() {
    let mut leases = Leases::new(LIFETIME, 2, 1_000_000, 1_000);
    let one = leases.join(&host(1), at(0)).unwrap().host;
    let starts = [1, 2, 3, 1].map(|n| leases.start(one, network(n), Segments(10), at(1)));
    assert_eq!((starts, leases.len(), leases.due.len()), ([true, true, false, true], 2, 2));
}

#[test]
fn parts_in_budgets_are_bounded_and_come_free_with_their_networks() {
    let mut leases = Leases::new(LIFETIME, 100, 2, 1_000);
    let [one, two] = [1, 2].map(|n| leases.join(&host(n), at(0)).unwrap().host);
    let starts = [(one, 1), (two, 1), (one, 2), (two, 2), (one, 1)];
    let starts = starts.map(|(id, n)| leases.start(id, network(n), Segments(10), at(1)));
    assert_eq!((starts, leases.parts, leases.len()), ([true, true, false, false, true], 2, 1));
    // The part of a host that is gone is freed with a division, and the last part with the network.
    leases.leave(two, at(2));
    leases.turn(at(62_000), 10, |_| Some(Segments(10)));
    assert_eq!(leases.parts, leases.pools.values().map(Pool::len).sum::<usize>());
    assert!(leases.start(one, network(2), Segments(10), at(62_001)), "one came free");
    leases.turn(at(600_000), 10, |_| None);
    assert_eq!((leases.parts, leases.len()), (0, 0));
}

#[test]
fn hosts_are_bounded_and_one_that_is_gone_has_its_place_until_its_leases_have_ended() {
    let mut leases = Leases::new(LIFETIME, 100, 1_000_000, 2);
    let [one, _] = [1, 2].map(|n| leases.join(&host(n), at(0)).unwrap().host);
    assert_eq!(leases.join(&host(3), at(0)), Err(TooManyHosts(2)));
    leases.leave(one, at(10));
    assert_eq!(leases.join(&host(3), at(61_009)), Err(TooManyHosts(2)), "it may still use its lease");
    assert_eq!(leases.join(&host(1), at(61_009)).map(|joined| joined.host), Ok(one), "a known host is accepted");
    leases.leave(one, at(62_000));
    assert_eq!(leases.join(&host(3), at(122_999)), Err(TooManyHosts(2)));
    assert_eq!(leases.join(&host(3), at(123_000)).map(|joined| joined.host), Ok(2), "its leases have ended");
    assert_eq!(leases.host_count(), 2);
    assert!((0..1_000u32).all(|n| leases.join(&[IpAddr::from(n.to_be_bytes())], at(123_000)).is_err()));
    assert_eq!(leases.host_count(), 2, "a refused host leaves nothing");
}

#[test]
fn a_turn_begins_no_further_pool_once_it_looked_at_many_parts() {
    let mut leases = Leases::new(LIFETIME, 100, 1_000_000, 1_000);
    let hosts = (0..300u32).map(|n| leases.join(&[IpAddr::from(n.to_be_bytes())], at(0)).unwrap().host);
    let hosts: Vec<_> = hosts.collect();
    for (n, id) in (1..=30).flat_map(|n| hosts.iter().map(move |id| (n, *id))) {
        assert!(leases.start(id, network(n), Segments(40), at(1)));
    }
    // 7 pools of 300 hosts are the first to reach 2,048 parts.
    let left: Vec<_> = std::iter::from_fn(|| {
        let more = leases.is_due(at(600));
        leases.turn(at(600), 100, |_| Some(Segments(40)));
        more.then(|| leases.due.iter().filter(|(due, _)| *due <= at(600)).count())
    })
    .collect();
    assert_eq!(left, [23, 16, 9, 2, 0]);
}

#[test]
fn starts_of_which_no_connection_came_take_no_lease_from_a_host_whose_connections_are_established() {
    let mut rig = Rig::new(40);
    let [one, two] = [1, 2].map(|n| rig.join(n, 0));
    rig.leases.all_advertised(one, at(0));
    for _ in 0..20 {
        rig.start(one, 2_000);
        rig.leases.confirm(one, network(1), at(2_050));
    }
    rig.settle(3_000);
    assert_eq!(rig.lease(one, 6_000), 30, "three quarters");
    // Ten thousand SYNs towards the other host, in half a minute, and no handshake.
    for ms in (6_000..36_000).step_by(100) {
        (0..33).for_each(|_| rig.start(two, ms));
        rig.turn(ms);
        assert_eq!(rig.lease(one, ms), 30);
        assert!(rig.lease(two, ms) <= 10, "no more than what is kept back");
    }
    // What is established counts at once, by what it is.
    (0..14).for_each(|_| rig.leases.confirm(two, network(1), at(36_000)));
    rig.settle(36_500);
    let leases = [one, two].map(|id| rig.lease(id, 38_600));
    assert!(leases.iter().all(|lease| (13..=17).contains(lease)), "half to each: {leases:?}");
}

// Hosts never use more than the budget, whatever happens.

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
