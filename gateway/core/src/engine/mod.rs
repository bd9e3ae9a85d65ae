//! The engine: takes frames in order of time, keeps connections and networks, and gives events.
//!
//! Owns the tables and passes things between them; what a segment means is [`crate::flow`]'s, what a sample means is
//! [`crate::window`]'s. Its clock is the time of the last frame or of [`Engine::handle_timeout`].

mod connections;
mod memory;
mod networks;
mod regroup;
mod thinning;

use std::collections::VecDeque;
use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

pub use self::memory::MemoryNeed;
use self::thinning::Thinning;
use crate::config::EngineConfig;
use crate::counters::{Counters, Ignored};
use crate::event::Event;
use crate::flow::connection::Connection;
use crate::flow::evidence::Evidence;
use crate::flow::hosts::Hosts;
use crate::flow::prefixes::Prefixes;
use crate::flow::push_ledger::PushLedger;
use crate::flow::report::DirectionReport;
use crate::flow::table::{FlowTable, TICK_BITS};
use crate::flow::tuple::Tuple;
use crate::mem::MemoryUse;
use crate::networks::NetworkTable;
use crate::service::{ServiceSize, ServiceTable, TransferEnded};
use crate::shard::{Claim, Part};
use crate::wire::segment::Endpoint;
use crate::wire::{Decoder, Frame, Plain};

/// The engine.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    decoder: Decoder,
    prefixes: Prefixes,
    part: Part,
    flows: FlowTable,
    networks: NetworkTable,
    ledger: PushLedger,
    hosts: Hosts,
    services: ServiceTable,
    counters: Counters,
    events: VecDeque<Event>,
    now: Timestamp,
    /// Time of the last frame, where it lay too far ahead to be believed without another.
    leap: Option<Timestamp>,
    /// The record of the frame at hand holds no time.
    untimed: bool,
    thinning: Thinning,
    next_connection: u64,
    /// The input is over, and connections are still to be ended.
    finishing: bool,
}

/// The latest time believed (the year 2262): a broken clock far ahead of it would leave no later time for a deadline, and
/// what is always due at once never ends.
const LATEST: Timestamp = Timestamp(u64::MAX / 2);

/// Networks that are due are evaluated once per this many nanoseconds (2^20, a millisecond) of the frames' time, each time with this much
/// work ([`NetworkTable::expire`]) and for at most this many such intervals that passed without frames. Many are due at once, when a
/// bucket leaves the window: full ones would hold up the frames for longer than a queue lasts; so it takes half of the time.
const TURN_BITS: u32 = 20;
const WORK_PER_TURN: u64 = 256;
const TURNS_AT_ONCE: u64 = 64;

/// No frame and no end of a connection gives more events.
const EVENTS_PER_STEP: usize = 16;

/// A frame further ahead than this moves the clock only if the next one lies as near to it: a single broken stamp would
/// age everything, and stop the clock until the real time gets there.
const LEAP: Micros = Micros::from_secs(24 * 3_600);

impl Engine {
    /// An engine that has seen nothing.
    pub fn new(config: EngineConfig) -> Self {
        Self {
            decoder: Decoder::new(config.tunnels.clone()),
            prefixes: Prefixes::new(&config.internal, &config.prefixes),
            part: Part::of(&config),
            flows: FlowTable::new(&config.limits, config.hash_seed),
            networks: NetworkTable::new(config.window, config.limits.networks, config.rule, config.hash_seed)
                .within(config.limits.network_memory_bytes)
                .comparing(&config.compare)
                .with_openings(config.openings.clone()),
            ledger: PushLedger::new(config.hash_seed),
            hosts: Hosts::new(config.hash_seed),
            services: ServiceTable::new(
                config.limits.services,
                config.window.refresh,
                config.window.change,
                config.hash_seed,
                config.shard.index > 0,
            ),
            counters: Counters::default(),
            events: VecDeque::new(),
            now: Timestamp(0),
            leap: None,
            untimed: false,
            thinning: Thinning::default(),
            next_connection: 0,
            finishing: false,
            config,
        }
    }

