//! The hosts that report, by their certificate or address: what each reported, and its share of the compared transfers.
//!
//! A host is a certificate, or where none is asked for the address of its peer (IPv4, or an IPv6 /64). The name that it gives
//! itself is a label: a host that takes many names, or another's, stays one host.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use spand_core::mem::{allocated, listed, treed};
use spand_proto::comparison::{ARMS, CLASSES, Place};
use spand_proto::contract::{HostName, MAX_HOST_NAME_BYTES};
use spand_proto::push::PauseState;
use spand_proto::report::{Arm, PushCount, Report};
use spand_proto::start::RefusalReason;
use spand_proto::units::Timestamp;

use crate::publisher::Client;

/// Hosts report at least every ten seconds where there is something new; what was not reported again for so long is over.
const UNSEEN_SPAN: Duration = Duration::from_secs(60);

/// Names distinguished per host; several agents may run behind one address.
const NAMES: usize = 8;
/// Agents distinguished per host: each is a new one after a restart.
const AGENTS: usize = 64;
/// Hosts silent for longer make room before all others.
const SILENT: Duration = Duration::from_secs(24 * 60 * 60);

/// Transfers of one host in the comparison, by class and arm.
pub(super) type Counts = [[u32; ARMS.len()]; CLASSES.len()];

/// All hosts that report.
#[derive(Debug)]
pub(super) struct Hosts {
    known: BTreeMap<Client, Host>,
    limit: NonZeroUsize,
    /// Compared transfers of hosts that were forgotten.
    beyond: u64,
}

#[derive(Debug)]
struct Host {
    heard: Instant,
    /// The one heard last at the end.
    names: Vec<(HostName, NameHeard)>,
    /// The one heard last at the end.
    agents: Vec<NewestBatch>,
    compared: Counts,
}

/// The newest batch that was taken of an agent.
#[derive(Clone, Copy, Debug)]
struct NewestBatch {
    /// Checksum of the name that the agent gives itself.
    name: u32,
    /// When it started, by its host's clock: only to distinguish agents.
    started: Timestamp,
    /// The batch's number.
    batch: u64,
}

/// What is known of one name of a host; nothing where it did not say.
#[derive(Clone, Debug, Default)]
pub(in crate::api) struct NameHeard {
    pub(in crate::api) paused: Option<HostPause>,
    pub(in crate::api) tally: Option<HostTally>,
}

/// Whether advice is paused on a host, as it last reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::api) struct HostPause {
    pub(in crate::api) paused: bool,
    /// When that ends by itself.
    pub(in crate::api) until: Option<Timestamp>,
}

/// What a host reported under one name since the gateway started, or since it was forgotten.
#[derive(Clone, Debug)]
pub(in crate::api) struct HostTally {
    pub(in crate::api) heard: Instant,
    /// Transfers reported.
    pub(in crate::api) transfers: u64,
    /// Those that started on advice.
    pub(in crate::api) applied: u64,
    /// Those that were held out.
    pub(in crate::api) control: u64,
    /// Those that lost a segment of an advised first flight.
    pub(in crate::api) first_flight_losses: u64,
    /// Those that met a pause of advice on the host.
    pub(in crate::api) paused: u64,
    /// Those that the start function refused.
    pub(in crate::api) refused: BTreeMap<RefusalReason, u64>,
    pub(in crate::api) pushes: PushCount,
    /// When pushes whose connections the host does not see were reported last.
    unseen: Option<Instant>,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Whether it was not taken before.
    pub(super) is_new: bool,
    pub(super) hosts_forgotten: u64,
    pub(super) names_forgotten: u64,
}

/// Compared transfers by host.
#[derive(Debug, Default)]
pub(in crate::api) struct ByHost {
    /// Of hosts with any.
    pub(in crate::api) hosts: usize,
    /// By class and arm: how many hosts have any, and how many the one with the most has.
    pub(in crate::api) cells: [[(usize, u32); ARMS.len()]; CLASSES.len()],
    /// Of hosts that were forgotten.
    pub(in crate::api) beyond: u64,
}

impl Hosts {
    /// Memory in bytes of N hosts, in addition to their keys.
    pub(in crate::api) const fn bytes(hosts: usize) -> usize {
        let name = allocated(MAX_HOST_NAME_BYTES) + treed::<RefusalReason, u64>(12);
        let each = listed::<(HostName, NameHeard)>(NAMES) + NAMES * name + listed::<NewestBatch>(AGENTS);
        treed::<Client, Host>(hosts) + hosts.saturating_mul(each)
    }

