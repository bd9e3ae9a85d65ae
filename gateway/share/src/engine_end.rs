//! The engine threads' ends of sharing: cells out, cells of others in. Nothing here waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spand_cells::{Cell, CellRefused, GatewayId, Shares, SharingCounts};
use spand_core::engine::Engine;
use spand_core::mem::{allocated_for, boxed};
use spand_core::window::bucket::{Contribution, RemoteRtt};
use spand_core::window::record::REMOTES_PER_BUCKET;
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};
use tokio::sync::mpsc;

use super::exchange::Topic;
use super::format::MOST_CONTRIBUTIONS;
use super::status::ShareStatus;

/// Lists of cells that may wait between the engines and the hub; one is what an engine has at once, at most [`AT_ONCE`].
const LISTS: usize = 64;
/// Cells in one list.
const AT_ONCE: usize = 1_024;
/// Cells of others that may wait for an engine.
const FOR_ENGINE: usize = 32_768;
/// Packets wait for cells of others no longer than this, and for one portion of [`FEW`].
const CELLS_FOR: Duration = Duration::from_millis(2);
const FEW: usize = 64;
/// For how long the largest lag is shown, unless there is a larger one.
const LAG_SHOWN: Duration = Duration::from_secs(1);
/// Networks whose cells are sent again between two looks at packets.
const AGAIN: usize = 64;
/// Buckets that may wait to be sent again to single gateways; more are asked for again.
const ASKED: usize = 64;
/// How often the hub sees what became of cells.
const COUNTED: Duration = Duration::from_millis(100);

/// Bytes of what may wait between N engines and the hub.
pub(super) const fn most_bytes(engines: usize) -> usize {
    let cell = boxed::<Cell>()
        + allocated_for::<Contribution>(MOST_CONTRIBUTIONS)
        + allocated_for::<RemoteRtt>(REMOTES_PER_BUCKET);
    let to_hub = (LISTS * AT_ONCE).saturating_mul(cell + size_of::<Network>());
    to_hub.saturating_add(FOR_ENGINE.saturating_mul(cell + size_of::<ToEngine>()).saturating_mul(engines))
}

/// Cells for all gateways, or for one.
pub(super) type List = (Option<GatewayId>, Vec<(Network, Cell)>);
/// Lists of cells on their way to the hub.
pub(super) type Cells = mpsc::Sender<List>;

/// What the hub sends to an engine.
#[derive(Debug)]
pub(super) enum ToEngine {
    /// What another gateway saw of a network, in a bucket that was closed or open.
    Cell(Topic, Network, Box<Cell>),
    /// Send the cells from this bucket on again.
    SendAgain(u64),
    /// Send those of this bucket to this gateway.
    SendTo(GatewayId, u64),
}

/// The hub's end towards one engine.
#[derive(Debug)]
pub(super) struct HubEnd {
    pub(super) engine: SyncSender<ToEngine>,
    pub(super) counts: Arc<Mutex<EngineCounts>>,
}

/// What became of cells at one engine.
#[derive(Clone, Debug, Default)]
pub(super) struct EngineCounts {
    pub(super) table: SharingCounts,
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// Own cells that had no room on their way to the hub.
    pub(super) no_room: u64,
}

/// An engine thread's end.
#[derive(Debug)]
pub struct EngineEnd {
    cells: Cells,
    inbox: Receiver<ToEngine>,
    counts: Arc<Mutex<EngineCounts>>,
    lags: Lags,
    own: EngineCounts,
    /// From which bucket on cells are to be sent again: asked for by the hub, or because one had no room.
    again_from: Option<u64>,
    /// Buckets that single gateways asked for.
    asked: VecDeque<(GatewayId, u64)>,
    again: Again,
    /// When the hub was last shown what became of cells.
    counted: Option<Instant>,
}

/// Cells that are being sent again.
#[derive(Debug, Default)]
struct Again {
    /// Networks to come, in reverse order.
    networks: Vec<Network>,
    /// From this bucket on,
    from: u64,
    /// or that bucket alone, to this gateway.
    to: Option<GatewayId>,
}

/// How long cells took that count.
#[derive(Debug)]
struct Lags {
    status: ShareStatus,
    /// The largest of this turn.
    largest: BTreeMap<Topic, Micros>,
}

impl Lags {
    fn note(&mut self, topic: Topic, lag: Micros) {
        self.status.measures.lag(topic, lag);
        let largest = self.largest.entry(topic).or_default();
        *largest = lag.max(*largest);
    }

    /// Shows the largest of all engines in the last second.
    fn show(&mut self) {
        if self.largest.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut view = self.status.view.lock();
        for (topic, lag) in std::mem::take(&mut self.largest) {
            let is_old = view.lag_since.get(&topic).is_none_or(|since| now.duration_since(*since) >= LAG_SHOWN);
            if is_old || view.lag.get(&topic).is_none_or(|shown| *shown <= lag) {
                view.lag.insert(topic, lag);
                view.lag_since.insert(topic, now);
            }
        }
    }
}

