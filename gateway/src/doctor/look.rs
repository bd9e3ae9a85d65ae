//! A short look at the interfaces where no gateway runs: an engine of its own, forgotten at the end.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use spand_capture::{LiveCapture, LiveOptions, Next, PacketSource, mtu_bytes};
use spand_core::config::{EngineConfig, FlowReports};
use spand_core::counters::Ignored;
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::flow::report::DirectionReport;
use spand_core::types::ConnectionId;
use spand_core::wire::Frame;
use spand_proto::network::Network;
use spand_proto::operator::{Check, Failure};
use spand_proto::units::Micros;
use strum::VariantArray;

use super::Wait;
use super::judge::Seen;
use crate::config::{Config, EngineOptions};
use crate::run;

/// Longest wait for a packet of one interface while others may have some.
const PAUSE: Micros = Micros::from_millis(10);
/// Packets of one interface before the next one's turn.
const TURN_PACKETS: usize = 1_024;
/// Connections that are tracked.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");
/// Packets of a connection before the lack of an answer says something: a lone SYN has none.
const TELLING_PACKETS: u64 = 4;
/// Ethernet's header with two tags.
const LINK_BYTES: u32 = 22;

/// Looks for `span`. What stands in the way is a check of its own.
pub(super) fn look(config: &Config, span: Duration, wait: &mut Wait) -> Result<Seen, Check> {
    let mut taps = Vec::new();
    for (input, options) in (0..).zip(run::live_options(&config.capture)) {
        let options = LiveOptions { read_timeout: PAUSE, ..options };
        let live = LiveCapture::open(&options);
        let live =
            live.map_err(|error| Check::fail("interface", error.to_string(), "fix it, then run the doctor again"))?;
        if let Some(fault) = run::fault_of(&options.interface) {
            return Err(Check::fail("interface", fault, "fix it, then run the doctor again"));
        }
        let longest = mtu_bytes(&options.interface).map_or(u32::MAX, |mtu| mtu.saturating_add(LINK_BYTES));
        taps.push(Tap { input, live, longest });
    }
    let mut looking = Looking::new(config).map_err(|failure| {
        Check::fail("prefix_list", failure.to_string(), "fix the list, then run the doctor again")
    })?;
    *wait = Wait::new(span);
    while !wait.over() {
        for tap in &mut taps {
            looking.turn(tap).map_err(|why| Check::fail("interface", why, "fix it, then run the doctor again"))?;
        }
    }
    for tap in &taps {
        let stats = tap.live.stats();
        let lost = [stats.dropped_by_kernel, stats.dropped_by_interface];
        looking.seen.dropped += lost.into_iter().flatten().sum::<u64>();
    }
    let mirrors = config.capture.interfaces.iter().filter(|interface| run::is_mirror(interface)).cloned().collect();
    Ok(Seen { mirrors, ..looking.end(span, &config.traffic.internal) })
}

struct Tap {
    input: u32,
    live: LiveCapture,
    longest: u32,
}

struct Looking {
    engine: Engine,
    seen: Seen,
    /// Packets by direction of the connections that ended.
    connections: BTreeMap<ConnectionId, Vec<(IpAddr, IpAddr, u64)>>,
}

impl Looking {
    /// Both ends of every connection are followed here, whatever is configured: which ends are inside is determined afterwards.
    fn new(config: &Config) -> Result<Self, Failure> {
        let engine = config.engine(EngineOptions { flow_reports: FlowReports::Full, ..EngineOptions::default() })?;
        let mut engine = EngineConfig { internal: Vec::new(), ..engine };
        engine.limits.connections = engine.limits.connections.min(CONNECTIONS);
        Ok(Self {
            engine: Engine::new(engine),
            seen: Seen { merged: Some(0), ..Seen::default() },
            connections: BTreeMap::new(),
        })
    }

    fn turn(&mut self, tap: &mut Tap) -> Result<(), String> {
        for _ in 0..TURN_PACKETS {
            match tap.live.next_packet().map_err(|error| error.to_string())? {
                Next::Packet(packet) => {
                    self.seen.packets += 1;
                    if packet.wire_len > tap.longest {
                        self.seen.merged = self.seen.merged.map(|merged| merged + 1);
                    }
                    let frame = Frame {
                        link_type: packet.link_type.0,
                        wire_len: packet.wire_len,
                        input: tap.input,
                        data: packet.data,
                    };
                    self.engine.handle_frame(packet.timestamp, &frame);
                    self.take_events();
                }
                Next::Idle | Next::End => return Ok(()),
            }
        }
        Ok(())
    }

    fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            if let Event::DirectionEnded(report) = event {
                self.ended(&report);
            }
        }
    }

    fn ended(&mut self, report: &DirectionReport) {
        let Some(details) = &report.details else { return };
        if self.connections.len() < CONNECTIONS.get() || self.connections.contains_key(&details.connection) {
            let direction = (report.source.address, report.destination.address, details.packets);
            self.connections.entry(details.connection).or_default().push(direction);
        }
    }

    fn end(mut self, span: Duration, internal: &[Network]) -> Seen {
        let now = self.engine.clock_at(spand_proto::units::Timestamp(0));
        self.engine.finish(now);
        self.take_events();
        let counters = self.engine.counters();
        let mut seen = self.seen;
        seen.span_s = span.as_secs_f64();
        seen.segments = counters.segments;
        seen.ignored =
            Ignored::VARIANTS.iter().map(|reason| (reason.name().to_owned(), counters.ignored(*reason))).collect();
        seen.other_protocols = counters.other_protocols().collect();
        let is_inside = |address: IpAddr| internal.iter().any(|network| network.contains(address));
        for directions in self.connections.values() {
            let packets: u64 = directions.iter().map(|(_, _, packets)| packets).sum();
            let Some((source, destination, _)) = directions.first() else { continue };
            for end in [source, destination] {
                *seen.senders.entry(Network::of(*end)).or_default() += 1;
            }
            if !is_inside(*source) && !is_inside(*destination) {
                seen.outside += packets;
            }
            if packets >= TELLING_PACKETS {
                seen.connections += 1;
                let heard = directions.iter().filter(|(_, _, packets)| *packets > 0).count();
                seen.one_sided += u64::from(heard < 2);
            }
        }
        seen
    }
}
