//! Scripts in text: packets go in, and what the engine makes of them is expected line by line.
//!
//! The words of packets are packetdrill's: `>` is sent by the server, `<` by its client, flags are letters, ranges are sequence
//! numbers from the first byte of data as 1, `sack` has its blocks, `val` and `ecr` are the fields of the timestamps. Times are in
//! milliseconds. In lines that `repeat`, `%` in a name or an address is the number of the repetition. CONTRIBUTING.md has an example and the whole list.

mod facts;
mod packet;
mod parse;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};

use spand_core::config::{EngineConfig, FlowReports};
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::flow::evidence::Evidence;
use spand_core::flow::report::DirectionReport;
use spand_core::types::SampleRate;
use spand_core::wire::segment::Endpoint;
use spand_openings::{LossCount, PLACES, openings};
use spand_proto::units::{Micros, Timestamp};

use self::packet::Talk;
pub use self::parse::{Bursts, Line, Opening, Packet, Part, Repetition, Subject, parts};
use self::parse::{Moment, Number, Range};
use crate::frame;

/// What is wrong with a script, or with the engine.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Fault {
    /// Its line.
    pub line: usize,
    /// What it is.
    pub what: String,
}

/// When a script begins: any time does, and 0 is no time to the engine.
const EPOCH: Timestamp = Timestamp(1_000_000_000_000);
/// No burst leaves so soon after an acknowledgement that it would seem to answer it.
const AFTER_ACK_US: u64 = 1_500;
const CLIENT: &str = "198.51.100.7";
const SERVER: &str = "192.0.2.1:80";

/// An engine at some line of a script.
struct Run {
    engine: Engine,
    config: EngineConfig,
    talks: BTreeMap<String, Talk>,
    opened: u16,
    now_us: u64,
    /// The offset of a repetition, added to the times of its lines.
    offset_us: u64,
    /// How often the lines that repeat have come: what `%` means.
    round: u64,
    /// Accounts of directions that are over.
    ended: Vec<DirectionReport>,
    events: VecDeque<String>,
    next_burst_us: u64,
    /// Bursts on their way: when they left, and how long they are.
    unacknowledged: VecDeque<(u64, u64)>,
}

/// Runs a part of a script.
///
/// # Errors
/// The first line that cannot be run, or that expected something else.
pub fn run(part: &Part) -> Result<(), Fault> {
    let expects = |line: &Line| matches!(line, Line::Expect(..));
    let holds = |line: &Line| matches!(line, Line::Repeat(repetition) if repetition.lines.iter().any(|(_, line)| expects(line)));
    if !part.lines.iter().any(|(_, line)| expects(line) || holds(line)) {
        return Err(Fault { line: 0, what: "nothing is expected: write an `expect` line".to_owned() });
    }
    let mut config = EngineConfig {
        internal: vec![packet::parsed("192.0.2.0/24").map_err(|what| Fault { line: 0, what })?],
        flow_reports: FlowReports::Full,
        ..EngineConfig::default()
    };
    let is_config = |(_, line): &&(usize, Line)| matches!(line, Line::Config(_));
    for (number, line) in part.lines.iter().take_while(is_config) {
        if let Line::Config(words) = line {
            configure(&mut config, words).map_err(|what| Fault { line: *number, what })?;
        }
    }
    let mut run = Run {
        engine: Engine::new(config.clone()),
        config,
        talks: BTreeMap::new(),
        opened: 0,
        now_us: 0,
        offset_us: 0,
        round: 0,
        ended: Vec::new(),
        events: VecDeque::new(),
        next_burst_us: 0,
        unacknowledged: VecDeque::new(),
    };
    part.lines.iter().skip_while(is_config).try_for_each(|(number, line)| run.line(*number, line))
}

