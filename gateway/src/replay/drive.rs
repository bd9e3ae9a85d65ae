//! The loop: the next packet by time, what was due before it, the engine, its events.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use spand_capture::{CaptureFile, MergedSource, Next, Ordered, PacketSource, SourceError, SourceStats, open_file};
use spand_core::config::{EngineConfig, FlowReports, WindowConfig};
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::flow::report::DirectionReport;
use spand_core::networks::view::NetworkView;
use spand_core::wire::Frame;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::moments::Schedule;
use super::traffic::Ledger;
use super::{FileReport, Moments, Outcome, Report, Sink, State, Traffic};

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Capture files, `-` for standard input.
    pub files: Vec<PathBuf>,
    /// The engine; with full `flow_reports` the report holds the account of each direction, not only their sums.
    pub engine: EngineConfig,
    /// When to show the state.
    pub moments: Moments,
}

/// Senders in the summary.
const LARGEST_SENDERS: usize = 5;
/// Packets between two reports of progress.
const PROGRESS_PACKETS: u64 = 4_096;

/// Replays the files of `options`. The only error is the sink's: what is wrong with a file is in its [`FileReport`],
/// and the other files go on.
pub fn replay(options: Options, sink: &mut dyn Sink) -> io::Result<Report> {
    let (mut source, mut files) = open(&options.files);
    let mut replay = Replay::new(options);
    let mut faults = Vec::new();
    loop {
        match source.next_packet() {
            Ok(Next::Packet(packet)) => {
                let frame = Frame {
                    link_type: packet.link_type.0,
                    wire_len: packet.wire_len,
                    input: packet.source,
                    data: packet.data,
                };
                replay.packet((!packet.untimed).then_some(packet.timestamp), &frame, sink)?;
                if replay.packets.is_multiple_of(PROGRESS_PACKETS)
                    && let Some(progress) = source.progress()
                {
                    sink.progress(progress);
                }
            }
            Ok(Next::Idle) => {}
            Ok(Next::End) => break,
            Err(fault) => faults.push(fault),
        }
    }
    close(&mut files, source.source().files(), faults);
    replay.end(files, sink)
}

/// Opens what can be opened. The place of a file among the opened ones is its number in the merge.
fn open(paths: &[PathBuf]) -> (Ordered<MergedSource>, Vec<FileReport>) {
    let mut opened = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        let (name, outcome) = match open_file(path) {
            Ok(file) => {
                let name = file.name().to_owned();
                opened.push(file);
                (name, Outcome::Whole)
            }
            Err(error) => (path.display().to_string(), Outcome::Unreadable(error)),
        };
        files.push(FileReport { name, stats: SourceStats::default(), outcome });
    }
    (Ordered::new(MergedSource::new(opened)), files)
}

/// Files each opened file's counters and fault under its name.
fn close(files: &mut [FileReport], opened: &[CaptureFile], mut faults: Vec<SourceError>) {
    let readable = files.iter_mut().filter(|file| matches!(file.outcome, Outcome::Whole));
    for (file, source) in readable.zip(opened) {
        file.stats = source.stats();
        // The same path may be named twice: each takes one fault.
        if let Some(index) = faults.iter().position(|fault| name_of(fault) == source.name()) {
            file.outcome = Outcome::Damaged(faults.swap_remove(index));
        }
    }
}

fn name_of(fault: &SourceError) -> &str {
    match fault {
        SourceError::Read { name, .. }
        | SourceError::Truncated { name, .. }
        | SourceError::Damaged { name, .. }
        | SourceError::Live { name, .. } => name,
    }
}

struct Replay {
    engine: Engine,
    window: WindowConfig,
    both_ends_followed: bool,
    /// The accounts of directions are wanted.
    keep_flows: bool,
    ledger: Ledger,
    moments: Moments,
    /// Made at the first packet, whose time it counts from.
    schedule: Option<Schedule>,
    /// The last moment of the schedule had no network.
    nothing_shown: bool,
    span: Option<(Timestamp, Timestamp)>,
    packets: u64,
    flows: Vec<DirectionReport>,
    /// Networks that had an estimate at any time.
    estimated: BTreeSet<Network>,
}

impl Replay {
    fn new(options: Options) -> Self {
        let mut engine = options.engine;
        let keep_flows = engine.flow_reports == FlowReports::Full;
        if !keep_flows {
            engine.flow_reports = FlowReports::Sums;
        }
        Self {
            window: engine.window,
            both_ends_followed: engine.internal.is_empty(),
            keep_flows,
            ledger: Ledger::new(engine.limits.networks),
            engine: Engine::new(engine),
            moments: options.moments,
            schedule: None,
            nothing_shown: false,
            span: None,
            packets: 0,
            flows: Vec::new(),
            estimated: BTreeSet::new(),
        }
    }