    pub(super) fn new(limit: NonZeroUsize) -> Self {
        Self { known: BTreeMap::new(), limit, beyond: 0 }
    }

    /// Takes a batch of a host.
    pub(super) fn take(&mut self, client: &Client, report: &Report, (now, wall): (Instant, Timestamp)) -> Taken {
        let hosts_forgotten = self.make_room(client, now);
        let host = self.known.entry(client.clone()).or_insert_with(|| Host::new(now));
        host.heard = now;
        if !host.is_new(report) {
            return Taken { is_new: false, hosts_forgotten, names_forgotten: 0 };
        }
        let (heard, names_forgotten) = host.named(&report.host_name);
        if let Some(pause) = report.pause {
            heard.paused = Some(HostPause::of(pause, wall));
        }
        heard.tally.get_or_insert_with(|| HostTally::new(now)).take(report, now);
        Taken { is_new: true, hosts_forgotten, names_forgotten }
    }

    /// A host subscribed, with this state of a pause.
    pub(super) fn on_subscription(
        &mut self,
        (client, name): (&Client, &HostName),
        pause: Option<PauseState>,
        (now, wall): (Instant, Timestamp),
    ) -> Taken {
        if pause.is_none() && self.heard(client, name).is_none() {
            return Taken::default();
        }
        let hosts_forgotten = self.make_room(client, now);
        let host = self.known.entry(client.clone()).or_insert_with(|| Host::new(now));
        host.heard = now;
        let (heard, names_forgotten) = host.named(name);
        heard.paused = pause.map(|pause| HostPause::of(pause, wall));
        Taken { is_new: false, hosts_forgotten, names_forgotten }
    }