/// Settings, in pairs of name and value.
fn configure(config: &mut EngineConfig, words: &[String]) -> Result<(), String> {
    fn at_least_one<N: TryFrom<usize>>(value: &str) -> Result<N, String> {
        let number = packet::parsed::<usize>(value)?;
        N::try_from(number).map_err(|_| format!("{value} does not fit"))
    }
    let size = |value: &str| at_least_one::<NonZeroUsize>(value);
    let count = |value: &str| {
        let number = packet::parsed::<u32>(value)?;
        NonZeroU32::new(number).ok_or("0 is no limit".to_owned())
    };
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} has no value", pair.concat())) };
        let limits = &mut config.limits;
        match name.as_str() {
            "internal" if value == "none" => config.internal.clear(),
            "internal" => config.internal = vec![packet::parsed(value)?],
            "prefix" => config.prefixes.push(packet::parsed(value)?),
            "listener" => config.own_listeners = BTreeSet::from([packet::parsed::<SocketAddr>(value)?]),
            "rule" => config.rule = packet::parsed(value)?,
            "compare" => config.compare.push(packet::parsed(value)?),
            "window_option" => config.read_window_option = packet::parsed(value)?,
            "reports" => {
                config.flow_reports = match value.as_str() {
                    "none" => FlowReports::None,
                    "sums" => FlowReports::Sums,
                    "full" => FlowReports::Full,
                    _ => return Err(format!("reports are none, sums or full, not {value}")),
                }
            }
            "connections" => limits.connections = size(value)?,
            "networks" => limits.networks = size(value)?,
            "segment_memory" => limits.segment_memory_bytes = size(value)?,
            "sender_memory" => limits.sender_memory_bytes = size(value)?,
            "network_memory" => limits.network_memory_bytes = size(value)?,
            "outstanding_segments" => limits.outstanding_segments = count(value)?,
            "sequence_ranges" => limits.sequence_ranges = count(value)?,
            "report_samples" => limits.report_samples = count(value)?,
            "events" => limits.events = size(value)?,
            "min_samples" => config.window.min_samples = packet::parsed(value)?,
            "min_connections" => config.window.min_connections = packet::parsed(value)?,
            _ => return Err(format!("there is no setting {name}")),
        }
    }
    config.openings = openings(config.rule, &config.compare, PLACES, LossCount::Episodes);
    Ok(())
}

impl Run {
    fn line(&mut self, number: usize, line: &Line) -> Result<(), Fault> {
        let fault = |what| Fault { line: number, what };
        match line {
            Line::Config(_) => Err(fault("settings come first".to_owned())),
            Line::Connection(opening) => self.open(opening).map_err(fault),
            Line::Packet(packet) => self.send(packet).map_err(fault),
            Line::Bursts(bursts) => self.burst(bursts).map_err(fault),
            Line::Time(us) => {
                self.reach(*us + self.offset_us);
                self.engine.handle_timeout(self.now());
                self.take_events();
                Ok(())
            }
            Line::Finish(us) => {
                self.reach(*us);
                self.engine.finish(self.now());
                self.take_events();
                Ok(())
            }
            Line::Keep(parts) => {
                self.engine.keep(SampleRate::of_256(*parts));
                Ok(())
            }
            Line::Set(words) => self.set(words).map_err(fault),
            Line::Advised => {
                let talk = self.talks.values().last().ok_or_else(|| fault("nothing was opened".to_owned()))?;
                let [client, server] = talk.ends.map(|end| end.address);
                self.engine.note_advised(server, client, self.now());
                Ok(())
            }
            Line::Repeat(Repetition { count, every_us, lines }) => {
                for n in 0..*count {
                    (self.offset_us, self.round) = (n * every_us, n + 1);
                    lines.iter().try_for_each(|(own, line)| self.line((*own).max(number), line))?;
                }
                self.offset_us = 0;
                Ok(())
            }
            Line::Expect(subject, pairs) => self.expect(subject, pairs).map_err(fault),
        }
    }

    /// Other prefixes or listeners are in force.
    fn set(&mut self, words: &[String]) -> Result<(), String> {
        if words.iter().step_by(2).any(|name| name == "listener") {
            configure(&mut self.config, words)?;
            self.engine.set_own_listeners(self.config.own_listeners.clone());
        } else {
            self.config.prefixes.clear();
            configure(&mut self.config, words)?;
            self.engine.set_prefixes(self.config.internal.clone(), self.config.prefixes.clone());
        }
        self.take_events();
        Ok(())
    }

    /// A name or address in which `%` stands for the number of the repetition.
    fn numbered(&self, text: &str) -> String {
        text.replace('%', &self.round.to_string())
    }

    fn now(&self) -> Timestamp {
        EPOCH.after(Micros(self.now_us))
    }

    /// Sets the time, which need not be later.
    fn reach(&mut self, us: u64) {
        self.now_us = us;
    }

    fn open(&mut self, opening: &Opening) -> Result<(), String> {
        let client = self.numbered(opening.client.as_deref().unwrap_or(CLIENT));
        let client = match client.parse::<IpAddr>() {
            Ok(address) => SocketAddr::new(address, 40_000 + self.opened),
            Err(_) => packet::parsed(&client)?,
        };
        self.opened += 1;
        let server: SocketAddr = packet::parsed(opening.server.as_deref().unwrap_or(SERVER))?;
        let ends = [client, server].map(|end| Endpoint { address: end.ip(), port: end.port() });
        self.talks.insert(self.numbered(&opening.name), Talk::new(ends, opening));
        if opening.silent {
            return Ok(());
        }
        for packet in packet::handshake(opening) {
            self.send(&packet)?;
        }
        Ok(())
    }

    fn send(&mut self, packet: &Packet) -> Result<(), String> {
        self.now_us = match packet.at {
            Moment::At(us) => us + self.offset_us,
            Moment::Later(us) => self.now_us + us,
        };
        let named = self.numbered(&packet.connection);
        let talk = self.talks.get_mut(&named).ok_or_else(|| format!("no connection {named} was opened"))?;
        for (n, bytes) in (0..).zip(talk.packets(packet, self.now_us)?) {
            self.now_us += if n > 0 { packet.each_us } else { 0 };
            let now = self.now();
            frame::take(&mut self.engine, now, &bytes);
            self.take_events();
        }
        Ok(())
    }

