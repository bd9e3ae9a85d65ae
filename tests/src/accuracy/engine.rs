//! Replays what the tap recorded, and notes what the engine says at given moments.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use ipnet::IpNet;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::{EngineConfig, FlowReports, Limits, Tunnels};
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::flow::evidence::control::CongestionControl;
use spand_core::flow::report::DirectionReport;
use spand_core::networks::view::NetworkView;
use spand_core::types::Limiter;
use spand_core::wire::segment::Endpoint;
use spand_core::wire::{Decoder, Frame};
use spand_proto::estimate::RuleKind;
use spand_proto::units::Timestamp;

use super::result::CellResult;
use super::truth::{FlowTruth, Kind};
use crate::lab::topology::{SERVER_V4, SERVER_V6};
use crate::lab::truth::FlowId;

/// A question: what of this sender at this time?
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Moment {
    /// When.
    pub time_ns: u64,
    /// Whose.
    pub flow: FlowId,
}

/// The answer.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// What held the sender.
    pub limiter: Limiter,
    /// Its congestion control, from its own packets or else from other flows of its host.
    pub flavour: CongestionControl,
    /// The same, by its own packets alone.
    pub own_flavour: CongestionControl,
    /// Its smoothed round trip in microseconds.
    pub srtt_us: Option<u64>,
}

/// All output of the engine.
#[derive(Debug)]
pub struct Seen {
    /// Answers, in the order of the sorted moments; `None` where the engine tracked no such sender.
    pub views: Vec<Option<View>>,
    /// Loss events as they were counted: when, whose, and whether a timeout.
    pub events: Vec<(u64, FlowId, Kind)>,
    /// Accounts of the senders.
    pub reports: BTreeMap<FlowId, DirectionReport>,
    /// Networks at the last packet.
    pub networks: Vec<NetworkView>,
}

/// Replays `capture` from `since_ns` on; `moments` are sorted. `lost` is the part of packets that the tap loses, by dice of a seed.
pub fn replay(capture: &Path, moments: &[Moment], since_ns: u64, lost: Option<(f64, u64)>) -> Result<Seen> {
    let internal = vec![IpNet::from(std::net::IpAddr::V4(SERVER_V4)), IpNet::from(std::net::IpAddr::V6(SERVER_V6))];
    let config = EngineConfig {
        internal,
        flow_reports: FlowReports::Full,
        rule: RuleKind::Spand,
        limits: Limits::for_replay(),
        ..EngineConfig::default()
    };
    let mut replay = Replay {
        engine: Engine::new(config),
        seen: Seen { views: Vec::new(), events: Vec::new(), reports: BTreeMap::new(), networks: Vec::new() },
        counted: (0, 0),
        decoder: Decoder::new(Tunnels::NONE),
    };
    let mut dice = lost.map(|(part, seed)| (part, StdRng::seed_from_u64(seed)));
    let mut source = open_file(capture)?;
    let mut last = Timestamp(0);
    loop {
        match source.next_packet().with_context(|| format!("reading {}", capture.display()))? {
            Next::Packet(packet) => {
                if packet.timestamp.0 < since_ns {
                    continue;
                }
                if dice.as_mut().is_some_and(|(part, dice)| dice.random::<f64>() < *part) {
                    continue;
                }
                last = packet.timestamp;
                replay.answer(moments, last.0);
                let link_type = packet.link_type.0;
                replay.take(last, &Frame { link_type, wire_len: packet.wire_len, input: 0, data: packet.data });
            }
            Next::Idle => {}
            Next::End => break,
        }
    }
    replay.answer(moments, u64::MAX);
    let Replay { mut engine, mut seen, .. } = replay;
    seen.networks = engine.networks().views(last);
    engine.finish(last);
    take_reports(&mut engine, &mut seen.reports);
    Ok(seen)
}

struct Replay {
    engine: Engine,
    seen: Seen,
    /// Loss events and timeouts counted so far.
    counted: (u64, u64),
    /// Says whose frame it was that made them rise.
    decoder: Decoder,
}

