//! The gateway that is looked at.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use spand_cells::GatewayId;
use spand_confine::Confined;
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::networks::Withdrawal;
use spand_gateway::api::{Access, Api, ApiConfig};
use spand_gateway::config::Names;
use spand_gateway::publisher::{
    Batch, CaptureStatus, EngineStatus, MonotonicClock, PacketClock, Part, Published, PublisherConfig, Trend,
};
use spand_share::{ShareStatus, ShareView};
use strum::VariantArray;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::timeout;

use super::others::Made;
use super::past;
use super::played::Played;
use super::{hosts, others};
use crate::ending::TooBusy;

/// How often what changed is handed over, as in the daemon.
const TURN: Duration = Duration::from_millis(100);
/// Changed networks taken at a time, as in the daemon.
const CHANGED: usize = 4_000;

/// Time that its hosts get to subscribe and report.
const HOSTS_MAX: Duration = Duration::from_secs(30);

/// A running gateway; ends when dropped.
pub struct Stage {
    published: Published,
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    http: SocketAddr,
    grpc: String,
    ended: Arc<AtomicBool>,
    drift: Arc<AtomicUsize>,
    faults: Arc<AtomicBool>,
    share: ShareStatus,
    feeder: Option<JoinHandle<()>>,
}

impl Stage {
    /// A gateway that sees these kept captures and `networks` made-up networks, with four agents. `http`: where it answers;
    /// port 0 takes any.
    pub fn start(cases: &[&str], networks: usize, http: SocketAddr) -> Result<Self> {
        let clock = MonotonicClock::from_wall_clock();
        let published = Published::new(PublisherConfig::default(), clock);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let bind = |address: SocketAddr| runtime.block_on(TcpListener::bind(address));
        let http = bind(http).with_context(|| format!("cannot listen at {http}: name another one with --listen"))?;
        let grpc = bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("cannot listen")?;
        let (http_address, grpc_address) = (http.local_addr()?, format!("http://{}", grpc.local_addr()?));
        let share = ShareStatus::from(others::view());
        others::compare(&share, false);
        let (access, confined) = (Access::default(), Confined::default());
        let shares = (None, Some(share.clone()));
        let api = Api::with_access(ApiConfig::default(), access, published.clone(), shares, &confined);
        let list = tempfile::NamedTempFile::new()?;
        fs::write(
            list.path(),
            "100.64.0.0/20 Branch offices\n100.64.3.0/24 Branch office of the northern district, second floor\n",
        )?;
        let database = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/asn.mmdb");
        let names = Names { list: Some(list.path().to_owned()), asn_database: Some(database.into()) };
        api.name_networks(&names).map_err(|failure| anyhow!("{failure}"))?;
        api.continue_totals(past::before(clock.now()));
        let (one, also_stopped) = (api.clone(), stopped.clone());
        runtime.spawn(published.clone().run());
        runtime.spawn(async move { one.serve_http(http, stopped).await });
        runtime.spawn(async move { api.serve_grpc(grpc, also_stopped).await });
        for &part in Part::VARIANTS {
            published.readiness().ready(part);
        }
        let feeder = Feeder {
            played: Played::new(cases, clock.now())?,
            made: Made::new(networks, clock.now())?,
            published: published.clone(),
            frames: 0,
            dropped: 0,
            faults: Arc::default(),
            share: share.clone(),
        };
        let mut stage = Self {
            published,
            runtime: Some(runtime),
            stop,
            http: http_address,
            grpc: grpc_address,
            ended: Arc::default(),
            drift: Arc::new(AtomicUsize::new(networks / 100)),
            faults: Arc::clone(&feeder.faults),
            share,
            feeder: None,
        };
        stage.feed(feeder)?;
        Ok(stage)
    }