    /// Acknowledgements come in between, and never right before a burst, which would seem to answer them.
    fn burst(&mut self, bursts: &Bursts) -> Result<(), String> {
        let clock = |us: u64| u32::try_from(us / bursts.clock_us * bursts.clock_us / 1_000).unwrap_or(u32::MAX);
        let mut next_us = self.next_burst_us.max(self.now_us + AFTER_ACK_US);
        let end_us = next_us + bursts.for_us;
        while next_us < end_us {
            while let Some((sent_us, bytes)) = self.unacknowledged.front().copied()
                && sent_us + bursts.rtt_us + AFTER_ACK_US <= next_us
            {
                self.unacknowledged.pop_front();
                let at = Moment::At((sent_us + bursts.rtt_us).max(self.now_us));
                let ack = Packet::new(bursts.connection.clone(), at, false);
                self.send(&Packet { ack: Some(Number::Beyond(bytes)), echo: Some(clock(sent_us)), ..ack })?;
            }
            let data = Packet::new(bursts.connection.clone(), Moment::At(next_us), true);
            let mss = self.talks.get(&bursts.connection).map_or(0, |talk| u64::from(talk.mss));
            let bytes = bursts.segments * mss;
            self.send(&Packet { range: Some(Range::Next(bytes)), value: Some(clock(next_us)), ..data })?;
            self.unacknowledged.push_back((next_us, bytes));
            next_us += bursts.every_us;
        }
        self.next_burst_us = next_us;
        Ok(())
    }

    fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::DirectionEnded(report) => self.ended.push(*report),
                event => self.events.extend(facts::event(&event)),
            }
        }
    }

    fn expect(&mut self, subject: &Subject, pairs: &[(String, String)]) -> Result<(), String> {
        let known = match subject {
            Subject::Engine => {
                let mut known = facts::engine(&self.engine);
                let clock = facts::ms(self.engine.clock_at(Timestamp(0)).since(EPOCH));
                known.extend([("clock".to_owned(), clock), ("reports".to_owned(), self.ended.len().to_string())]);
                known
            }
            Subject::Service(address) => {
                let announced = self.events.iter().any(|event| event.starts_with(&format!("size {address} ")));
                let address: SocketAddr = packet::parsed(address)?;
                let size = self.engine.services().into_iter().find(|size| size.service == address);
                size.map(|size| facts::service(&size, announced)).unwrap_or_default()
            }
            Subject::Direction { connection, sent } => {
                let connection = self.numbered(connection);
                let talk =
                    self.talks.get(&connection).ok_or_else(|| format!("no connection {connection} was opened"))?;
                let [client, server] = talk.ends;
                let ends = if *sent { [server, client] } else { [client, server] };
                let is_it = |report: &&DirectionReport| [report.source, report.destination] == ends;
                let open = self.engine.open_reports().find(is_it);
                match open.or_else(|| self.ended.iter().rev().find(is_it)) {
                    Some(report) => {
                        let replica = self.engine.evidence(report.source, report.destination);
                        facts::direction(report, replica.and_then(Evidence::window))
                    }
                    None => Vec::new(),
                }
            }
            Subject::Network(named) => {
                let address: IpAddr = packet::parsed(&self.numbered(named.as_deref().unwrap_or(CLIENT)))?;
                let view = self.engine.networks().view(self.engine.network_of(address), self.now());
                let mut known = view.as_ref().map(facts::network).unwrap_or_default();
                let to = self.engine.open_reports().filter(|report| report.destination.address == address).count();
                if to > 0 || !known.is_empty() {
                    known.push(("open".to_owned(), to.to_string()));
                }
                known
            }
            Subject::Events(expected) => {
                let seen: Vec<String> = self.events.drain(..).collect();
                let expected: Vec<_> = expected.iter().map(|event| self.numbered(event)).collect();
                return if seen == expected {
                    Ok(())
                } else {
                    Err(format!("expected {}, and there were {}", expected.join("; "), seen.join("; ")))
                };
            }
        };
        let mut wrong = Vec::new();
        for (name, expected) in pairs {
            let value = known.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
            match value {
                Some(value) if facts::agrees(value, expected) => {}
                Some(value) => wrong.push(format!("{name} is {value} and not {expected}")),
                None if known.is_empty() && expected == "none" => {}
                None if known.is_empty() => wrong.push(format!("{name}: there is nothing yet")),
                None => {
                    let names: Vec<_> = known.iter().map(|(name, _)| name.as_str()).collect();
                    return Err(format!("there is no {name} here, but {}", names.join(", ")));
                }
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }
}