impl Replay {
    /// Answers the moments before `until_ns`.
    fn answer(&mut self, moments: &[Moment], until_ns: u64) {
        while let Some(moment) = moments.get(self.seen.views.len()).filter(|moment| moment.time_ns < until_ns) {
            self.pass_time(Timestamp(moment.time_ns));
            let end = |address: SocketAddr| Endpoint { address: address.ip(), port: address.port() };
            let replica = self.engine.evidence(end(moment.flow.local), end(moment.flow.remote));
            self.seen.views.push(replica.map(|replica| View {
                limiter: replica.limiter(Timestamp(moment.time_ns)),
                flavour: replica.congestion_control(),
                srtt_us: replica.srtt().map(|srtt| srtt.0),
                own_flavour: replica.leaning().own(),
            }));
        }
    }

    fn take(&mut self, at: Timestamp, frame: &Frame<'_>) {
        self.pass_time(at);
        self.engine.handle_frame(at, frame);
        let counters = self.engine.counters();
        let counted = (counters.loss_events, counters.timeouts);
        if counted != self.counted
            && let Ok(segment) = self.decoder.decode(at, frame)
        {
            let kind = if counted.1 > self.counted.1 { Kind::Timeout } else { Kind::Recovery };
            let address = |end: Endpoint| SocketAddr::new(end.address, end.port);
            let (source, destination) = (address(segment.source), address(segment.destination));
            let inside = source.ip() == SERVER_V4 || source.ip() == SERVER_V6;
            let (local, remote) = if inside { (source, destination) } else { (destination, source) };
            self.seen.events.push((at.0, FlowId { local, remote }, kind));
        }
        self.counted = counted;
        take_reports(&mut self.engine, &mut self.seen.reports);
    }

    /// Lets what was due before `now` happen at its own time.
    fn pass_time(&mut self, now: Timestamp) {
        let mut latest = None;
        while let Some(due) = self.engine.poll_timeout().filter(|&due| due <= now && Some(due) > latest) {
            self.engine.handle_timeout(due);
            latest = Some(due);
        }
    }
}

fn take_reports(engine: &mut Engine, reports: &mut BTreeMap<FlowId, DirectionReport>) {
    while let Some(event) = engine.poll_event() {
        let Event::DirectionEnded(report) = event else { continue };
        let address = |end: Endpoint| SocketAddr::new(end.address, end.port);
        let flow = FlowId { local: address(report.source), remote: address(report.destination) };
        reports.insert(flow, *report);
    }
}

// Holds the congestion controls that the engine names against the kernel's.

/// A congestion control can be found out from this many loss events or this long.
const TELLING_EVENTS: usize = 3;
const TELLING_NS: u64 = 5_000_000_000;

/// The engine's word for one of the kernel's congestion controls.
pub fn control(kernel: &str) -> &'static str {
    if kernel == "bbr" { CongestionControl::Bbr.name() } else { CongestionControl::LossBased.name() }
}

/// The engine's word at each flow's last moment, where the flow was long enough to tell.
pub(super) fn flavours(result: &mut CellResult, truth: &BTreeMap<FlowId, FlowTruth>, moments: &[Moment], seen: &Seen) {
    let mut last: BTreeMap<FlowId, View> = BTreeMap::new();
    for (moment, view) in moments.iter().zip(&seen.views) {
        if let Some(view) = view {
            last.insert(moment.flow, *view);
        }
    }
    for (flow, view) in last {
        let Some(truth) = truth.get(&flow) else { continue };
        let (first_ns, last_ns) = truth.span_ns();
        if truth.events().len() >= TELLING_EVENTS || last_ns - first_ns >= TELLING_NS {
            let count = |names: &mut BTreeMap<String, u64>, flavour: CongestionControl| {
                *names.entry(flavour.name().to_owned()).or_default() += 1;
            };
            count(&mut result.flavours, view.flavour);
            count(&mut result.own_flavours, view.own_flavour);
            if truth.is_telling() {
                count(&mut result.telling_flavours, view.flavour);
            }
        }
    }
}