    /// Counts compared transfers of a host.
    pub(super) fn count(&mut self, client: &Client, places: &[Place]) {
        let Some(host) = self.known.get_mut(client) else {
            self.beyond = self.beyond.saturating_add(places.len() as u64);
            return;
        };
        for place in places {
            if let Some(count) = host.compared.get_mut(place.class).and_then(|arms| arms.get_mut(place.arm)) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// What a host reported under a name.
    pub(super) fn heard(&self, client: &Client, name: &HostName) -> Option<NameHeard> {
        let names = &self.known.get(client)?.names;
        names.iter().find(|(own, _)| own == name).map(|(_, heard)| heard.clone())
    }

    /// How compared transfers are spread over hosts.
    pub(super) fn by_host(&self) -> ByHost {
        let mut all = ByHost { beyond: self.beyond, ..ByHost::default() };
        for host in self.known.values() {
            all.hosts += usize::from(host.transfers() > 0);
            for ((hosts, most), count) in all.cells.iter_mut().flatten().zip(host.compared.iter().flatten()) {
                *hosts += usize::from(*count > 0);
                *most = (*most).max(*count);
            }
        }
        all
    }

    /// Makes room for a host, where it is another one: of those that were silent for a day, else of those with the fewest compared
    /// transfers (by powers of two), the one heard longest ago goes. So neither many that say little nor those that are gone
    /// keep others out. Gives how many went.
    fn make_room(&mut self, client: &Client, now: Instant) -> u64 {
        if self.known.len() < self.limit.get() || self.known.contains_key(client) {
            return 0;
        }
        let least = self.known.iter().min_by_key(|(_, host)| (host.worth(now), host.heard));
        let Some(least) = least.map(|(client, _)| client.clone()) else { return 0 };
        if let Some(gone) = self.known.remove(&least) {
            self.beyond = self.beyond.saturating_add(gone.transfers());
        }
        1
    }
}

impl Host {
    fn new(now: Instant) -> Self {
        Self { heard: now, names: Vec::new(), agents: Vec::new(), compared: Counts::default() }
    }

    /// The priority of keeping it: none if it was silent for a day.
    fn worth(&self, now: Instant) -> u32 {
        let silent = now.saturating_duration_since(self.heard) > SILENT;
        if silent { 0 } else { 1 + self.transfers().checked_ilog2().map_or(0, |magnitude| magnitude + 1) }
    }

    fn transfers(&self) -> u64 {
        self.compared.iter().flatten().copied().map(u64::from).sum()
    }

    /// Whether a batch was not taken before; from now on it was.
    fn is_new(&mut self, report: &Report) -> bool {
        let name = crc32fast::hash(report.host_name.as_str().as_bytes());
        let (started, batch) = (report.agent_started, report.batch);
        let known = self.agents.iter().position(|agent| (agent.name, agent.started) == (name, started));
        if known.and_then(|agent| self.agents.get(agent)).is_some_and(|agent| agent.batch >= batch) {
            return false;
        }
        // Without room the one that was silent for longest goes.
        if let Some(agent) = known.or((self.agents.len() >= AGENTS).then_some(0)) {
            self.agents.remove(agent);
        }
        self.agents.push(NewestBatch { name, started, batch });
        true
    }

    /// What is known of a name, which from now on is the one heard last, and how many names went for it.
    fn named(&mut self, name: &HostName) -> (&mut NameHeard, u64) {
        let known = self.names.iter().position(|(own, _)| own == name);
        let full = known.is_none() && self.names.len() >= NAMES;
        if let Some(at) = known.or(full.then_some(0)) {
            // Rotated, it is at the end, where a new one takes its place.
            self.names[at..].rotate_left(1);
        }
        if full {
            self.names.pop();
        }
        if known.is_none() {
            self.names.push((name.clone(), NameHeard::default()));
        }
        let last = self.names.len() - 1;
        (&mut self.names[last].1, u64::from(full))
    }
}

impl HostPause {
    fn of(state: PauseState, now: Timestamp) -> Self {
        match state {
            PauseState::Active => Self { paused: false, until: None },
            PauseState::Paused { remaining } => {
                Self { paused: true, until: remaining.map(|remaining| now.after(remaining)) }
            }
        }
    }
}

impl HostTally {
    /// Whether the host reported a short time ago that it does not see the connections of announced starts.
    pub(in crate::api) fn starts_unseen(&self) -> bool {
        self.unseen.is_some_and(|at| at.elapsed() < UNSEEN_SPAN)
    }

    fn new(heard: Instant) -> Self {
        Self {
            heard,
            transfers: 0,
            applied: 0,
            control: 0,
            first_flight_losses: 0,
            paused: 0,
            refused: BTreeMap::new(),
            pushes: PushCount::default(),
            unseen: None,
        }
    }

    fn take(&mut self, report: &Report, now: Instant) {
        self.heard = now;
        for connection in &report.connections {
            let advised = connection.advised.is_some();
            self.transfers += 1;
            self.applied += u64::from(advised);
            self.paused += u64::from(connection.paused);
            self.control += u64::from(connection.arm == Some(Arm::Control));
            self.first_flight_losses += u64::from(advised && connection.first_flight_loss == Some(true));
            if let Some(reason) = connection.refusal {
                *self.refused.entry(reason).or_default() += 1;
            }
        }
        let PushCount { received, in_time, late, unmatched } = report.pushes;
        if unmatched > 0 {
            self.unseen = Some(now);
        }
        let more = [received, in_time, late, unmatched];
        let pushes = &mut self.pushes;
        let counts = [&mut pushes.received, &mut pushes.in_time, &mut pushes.late, &mut pushes.unmatched];
        counts.into_iter().zip(more).for_each(|(count, more)| *count = count.saturating_add(more));
    }
}

#[cfg(test)]
mod tests {
    use spand_proto::units::Micros;

    use super::*;

    const PLACE: Place = Place { class: 1, arm: 0, duration: Micros(1) };

    fn certificate(name: &str) -> Client {
        Client::Certificate(name.to_owned())
    }

    fn report(name: &str, batch: u64) -> Report {
        Report {
            host_name: name.to_owned().try_into().unwrap(),
            batch,
            agent_started: Timestamp(1),
            connections: Vec::new(),
            pushes: PushCount::default(),
            pause: None,
        }
    }

    fn hosts(limit: usize) -> Hosts {
        Hosts::new(NonZeroUsize::new(limit).unwrap())
    }

    /// A batch of one compared transfer; whether it counted.
    fn send(hosts: &mut Hosts, client: &Client, report: &Report, now: Instant) -> bool {
        let taken = hosts.take(client, report, (now, Timestamp(0)));
        if taken.is_new {
            hosts.count(client, &[PLACE]);
        }
        taken.is_new
    }

    #[test]
    fn a_certificate_is_one_host_whatever_it_calls_itself() {
        let now = Instant::now();
        let mut all = hosts(10_000);
        let (liar, honest) = (certificate("liar"), certificate("honest"));
        assert!(send(&mut all, &honest, &report("web-1", 1), now));
        for n in 0..10_050 {
            assert!(send(&mut all, &liar, &report(&format!("made-up-{n}"), 1), now));
        }
        // In the name of another, too: neither its batches nor its tally are touched.
        assert!(send(&mut all, &liar, &report("web-1", 9), now));
        assert!(!send(&mut all, &honest, &report("web-1", 1), now), "an old batch is not counted again");
        assert!(send(&mut all, &honest, &report("web-1", 2), now));
        assert!(send(&mut all, &certificate("later"), &report("web-2", 1), now));
        let by_host = all.by_host();
        assert_eq!((by_host.hosts, by_host.beyond), (3, 0), "later ones are hosts, too");
        assert_eq!(by_host.cells[1][0], (3, 10_051));
        let host = &all.known[&liar];
        assert_eq!((host.names.len(), host.agents.len()), (NAMES, AGENTS));
        assert!(all.heard(&liar, &report("made-up-10049", 1).host_name).is_some(), "the name heard last is known");
        assert!(all.heard(&liar, &report("made-up-3", 1).host_name).is_none());
    }

    #[test]
    fn names_forgotten_are_counted_and_known_ones_are_not() {
        let now = Instant::now();
        let mut all = hosts(10);
        let client = certificate("nat");
        let mut gone = 0;
        for batch in 1..=3 {
            for n in 0..NAMES {
                gone += all.take(&client, &report(&format!("web-{n}"), batch), (now, Timestamp(0))).names_forgotten;
            }
        }
        assert_eq!(gone, 0);
        assert_eq!(all.take(&client, &report("web-8", 1), (now, Timestamp(0))).names_forgotten, 1);
        assert!(all.heard(&client, &report("web-0", 1).host_name).is_none(), "heard longest ago");
        assert!(!send(&mut all, &client, &report("web-0", 3), now), "its batches are known all the same");
    }

    #[test]
    fn many_that_say_little_do_not_displace_those_that_report_nor_keep_new_ones_out() {
        let now = Instant::now();
        let later = |s| now + Duration::from_secs(s);
        let mut all = hosts(100);
        for batch in 1..=64 {
            for n in 0..50 {
                send(&mut all, &certificate(&format!("busy-{n}")), &report("web", batch), now);
            }
        }
        let mut forgotten = 0;
        for n in 0..1_000 {
            let address = Client::Address(std::net::Ipv6Addr::from(n << 64).into());
            forgotten += all.take(&address, &report("made-up", 1), (later(1), Timestamp(0))).hosts_forgotten;
            all.count(&address, &[PLACE]);
        }
        assert_eq!((forgotten, all.by_host().beyond, all.known.len()), (950, 950, 100));
        assert!((0..50).all(|n| all.known.contains_key(&certificate(&format!("busy-{n}")))));
        let new = certificate("new");
        assert!(send(&mut all, &new, &report("web", 1), later(2)) && all.known.contains_key(&new));
        // A host that was silent for a day goes first, however much it had reported.
        let day = 2 + SILENT.as_secs();
        send(&mut all, &new, &report("web", 2), later(day));
        for n in 0..99 {
            send(&mut all, &certificate(&format!("next-{n}")), &report("web", 1), later(day));
        }
        assert!(all.known.contains_key(&new) && !all.known.contains_key(&certificate("busy-0")));
    }

    #[test]
    fn agents_that_report_from_one_address_are_distinguished_by_their_start() {
        let now = Instant::now();
        let mut all = hosts(10);
        let client = Client::Address([192, 0, 2, 1].into());
        let restarted = Report { agent_started: Timestamp(2), ..report("web-1", 1) };
        assert!(send(&mut all, &client, &report("web-1", 5), now));
        assert!(send(&mut all, &client, &restarted, now));
        assert!(send(&mut all, &client, &report("web-2", 5), now), "another behind the same address");
        assert!(!send(&mut all, &client, &report("web-1", 4), now));
    }
}