    /// Takes a frame. A time before the one seen last is counted, and so is one more than a day after it, until a second
    /// frame confirms it; timers and findings then go by the time seen last, and the frame's own time only measures
    /// differences inside its connection. Of several engines each may be given every frame, or those alone that
    /// [`crate::shard::Partition`]: frames of other engines change nothing here, not even the clock.
    pub fn handle_frame(&mut self, now: Timestamp, frame: &Frame<'_>) {
        let claim = self.part.claim_frame(frame);
        if claim == Claim::Nothing {
            return;
        }
        let counted = claim == Claim::Home || claim == Claim::Unknown && self.part.is_first();
        let now = now.min(LATEST);
        let leaps = self.leaps(now);
        if counted {
            self.counters.frames += 1;
            self.counters.wire_bytes += u64::from(frame.wire_len);
            if now < self.now {
                self.counters.ignore(Ignored::TimeBackwards);
            }
            if leaps {
                self.counters.ignore(Ignored::TimeForwards);
            }
        }
        let clock = if leaps { self.now } else { self.now.max(now) };
        let turns = (clock.0 >> TURN_BITS) - (self.now.0 >> TURN_BITS);
        // Once per tick is as fine as the timers are.
        if clock.0 >> TICK_BITS != self.now.0 >> TICK_BITS {
            self.advance(clock);
        }
        self.now = clock;
        if turns > 0 {
            self.expire_networks(usize::try_from(turns.min(TURNS_AT_ONCE) * WORK_PER_TURN).unwrap_or(usize::MAX));
        }
        self.leap = leaps.then_some(now);
        // Looked at where it is built: in the decoder's result it would be copied right after it was written, which stalls.
        if let Some(plain) = Plain::of(frame) {
            self.handle_segment(&plain.segment(now), frame.input, claim);
        } else {
            match &self.decoder.decode_rest(now, frame) {
                Ok(segment) => self.handle_segment(segment, frame.input, claim),
                Err(reason) if counted => {
                    self.counters.ignore(*reason);
                    self.counters.count_other_protocol(self.decoder.other());
                }
                Err(_) => {}
            }
        }
        self.take_network_events();
    }

    /// Takes a frame whose record holds no time, at the time seen last: what its connection sends is counted, but it gives no
    /// round trips and no samples.
    pub fn handle_untimed_frame(&mut self, frame: &Frame<'_>) {
        self.untimed = true;
        self.handle_frame(self.now, frame);
        self.untimed = false;
    }

