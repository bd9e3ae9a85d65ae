//! The engine's side of connections: the one that a segment belongs to, its beginning and its end. What the segment means
//! there is [`crate::flow::connection`]'s.

use std::net::{IpAddr, SocketAddr};

use super::{EVENTS_PER_STEP, Engine};
use crate::config::FlowReports;
use crate::counters::Ignored;
use crate::event::{Established, Event, StartImminent};
use crate::flow::connection::{Connection, Imminent, Repeated, Role, Stage};
use crate::flow::passed::LATE;
use crate::flow::report::DirectionReport;
use crate::flow::sink::{FlowContext, Place};
use crate::flow::table::{FlowTable, Key, Room};
use crate::flow::tuple::{Side, Tuple};
use crate::shard::Claim;
use crate::types::{ConnectionId, SampleRate};
use crate::wire::segment::{Flags, Segment};

/// Whether a segment of a known connection opens the next one.
enum Opens {
    /// It is that connection's.
    Nothing,
    /// It is a SYN, or an answer to one, and the connection goes on.
    Ignored,
    /// It does.
    Another,
}

impl Engine {
    /// Gives a segment to its connection. Not in line: it is called from two places, and large.
    #[inline(never)]
    pub(super) fn handle_segment(&mut self, segment: &Segment, input: u32, claim: Claim) {
        let claim = match claim {
            Claim::Unknown => self.part.claim_segment(segment.source.address, segment.destination.address),
            known => known,
        };
        if claim == Claim::Nothing {
            return;
        }
        self.counters.segments += u64::from(claim == Claim::Home);
        let (tuple, side) = Tuple::of(segment.source, segment.destination);
        let mut found = self.flows.find(&tuple);
        if let Some(key) = found
            && (segment.flags.has(Flags::SYN) || self.flows.get(key).is_some_and(Connection::has_ignored_syn))
        {
            match self.opens(key, side, segment) {
                Opens::Nothing => {}
                Opens::Ignored => return self.counters.ignore(Ignored::SynNotAnswered),
                Opens::Another => {
                    self.end(key);
                    found = None;
                }
            }
        }
        let Some(key) = found.or_else(|| self.open(tuple, side, segment, claim)) else { return };
        self.take(key, side, segment, Place { input, frame: self.counters.frames, timed: !self.untimed });
    }

    /// Whether a segment of a known connection opens the next one.
    #[cold]
    fn opens(&mut self, key: Key, side: Side, segment: &Segment) -> Opens {
        let Some(connection) = self.flows.get_mut(key) else { return Opens::Nothing };
        if connection.is_replaced_by(side, segment) {
            Opens::Another
        } else if !segment.flags.has(Flags::SYN) {
            Opens::Nothing
        } else if connection.has_no_use_for(side, segment) {
            Opens::Ignored
        } else if !connection.is_reused_by(side, segment) {
            Opens::Nothing
        } else if connection.is_live() {
            connection.ignore_syn(side, segment);
            Opens::Ignored
        } else {
            Opens::Another
        }
    }

    fn take(&mut self, key: Key, side: Side, segment: &Segment, place: Place) {
        let (flows, mut context) = self.apart();
        let now = context.now;
        let take = |connection: &mut Connection| {
            let before = connection.stage();
            let reaction = connection.take(side, segment, place, &mut context);
            let established = before == Stage::Opening && connection.stage() == Stage::Established;
            ((reaction, established), connection.idleness())
        };
        let Some((reaction, established)) = flows.take(key, now, take) else { return };
        if let Some(deadline) = reaction.look_at {
            flows.arm(key, deadline);
        }
        if reaction.closed {
            self.report_closed(key);
        }
        if let Some(imminent) = reaction.imminent {
            self.announce(segment, imminent);
        }
        if established {
            self.queue_established(segment.source.address, segment.destination.address);
            self.queue_established(segment.destination.address, segment.source.address);
        }
        if let Some(room) = self.flows.over() {
            self.make_room(room);
        }
    }

    /// Memory is over a limit: connections give room, or go, until it is not.
    #[cold]
    fn make_room(&mut self, first: Room) {
        let mut next = Some(first);
        while let Some(room) = next {
            match room {
                Room::Give(key) => {
                    self.counters.ignore(Ignored::SegmentMemory);
                    if let Some(connection) = self.flows.get_mut(key) {
                        connection.give_room();
                    }
                    self.flows.account(key, self.now);
                }
                Room::End(key) => self.evict(key),
            }
            next = self.flows.over();
        }
    }

    /// There is no room for a connection.
    fn evict(&mut self, key: Key) {
        self.counters.ignore(Ignored::NoRoom);
        let stage = self.flows.get(key).map(Connection::stage);
        self.counters.connections_evicted += 1;
        self.counters.established_evicted += u64::from(stage == Some(Stage::Established));
        self.end(key);
    }

