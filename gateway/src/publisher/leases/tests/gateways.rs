//! Several gateways that lend each other parts: whatever is lost, late or dead, hosts hold no more than the budgets of all.

use proptest::prelude::*;

use super::*;

/// Longest delay of a message between gateways, and of a lease to a host.
const DELAY_MS: u64 = 10_000;
const TO_HOST_MS: u64 = 900;
const STEP_MS: u64 = 100;
/// Starts have ended by then, and leases of gateways without another word.
const QUIET_MS: u64 = 130_000;

#[derive(Clone, Debug)]
enum Event {
    /// A start of a host, seen by a gateway's tap.
    Start {
        host: usize,
        tap: usize,
    },
    /// A connection of it is established.
    Confirm {
        host: usize,
        tap: usize,
    },
    /// A host goes to a gateway; it may have been at another one.
    Join {
        host: usize,
        gateway: usize,
    },
    Leave {
        host: usize,
    },
    /// A gateway dies.
    Die(usize),
    /// One takes another for gone, and hears of it again.
    Lost {
        at: usize,
        of: usize,
    },
    Found {
        at: usize,
        of: usize,
    },
    /// Messages are lost from now on, or no longer.
    Cut(bool),
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Lease(Lease),
    Settled(Timestamp),
    Start { host: usize },
}

#[derive(Debug, Default)]
struct Host {
    seat: Option<(usize, u64)>,
    /// What it may use.
    holds: u32,
    /// Until then, if it has left its gateway and another one gives it nothing else.
    until: Option<u64>,
    /// When its leases are read.
    reads: Vec<u64>,
}

struct World {
    gateways: Vec<Option<Leases>>,
    own: Vec<u32>,
    hosts: Vec<Host>,
    /// When it arrives, its number, from and to.
    under_way: Vec<(u64, u64, usize, usize, Message)>,
    taken: BTreeMap<(usize, usize), u64>,
    number: u64,
    is_cut: bool,
    /// Delays; none is a loss.
    delays: Vec<Option<u64>>,
    sent: usize,
}

fn of(gateway: usize) -> GatewayId {
    GatewayId(u16::try_from(gateway).unwrap())
}

fn index(GatewayId(gateway): GatewayId) -> usize {
    gateway.into()
}

impl World {
    fn new(own: Vec<u32>, hosts: usize, delays: Vec<Option<u64>>) -> Self {
        let all = own.len();
        let gateway = |own: usize| {
            let mut leases = Leases::new(LIFETIME, 100, 1_000_000, 1_000);
            for other in (0..all).filter(|other| *other != own) {
                leases.gateway_came(of(other), at(0)).unwrap();
            }
            Some(leases)
        };
        let gateways = (0..all).map(gateway).collect();
        let hosts = (0..hosts).map(|_| Host::default()).collect();
        let (under_way, taken) = (Vec::new(), BTreeMap::new());
        Self { gateways, own, hosts, under_way, taken, number: 0, is_cut: false, delays, sent: 0 }
    }

    fn send(&mut self, from: usize, to: usize, messages: &[Message], ms: u64) {
        self.sent += 1;
        self.number += 1;
        let delay = self.delays[self.sent % self.delays.len()];
        if let (Some(delay), false) = (delay, self.is_cut) {
            let arrives = ms + delay;
            self.under_way.extend(messages.iter().map(|message| (arrives, self.number, from, to, *message)));
        }
    }

    fn start(&mut self, host: usize, tap: usize, ms: u64) {
        let Some((seat, id)) = self.hosts[host].seat else { return };
        let own = Segments(self.own[tap]);
        let Some(leases) = self.gateways[tap].as_mut() else { return };
        if tap == seat {
            leases.start(id, network(1), own, at(ms));
            self.read(host, ms);
        } else {
            let lease = leases.start_elsewhere(of(seat), network(1), own, at(ms));
            let lease = lease.map(Message::Lease);
            self.send(tap, seat, &lease.into_iter().chain([Message::Start { host }]).collect::<Vec<_>>(), ms);
        }
    }

    /// A host reads its lease.
    fn read(&mut self, host: usize, ms: u64) {
        let Some((seat, id)) = self.hosts[host].seat else { return };
        let own = Segments(self.own[seat]);
        if let Some(leases) = self.gateways[seat].as_mut() {
            self.hosts[host].holds = leases.lease(id, network(1), own, at(ms)).0;
            self.hosts[host].until = None;
        }
    }

    /// A host no longer hears its gateway, and goes on with what it holds.
    fn part(&mut self, host: usize, ms: u64) {
        let host = &mut self.hosts[host];
        if host.seat.take().is_some() {
            // What it has of one before, no other renews.
            host.until = host.until.or(Some(ms + LIFETIME.0 / 1_000));
            host.reads.clear();
        }
    }