    /// Takes a packet; `stamp` where its record holds a time.
    fn packet(&mut self, stamp: Option<Timestamp>, frame: &Frame<'_>, sink: &mut dyn Sink) -> io::Result<()> {
        self.packets += 1;
        let at = self.engine.clock_at(stamp.unwrap_or_default());
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first, last.max(at)));
        let mut schedule = self.schedule.take().unwrap_or_else(|| Schedule::new(&self.moments, at));
        while let Some(moment) = schedule.next_before(at) {
            let state = self.state(moment);
            let nothing = state.networks.is_empty();
            if !(nothing && self.nothing_shown && schedule.is_periodic()) {
                sink.state(&state)?;
            }
            self.nothing_shown = nothing;
            if nothing {
                // Nothing will be known before a packet comes or the end of a transfer is due.
                schedule.skip_to(self.engine.poll_timeout().map_or(at, |due| due.min(at)));
            }
        }
        self.schedule = Some(schedule);
        self.pass_time(at);
        match stamp {
            Some(stamp) => self.engine.handle_frame(stamp, frame),
            None => self.engine.handle_untimed_frame(frame),
        }
        self.take_events();
        Ok(())
    }

    /// The networks at `moment`.
    fn state(&mut self, moment: Timestamp) -> State {
        self.pass_time(moment);
        let networks = self.engine.networks().views(moment);
        let traffic = self.traffic(&networks);
        State { began: self.span.map_or(moment, |(first, _)| first), at: moment, networks, traffic }
    }

    /// What was sent to `networks` so far, by connections that are over or not.
    fn traffic(&self, networks: &[NetworkView]) -> BTreeMap<Network, Traffic> {
        let over = &self.ledger.networks;
        let mut traffic: BTreeMap<_, _> =
            networks.iter().map(|view| (view.network, over.get(&view.network).cloned().unwrap_or_default())).collect();
        if traffic.is_empty() {
            return traffic;
        }
        for report in self.engine.open_reports() {
            if let Some(network) = self.network(report)
                && let Some(traffic) = traffic.get_mut(&network)
            {
                traffic.add(report);
            }
        }
        traffic
    }

    /// The network that a direction's data counts for; `None` where it has none, or comes from outside.
    fn network(&self, report: &DirectionReport) -> Option<Network> {
        let counts = report.data_packets > 0 && self.engine.follows(report.source.address);
        counts.then(|| self.engine.network_of(report.destination.address))
    }

    fn ended(&mut self, report: DirectionReport) {
        if let Some(network) = self.network(&report) {
            self.ledger.add(network, &report);
        }
        if self.keep_flows && report.data_packets > 0 {
            self.flows.push(report);
        }
    }

    /// Lets what was due before `now` happen at its own time.
    fn pass_time(&mut self, now: Timestamp) {
        if !self.engine.may_be_due(now) {
            return;
        }
        let mut latest = None;
        while let Some(due) = self.engine.poll_timeout().filter(|&due| due <= now && Some(due) > latest) {
            self.engine.handle_timeout(due);
            self.take_events();
            latest = Some(due);
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::DirectionEnded(report) => self.ended(*report),
                Event::Estimate(estimate) => {
                    self.estimated.insert(estimate.network);
                }
                Event::Network(_)
                | Event::Withdrawn { .. }
                | Event::StartImminent(_)
                | Event::Established(_)
                | Event::TransferEnded(_)
                | Event::ServiceSize(_)
                | Event::ServiceForgotten(_) => {}
            }
        }
    }

    fn end(mut self, files: Vec<FileReport>, sink: &mut dyn Sink) -> io::Result<Report> {
        let Some((first, last)) = self.span else {
            let (window, both_ends_followed) = (self.window, self.both_ends_followed);
            return Ok(Report { files, both_ends_followed, window, ..Report::default() });
        };
        self.pass_time(last);
        self.engine.finish(last);
        self.take_events();
        let networks = self.engine.networks().views(last);
        for moment in self.schedule.take().map(Schedule::after_the_end).unwrap_or_default() {
            sink.state(&self.state(moment))?;
        }
        let traffic = std::mem::take(&mut self.ledger.networks);
        let end = State { began: first, at: last, networks, traffic };
        for view in end.networks.iter().filter(|view| view.estimate.is_some()) {
            self.estimated.remove(&view.network);
        }
        self.flows.sort_by_key(|report| report.details.as_ref().map(|details| details.first_frame));
        Ok(Report {
            files,
            span: Some((first, last)),
            end,
            expired: self.estimated.len(),
            largest_senders: self.ledger.largest(LARGEST_SENDERS),
            no_room_traffic: self.ledger.no_room,
            both_ends_followed: self.both_ends_followed,
            window: self.window,
            flows: self.flows,
            counters: self.engine.counters().clone(),
        })
    }
}