    /// Makes room and adds the connection that `segment` belongs to.
    fn open(&mut self, tuple: Tuple, side: Side, segment: &Segment, claim: Claim) -> Option<Key> {
        if self.sheds(segment) {
            self.counters.ignore(Ignored::Shed);
            return None;
        }
        let from = self.role(segment.source.address, segment.destination.address);
        let to = self.role(segment.destination.address, segment.source.address);
        if self.is_own(segment) {
            if claim == Claim::Home {
                self.counters.ignore(Ignored::OwnTraffic);
            }
            return None;
        }
        if !self.prefixes.is_bare() && !from.inside && !to.inside {
            self.counters.ignore(Ignored::NotInternal);
            return None;
        }
        let rate = self.sample(&tuple, [from, to], segment)?;
        if self.flows.is_full() {
            let oldest = self.flows.least_wanted()?;
            self.evict(oldest);
        }
        let home = claim == Claim::Home;
        let ends = [segment.source, segment.destination].map(|end| (end.address, end.port));
        let id = self.networks.connection(ends, segment.seq).unwrap_or_else(|| {
            self.next_connection += 1;
            ConnectionId(self.next_connection - 1)
        });
        self.counters.connections += u64::from(home);
        self.counters.connections_midstream += u64::from(home && !segment.flags.has(Flags::SYN));
        let roles = match side {
            Side::Low => [from, to],
            Side::High => [to, from],
        };
        let reports = if home { self.config.flow_reports } else { FlowReports::None };
        self.flows.insert(tuple, Connection::new(id, roles, home, reports, (rate, self.now)), self.now)
    }

    /// Whether one end is a listener of the gateway: its subscriptions would make its agents' hosts networks.
    pub(super) fn is_own(&self, segment: &Segment) -> bool {
        let ends = [segment.source, segment.destination];
        ends.iter().any(|end| self.config.own_listeners.contains(&SocketAddr::new(end.address, end.port)))
    }

    /// Who `address` is to us in a connection with `peer`.
    pub(super) fn role(&self, address: IpAddr, peer: IpAddr) -> Role {
        let inside = self.prefixes.is_internal(address);
        let follow = (inside || self.prefixes.is_bare()) && self.part.owns(|| self.prefixes.network_of(peer));
        Role { inside, follow }
    }

    /// The connections, and what one of them works with.
    #[inline]
    fn apart(&mut self) -> (&mut FlowTable, FlowContext<'_>) {
        let Self { config, prefixes, flows, networks, ledger, hosts, services, counters, now, .. } = self;
        let context = FlowContext {
            limits: &config.limits,
            read_window_option: config.read_window_option,
            prefixes,
            ledger,
            hosts,
            services,
            counters,
            findings: networks,
            now: *now,
            bad_times: None,
            rate: SampleRate::ALL,
            patience: LATE,
        };
        (flows, context)
    }

    pub(super) fn look(&mut self, key: Key) {
        let (flows, mut context) = self.apart();
        let Some((tuple, last_at, connection)) = flows.entry_mut(key) else { return };
        let deadline = connection.look(context.now, &mut context);
        if context.patience < LATE {
            connection.hand_over(tuple.addresses(), Repeated::NONE, (last_at, false), &mut context);
        }
        flows.account(key, context.now);
        if let Some(deadline) = deadline {
            flows.arm(key, deadline);
        }
    }

    /// A connection has fallen silent: its networks get what they do not have yet.
    pub(super) fn hand_over(&mut self, key: Key) {
        let (flows, mut context) = self.apart();
        if let Some((tuple, last_at, connection)) = flows.entry_mut(key) {
            connection.hand_over(tuple.addresses(), Repeated::NONE, (last_at, false), &mut context);
        }
        self.take_network_events();
    }

    pub(super) fn end(&mut self, key: Key) {
        let Some((tuple, last_at, _)) = self.flows.entry_mut(key) else { return };
        let ended = (tuple.addresses(), last_at);
        let Some(connection) = self.flows.remove(key) else { return };
        self.counters.connections_ended += u64::from(connection.is_counted());
        let (_, mut context) = self.apart();
        let reports = connection.finish(ended, &mut context);
        self.queue_reports(reports);
        self.take_network_events();
    }

    /// A connection has closed: its senders go, and the accounts of its directions are queued.
    #[cold]
    fn report_closed(&mut self, key: Key) {
        let (flows, mut context) = self.apart();
        let Some(connection) = flows.get_mut(key) else { return };
        let reports = connection.take_reports(&mut context);
        flows.account(key, context.now);
        self.queue_reports(reports);
    }

    fn queue_reports(&mut self, reports: [Option<Box<DirectionReport>>; 2]) {
        for report in reports.into_iter().flatten() {
            self.queue_event(Event::DirectionEnded(report));
        }
    }

    /// Whether a connection may end of silence now. Those that may not wait for the next call.
    pub(super) fn has_room_for_reports(&self) -> bool {
        self.config.flow_reports == FlowReports::None
            || self.events.is_empty()
            || self.events.len() + EVENTS_PER_STEP <= self.config.limits.events.get()
    }

    /// Queues the event of an established connection of `host`, if it is inside and this engine announces its starts.
    fn queue_established(&mut self, host: IpAddr, remote: IpAddr) {
        let Role { inside, follow } = self.role(host, remote);
        if inside && follow {
            let network = self.prefixes.network_of(remote);
            self.queue_event(Event::Established(Established { host, network }));
        }
    }

    /// Announces the start of an end of `segment`.
    pub(super) fn announce(&mut self, segment: &Segment, Imminent { by_sender, trigger }: Imminent) {
        let (sender, receiver) = (segment.source.address, segment.destination.address);
        let (host, remote) = if by_sender { (sender, receiver) } else { (receiver, sender) };
        let network = self.prefixes.network_of(remote);
        self.counters.imminent_starts += 1;
        self.queue_event(Event::StartImminent(StartImminent { host, remote, network, trigger, at: self.now }));
    }
}