    fn happens(&mut self, event: &Event, ms: u64) {
        let gateways = self.own.len();
        match *event {
            Event::Start { host, tap } => self.start(host % self.hosts.len(), tap % gateways, ms),
            Event::Confirm { host, tap } => {
                let (host, tap) = (host % self.hosts.len(), tap % gateways);
                let Some((seat, id)) = self.hosts[host].seat else { return };
                let Some(leases) = self.gateways[tap].as_mut() else { return };
                if seat == tap {
                    leases.confirm(id, network(1), at(ms));
                } else {
                    leases.confirm_elsewhere(of(seat), network(1), at(ms));
                }
            }
            Event::Join { host, gateway } => {
                let (host, gateway) = (host % self.hosts.len(), gateway % gateways);
                self.happens(&Event::Leave { host }, ms);
                let Some(leases) = self.gateways[gateway].as_mut() else { return };
                let address = super::host(u8::try_from(host).unwrap());
                let joined = leases.join(&address, at(ms)).unwrap();
                self.hosts[host].seat = Some((gateway, joined.host));
                self.hosts[host].reads.push(ms + TO_HOST_MS);
                let again = joined.request_snapshot;
                let all = self.hosts.iter_mut();
                for other in all.filter(|other| other.seat.is_some_and(|(at, id)| at == gateway && Some(id) == again)) {
                    other.reads.push(ms + TO_HOST_MS);
                }
            }
            Event::Leave { host } => {
                let host = host % self.hosts.len();
                let Some((seat, id)) = self.hosts[host].seat else { return };
                self.gateways[seat].iter_mut().for_each(|leases| leases.leave(id, at(ms)));
                self.part(host, ms);
            }
            Event::Die(gateway) => {
                let gateway = gateway % gateways;
                self.gateways[gateway] = None;
                let of_it = |host: &usize| self.hosts[*host].seat.is_some_and(|(seat, _)| seat == gateway);
                let hosts: Vec<_> = (0..self.hosts.len()).filter(of_it).collect();
                for host in hosts {
                    self.part(host, ms);
                }
            }
            Event::Lost { at: own, of: other } if own % gateways != other % gateways => {
                let leases = self.gateways[own % gateways].iter_mut();
                leases.for_each(|leases| leases.gateway_left(of(other % gateways), at(ms)));
            }
            Event::Found { at: own, of: other } if own % gateways != other % gateways => {
                let leases = self.gateways[own % gateways].iter_mut();
                leases.for_each(|leases| assert!(leases.gateway_came(of(other % gateways), at(ms)).is_ok()));
            }
            Event::Lost { .. } | Event::Found { .. } => {}
            Event::Cut(is_cut) => self.is_cut = is_cut,
        }
    }

    fn arrive(&mut self, ms: u64) {
        self.under_way.sort_by_key(|(arrives, number, ..)| (*arrives, *number));
        let arrived = self.under_way.partition_point(|(arrives, ..)| *arrives <= ms);
        let arrived: Vec<_> = self.under_way.drain(..arrived).collect();
        for (_, number, from, to, message) in arrived {
            let taken = self.taken.entry((from, to)).or_default();
            if number < *taken {
                continue;
            }
            *taken = number;
            // As by a clock that is ahead by as much as the message was late.
            let sent = at(ms);
            let Some(leases) = self.gateways[to].as_mut() else { continue };
            match message {
                Message::Lease(lease) => {
                    for (gateway, as_of) in leases.take_lease(of(from), (network(1), lease), sent, at(ms)) {
                        self.send(to, index(gateway), &[Message::Settled(as_of)], ms);
                    }
                }
                Message::Settled(as_of) => leases.settle(of(from), network(1), as_of, at(ms)),
                Message::Start { host } if self.hosts[host].seat.is_some_and(|(seat, _)| seat == to) => {
                    self.start(host, to, ms);
                }
                Message::Start { .. } => {}
            }
        }
    }

    fn turn(&mut self, ms: u64) {
        self.arrive(ms);
        for gateway in 0..self.own.len() {
            let own = Segments(self.own[gateway]);
            let Some(leases) = self.gateways[gateway].as_mut() else { continue };
            let Turned { changed, lent, settled } = leases.turn(at(ms), 100, |_| Some(own));
            for (id, _) in changed {
                let of_it = |host: &&mut Host| host.seat == Some((gateway, id));
                self.hosts.iter_mut().filter(of_it).for_each(|host| host.reads.push(ms + TO_HOST_MS));
            }
            for (to, _, lease) in lent {
                self.send(gateway, index(to), &[Message::Lease(lease)], ms);
            }
            for (to, _, as_of) in settled {
                self.send(gateway, index(to), &[Message::Settled(as_of)], ms);
            }
        }
        for host in 0..self.hosts.len() {
            let before = self.hosts[host].reads.len();
            self.hosts[host].reads.retain(|reads| *reads > ms);
            if self.hosts[host].reads.len() < before {
                self.read(host, ms);
                if let Some((seat, id)) = self.hosts[host].seat {
                    self.gateways[seat].iter_mut().for_each(|leases| leases.all_advertised(id, at(ms)));
                }
            }
            if self.hosts[host].until.is_some_and(|until| until <= ms) {
                self.hosts[host].holds = 0;
            }
        }
    }