    /// Runs the feeder, and the hosts once it has announced the networks.
    fn feed(&mut self, mut feeder: Feeder) -> Result<()> {
        while feeder.turn(0) {}
        let (ended, drift) = (Arc::clone(&self.ended), Arc::clone(&self.drift));
        self.feeder = Some(std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                feeder.turn(drift.load(Ordering::Relaxed));
                std::thread::sleep(TURN.saturating_sub(began.elapsed()));
            }
        }));
        let runtime = self.runtime.as_ref().context("the gateway has ended")?;
        runtime.block_on(async {
            let come = async {
                hosts::subscribe(&self.grpc).await?;
                for batch in 1..=5 {
                    hosts::report(&self.grpc, batch).await?;
                }
                Ok(())
            };
            timeout(HOSTS_MAX, come).await.map_err(|_| TooBusy::new("the subscription of its hosts", HOSTS_MAX))?
        })
    }

    /// Makes up faults from here on, so that the views of them have something to show: packets that are dropped in front of the
    /// engine, advice that is withdrawn because first flights to a network lost packets, and other gateways with which something is
    /// wrong.
    pub fn invent_faults(&self) -> Result<()> {
        self.change_others(others::fail);
        others::compare(&self.share, true);
        self.faults.store(true, Ordering::Relaxed);
        let runtime = self.runtime.as_ref().context("the gateway has ended")?;
        runtime.block_on(hosts::lose(&self.grpc, 3))
    }

    /// Changes what is shown of other gateways; of [`ShareView::default`], that nothing is shared.
    pub fn change_others(&self, change: impl FnOnce(&mut ShareView)) {
        self.share.change(change);
    }

    /// Connections of another gateway, and those of them that are seen here too.
    pub fn compare_with(&self, gateway: GatewayId, compared: [u64; 2]) {
        self.share.measures().compared(gateway, compared);
    }

    /// Where the dashboard is.
    pub fn url(&self) -> String {
        format!("http://{}/", self.http)
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.http
    }

    /// Where agents subscribe.
    pub fn grpc(&self) -> &str {
        &self.grpc
    }

    /// What it publishes, to let something happen.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// Its hosts report more transfers; `batch` is one more than the last, which was the fifth at first.
    pub fn report(&self, batch: u64) -> Result<()> {
        let runtime = self.runtime.as_ref().context("the gateway has ended")?;
        runtime.block_on(hosts::report(&self.grpc, batch))
    }

    /// How many made-up networks get a sample every tenth of a second.
    pub fn set_drift(&self, networks: usize) {
        self.drift.store(networks, Ordering::Relaxed);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.feeder.take().map(JoinHandle::join);
        self.published.close();
        self.stop.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(3));
        }
    }
}

struct Feeder {
    played: Played,
    made: Made,
    published: Published,
    /// Packets played by the last turn.
    frames: u64,
    dropped: u64,
    /// Whether drops are made up.
    faults: Arc<AtomicBool>,
    share: ShareStatus,
}

impl Feeder {
    /// Plays what is due and hands over what changed; whether there is more of that.
    fn turn(&mut self, drift: usize) -> bool {
        let Self { played, made, published, frames, dropped, faults, share } = self;
        let now = published.now();
        others::hear(share);
        let mut batch = Batch::new();
        played.play(now, |engine| take_events(engine, published, &mut batch));
        made.drift(drift, now);
        while let Some(event) = made.table.poll_event() {
            batch.events.push(event.into());
        }
        let (of_played, of_made) =
            (played.engine.networks_mut().changed_records(CHANGED), made.table.changed_records(CHANGED));
        let more = of_made.len() == CHANGED;
        for (network, record) in of_played.iter().chain(&of_made) {
            batch.trends.extend(record.as_ref().map(|record| Trend::of(*network, record)));
            let view = played.engine.networks().view(*network, now).or_else(|| made.table.view(*network, now));
            batch.events.push(match view {
                Some(view) => Event::Network(Box::new(view)),
                None => Event::Withdrawn { network: *network, reason: Withdrawal::Evicted },
            });
        }
        batch.samples = played.engine.networks_mut().take_samples();
        batch.samples.extend(made.table.take_samples());
        let counters = played.engine.counters().clone();
        // One packet in fifty.
        let lost = counters.frames / 50 - *frames / 50;
        *dropped += if faults.load(Ordering::Relaxed) { lost } else { 0 };
        *frames = counters.frames;
        published.set_captures(vec![CaptureStatus {
            interface: "mirror0".to_owned(),
            received: counters.frames,
            dropped_queue: *dropped,
            is_mirror: true,
            ..CaptureStatus::default()
        }]);
        batch.engine = Some(EngineStatus {
            counters,
            connections: played.engine.connections(),
            networks: published.network_count(),
            oldest: Some(made.began),
            newest: played.newest,
            ..EngineStatus::default()
        });
        published.apply(batch);
        more
    }
}

fn take_events(engine: &mut Engine, published: &Published, batch: &mut Batch) {
    while let Some(event) = engine.poll_event() {
        match event {
            Event::StartImminent(start) => {
                if published.push_start(start) {
                    engine.note_advised(start.host, start.remote, start.at);
                }
            }
            Event::DirectionEnded(_) => {}
            event => batch.events.push(event),
        }
    }
}