/// Where the engines' cells come to the hub.
pub(super) fn cells() -> (Cells, mpsc::Receiver<List>) {
    mpsc::channel(LISTS)
}

/// Both ends of one engine, which sends its cells to `cells`.
pub(super) fn ends(cells: Cells, status: ShareStatus) -> (EngineEnd, HubEnd) {
    let (engine, inbox) = sync_channel(FOR_ENGINE);
    let counts = Arc::<Mutex<EngineCounts>>::default();
    let end = EngineEnd {
        cells,
        inbox,
        counts: Arc::clone(&counts),
        lags: Lags { status, largest: BTreeMap::new() },
        own: EngineCounts::default(),
        again_from: None,
        asked: VecDeque::new(),
        again: Again::default(),
        counted: None,
    };
    (end, HubEnd { engine, counts })
}

impl EngineEnd {
    /// Gives the engine what others saw, and the hub what this engine saw. Take the engine's events afterwards. Returns whether more waits.
    pub fn turn(&mut self, engine: &mut Engine, now: Timestamp) -> bool {
        let more_waits = self.take(engine, now);
        self.lags.show();
        let mut cells = engine.take_cells();
        while !cells.is_empty() {
            let rest = cells.split_off(cells.len().min(AT_ONCE));
            self.send(None, cells);
            cells = rest;
        }
        self.send_again(engine, now);
        let instant = Instant::now();
        if self.counted.is_none_or(|at| instant.duration_since(at) >= COUNTED) {
            self.counted = Some(instant);
            self.show_counts(engine);
        }
        more_waits
    }

    fn show_counts(&mut self, engine: &Engine) {
        let refused = std::mem::take(&mut self.own.refused);
        let mut counts = self.counts.lock();
        engine.sharing_counts().inspect(|table| counts.table.clone_from(table));
        counts.no_room = self.own.no_room;
        for (reason, count) in refused {
            *counts.refused.entry(reason).or_default() += count;
        }
    }

    fn take(&mut self, engine: &mut Engine, now: Timestamp) -> bool {
        let (begun, mut few) = (Instant::now(), FEW);
        for message in self.inbox.try_iter() {
            match message {
                ToEngine::Cell(topic, network, cell) => {
                    let (as_of, before) = (cell.as_of, taken(engine));
                    match engine.take_cell(network, *cell, now) {
                        // One that is sent again and known has come before.
                        Ok(()) if taken(engine) > before && topic != Topic::Again => {
                            self.lags.note(topic, now.since(as_of));
                        }
                        Ok(()) => {}
                        Err(reason) => *self.own.refused.entry(CellRefused::name(reason)).or_default() += 1,
                    }
                }
                ToEngine::SendAgain(from) => {
                    self.again_from = Some(self.again_from.map_or(from, |before| before.min(from)));
                }
                ToEngine::SendTo(gateway, index) => {
                    if self.asked.len() < ASKED && !self.asked.contains(&(gateway, index)) {
                        self.asked.push_back((gateway, index));
                    }
                }
            }
            few -= 1;
            if few == 0 {
                if begun.elapsed() >= CELLS_FOR {
                    return true;
                }
                few = FEW;
            }
        }
        false
    }

    pub(super) fn send(&mut self, to: Option<GatewayId>, cells: Vec<(Network, Cell)>) {
        let (count, oldest) = (cells.len(), cells.iter().map(|(_, cell)| cell.index()).min());
        if self.cells.try_send((to, cells)).is_err() {
            self.own.no_room += count as u64;
            if to.is_none() {
                self.again_from = self.again_from.into_iter().chain(oldest).min();
            }
        }
    }

    /// Sends some of what is to be sent again, where there is room: first what leaves by itself.
    fn send_again(&mut self, engine: &Engine, now: Timestamp) {
        if self.again.networks.is_empty() {
            let next = self.again_from.take().map(|from| (None, from));
            let next = next.or_else(|| self.asked.pop_front().map(|(gateway, index)| (Some(gateway), index)));
            let Some((to, from)) = next else { return };
            let mut networks = engine.own_networks();
            networks.reverse();
            self.again = Again { networks, from, to };
        }
        if self.cells.capacity() < LISTS / 2 {
            return;
        }
        let Again { networks, from, to } = &mut self.again;
        let (from, to, mut cells) = (*from, *to, Vec::new());
        for network in networks.drain(networks.len().saturating_sub(AGAIN)..).rev() {
            let own = engine.own_cells(network, from, now).into_iter();
            let wanted = own.filter(|cell| to.is_none() || cell.index() == from);
            cells.extend(wanted.map(|cell| (network, cell)));
        }
        for cells in cells.chunks(AT_ONCE) {
            self.send(to, cells.to_vec());
        }
    }
}

/// Cells of others that count so far.
fn taken(engine: &Engine) -> u64 {
    engine.sharing_counts().map_or(0, |counts| counts.taken)
}