    /// Takes the time where no frame brings it: ends what silence ends. Earlier times change nothing.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.advance(now.min(LATEST));
        self.expire_networks(usize::MAX);
    }

    /// What the clock will show with a frame of time `at`: never an earlier time than it shows, nor one that no second frame
    /// has confirmed yet. Before any frame, the time of the first one.
    pub fn clock_at(&self, at: Timestamp) -> Timestamp {
        let at = at.min(LATEST);
        if self.leaps(at) { self.now } else { self.now.max(at) }
    }

    fn leaps(&self, at: Timestamp) -> bool {
        let near = |leap: Timestamp| at.since(leap).max(leap.since(at)) <= LEAP;
        self.now > Timestamp(0) && at.since(self.now) > LEAP && !self.leap.is_some_and(near)
    }

    fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.thinning.advance(self.now, self.config.window.bucket);
        self.services.expire(self.now);
        while let Some(key) = self.flows.due(self.now) {
            self.look(key);
            self.take_network_events();
        }
        while let Some(key) = self.flows.silent(self.now) {
            self.hand_over(key);
        }
        while self.has_room_for_reports()
            && let Some(key) = self.flows.expired(self.now)
        {
            self.end(key);
        }
        while self.has_room_for_reports()
            && let Some(key) = self.flows.abandoned(self.now)
        {
            self.counters.ignore(Ignored::Unacknowledged);
            self.end(key);
        }
    }

    /// When [`Engine::handle_timeout`] has something to do next; `None` while nothing waits.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let due = [self.flows.next_due(), self.networks.poll_timeout(), self.services.poll_timeout()];
        due.into_iter().flatten().min()
    }

    /// Whether [`Engine::poll_timeout`] may lie at `now` or before: what costs little to ask before every packet.
    pub fn may_be_due(&self, now: Timestamp) -> bool {
        let is_due = |due: Option<Timestamp>| due.is_some_and(|due| due <= now);
        self.flows.may_be_due(now) || is_due(self.networks.poll_timeout()) || is_due(self.services.poll_timeout())
    }

    /// The oldest event not taken yet; after [`Engine::finish`], also the events of the next connection to end. Take
    /// them all after every call: at the limit the oldest is dropped, counted.
    pub fn poll_event(&mut self) -> Option<Event> {
        while self.finishing && self.events.is_empty() {
            match self.flows.least_wanted() {
                Some(key) => self.end(key),
                None => self.finishing = false,
            }
        }
        self.events.pop_front()
    }

    /// The input is over. Connections end as [`Engine::poll_event`] comes to them, so that their reports need no more room
    /// than events have; when it gives `None`, all have ended, and counters and networks are complete.
    pub fn finish(&mut self, now: Timestamp) {
        self.handle_timeout(now);
        self.finishing = true;
    }

    /// Every service inside whose size quantile is known, by address and port.
    pub fn services(&self) -> Vec<ServiceSize> {
        self.services.sizes()
    }

    /// Takes a transfer that another of several engines saw.
    pub fn take_transfer(&mut self, ended: TransferEnded) {
        self.services.add(&ended, &mut self.counters);
        self.take_network_events();
    }

    /// Counts a transfer that could not be sent to the first engine.
    pub fn transfer_queue_full(&mut self) {
        self.counters.ignore(Ignored::TransferQueueFull);
    }

    /// Whether a network is this engine's, and the prefixes make it.
    pub fn makes(&self, network: Network) -> bool {
        self.owns(network) && self.prefixes.makes(network)
    }

    /// Whether a network is this engine's.
    pub fn owns(&self, network: Network) -> bool {
        self.part.owns(|| network)
    }

    /// The network that `address` belongs to.
    pub fn network_of(&self, address: IpAddr) -> Network {
        self.prefixes.network_of(address)
    }

    /// Notes that `host` got advice for `remote`: the next transfer between them counts as advised.
    pub fn note_advised(&mut self, host: IpAddr, remote: IpAddr, at: Timestamp) {
        if self.ledger.note(host, remote, at) {
            self.counters.ignore(Ignored::AdviceForgotten);
        }
    }

    /// What was seen and what was ignored.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The accounts so far of the directions that are not over, in no order that means anything (only with `flow_reports`).
    /// Looks at every connection.
    pub fn open_reports(&self) -> impl Iterator<Item = &DirectionReport> {
        self.flows.connections().flat_map(Connection::reports)
    }

    /// Whether senders at `address` are followed: it is inside, or no prefixes are configured.
    pub fn follows(&self, address: IpAddr) -> bool {
        self.prefixes.is_bare() || self.prefixes.is_internal(address)
    }

    /// What the packets of `source` to `destination` show, as of the last frame; `None` where there is
    /// no such connection or its sender is not followed. For measuring how close it is to the sender's own.
    pub fn evidence(&self, source: Endpoint, destination: Endpoint) -> Option<&Evidence> {
        let (tuple, side) = Tuple::of(source, destination);
        self.flows.get(self.flows.find(&tuple)?)?.evidence(side)
    }

    /// What its accounts in bytes have come to.
    pub fn memory(&self) -> MemoryUse {
        let [segments, senders] = self.flows.memory();
        MemoryUse { segments, senders, networks: self.networks.memory() }
    }

    /// Connections in the table.
    pub fn connections(&self) -> usize {
        self.flows.len()
    }

    /// Queues an event; at the limit the oldest is dropped.
    fn queue_event(&mut self, event: Event) {
        if self.events.len() >= self.config.limits.events.get() {
            self.events.pop_front();
            self.counters.ignore(Ignored::EventQueueFull);
        }
        self.events.push_back(event);
    }
}