    fn held(&self) -> u32 {
        self.hosts.iter().map(|host| host.holds).sum()
    }
}

fn event() -> impl Strategy<Value = Event> {
    let (host, gateway) = (0..6_usize, 0..4_usize);
    prop_oneof![
        12 => (host.clone(), gateway.clone()).prop_map(|(host, tap)| Event::Start { host, tap }),
        6 => (host.clone(), gateway.clone()).prop_map(|(host, tap)| Event::Confirm { host, tap }),
        4 => (host.clone(), gateway.clone()).prop_map(|(host, gateway)| Event::Join { host, gateway }),
        2 => host.prop_map(|host| Event::Leave { host }),
        1 => gateway.clone().prop_map(Event::Die),
        1 => (gateway.clone(), gateway.clone()).prop_map(|(at, of)| Event::Lost { at, of }),
        2 => (gateway.clone(), gateway).prop_map(|(at, of)| Event::Found { at, of }),
        1 => any::<bool>().prop_map(Event::Cut),
    ]
}

proptest! {
    // PROPTEST_CASES=10000 for more.
    #![proptest_config(ProptestConfig::default())]
    #[test]
    fn hosts_of_all_gateways_hold_no_more_than_all_budgets(
        own in prop::collection::vec(0..60u32, 2..=4),
        events in prop::collection::vec((0..4_000u64, event()), 1..60),
        delays in prop::collection::vec(prop::option::weighted(0.8, prop_oneof![3 => 0..50u64, 1 => 0..DELAY_MS]), 1..40),
    ) {
        let budget: u32 = own.iter().sum();
        let mut world = World::new(own, 6, delays);
        (0..6).for_each(|host| world.happens(&Event::Join { host, gateway: host }, 0));
        let (mut ms, mut happens) = (0, 0);
        for (after, event) in events.iter().map(|(after, event)| (*after, Some(event))).chain([(QUIET_MS, None)]) {
            happens += after;
            while ms < happens {
                world.turn(ms);
                prop_assert!(world.held() <= budget, "{} of {budget} held at {ms} ms: {:?}", world.held(), world.hosts);
                ms += STEP_MS;
            }
            event.inspect(|event| world.happens(event, happens));
            prop_assert!(world.held() <= budget, "{} of {budget} held at {happens} ms after {event:?}", world.held());
        }
    }
}

/// Two gateways, each with a host; the second's host sends through the first's tap alone.
fn two(own: [u32; 2]) -> World {
    let mut world = World::new(own.to_vec(), 2, vec![Some(1)]);
    (0..2).for_each(|host| world.happens(&Event::Join { host, gateway: host }, 0));
    (0..20).for_each(|step| world.turn(step * STEP_MS));
    world
}

fn run(world: &mut World, from_ms: u64, to_ms: u64) {
    (from_ms..to_ms).step_by(100).for_each(|ms| world.turn(ms));
}

#[test]
fn a_host_gets_its_part_of_the_budget_of_the_tap_that_sees_it() {
    let mut world = two([40, 0]);
    world.start(1, 0, 2_000);
    run(&mut world, 2_000, 2_200);
    assert_eq!(world.hosts[1].holds, 10, "what is kept back, with its first start");
    (0..10).for_each(|_| world.start(1, 0, 2_500));
    (0..10).for_each(|_| world.start(0, 0, 2_500));
    run(&mut world, 2_500, 8_000);
    assert!((14..=16).contains(&world.hosts[1].holds) && world.hosts[0].holds >= 13, "{:?}", world.hosts);

    // Its demand is over: what was lent is divided again, once it is not held any more.
    run(&mut world, 8_000, 400_000);
    (0..10).for_each(|_| world.start(0, 0, 400_000));
    run(&mut world, 400_000, 415_000);
    assert_eq!((world.hosts[0].holds, world.hosts[1].holds), (30, 0));
}

#[test]
fn what_was_lent_to_a_gateway_that_died_is_held_until_its_hosts_have_let_go() {
    let mut world = two([40, 0]);
    (0..10).for_each(|_| world.start(1, 0, 2_000));
    run(&mut world, 2_000, 5_000);
    assert_eq!(world.hosts[1].holds, 30);
    world.happens(&Event::Die(1), 5_000);
    (0..10).for_each(|_| world.start(0, 0, 5_000));
    run(&mut world, 5_000, 20_000);
    world.happens(&Event::Lost { at: 0, of: 1 }, 20_000);
    run(&mut world, 20_000, 115_000);
    assert_eq!(world.hosts[0].holds, 8, "three quarters of what is left, until its lease has ended");
    run(&mut world, 115_000, 195_000);
    (0..10).for_each(|_| world.start(0, 0, 195_000));
    run(&mut world, 195_000, 197_000);
    assert_eq!(world.hosts[0].holds, 40, "the only host again");
}
