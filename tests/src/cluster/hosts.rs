//! Hosts that choose among several gateways: the agent's own subscriber, and what it holds, without a kernel to apply it in.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use parking_lot::Mutex;
use spand_agent::Clock;
use spand_agent::config::{self, Config};
use spand_agent::subscriber::{Dialer, HoldingCounts, Holdings, QUEUE, Signal, Subscriber};
use spand_proto::contract::HostName;
use spand_proto::push::{AgentDescription, ApplyMethod, UpdateEvent};
use spand_proto::start::Mode;
use spand_proto::units::Micros;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval_at};

use super::gateway::grpc;
use crate::lab::namespace::Namespace;

/// How often an agent looks at lifetimes.
const TICK: Duration = Duration::from_secs(1);
/// What the threads of all hosts are called.
pub const THREADS: &str = "agents";
/// Threads of all hosts.
const WORKERS: usize = 2;

/// What a host did at a gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum What {
    /// It is subscribed there from here on.
    Subscribed,
    /// A snapshot from there is whole.
    Whole,
    /// The stream ended, or could not be opened.
    Failed,
}

/// Something that a host did, and when.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    /// When.
    pub at: Instant,
    /// Which host: an index.
    pub host: usize,
    /// The number of the gateway.
    pub gateway: u16,
    /// What.
    pub what: What,
}

/// A host as it was at its last look at lifetimes.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    held: usize,
    counts: HoldingCounts,
}

/// What all hosts hold, and what happened to advice on them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    /// Pairs of a host and a network that it holds advice of.
    pub held: usize,
    /// The fewest networks on one host.
    pub fewest: usize,
    /// Advice whose lifetime ended.
    pub lapsed: u64,
    /// Times that a host's advice was adopted.
    pub adoptions: u64,
    /// Advice whose lifetime that extended.
    pub adopted: u64,
}

#[derive(Debug)]
struct Shared {
    /// Their gateways' numbers.
    gateways: Vec<u16>,
    log: Mutex<Vec<Noted>>,
    seats: Mutex<Vec<Option<u16>>>,
    seen: Vec<Mutex<Seen>>,
}

/// Running hosts; they end when dropped.
#[derive(Debug)]
pub struct Hosts {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Hosts {
    /// Starts `count` hosts, each of which prefers these gateways of the namespace in an order of its own.
    ///
    /// # Errors
    /// Where there can be no thread for them.
    pub fn start(namespace: &Namespace, gateways: Vec<u16>, count: usize) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            gateways,
            log: Mutex::default(),
            seats: Mutex::new(vec![None; count]),
            seen: (0..count).map(|_| Mutex::default()).collect(),
        });
        let common = Arc::clone(&shared);
        // Workers are in the namespace of the thread that starts them.
        let thread = namespace.spawn(THREADS, move || {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime = builder.worker_threads(WORKERS).thread_name(THREADS).enable_all().build()?;
            runtime.block_on(async move {
                let mut hosts = tokio::task::JoinSet::new();
                for number in 0..count {
                    hosts.spawn(run(number, Arc::clone(&common), stopped.clone()));
                }
                while let Some(ended) = hosts.join_next().await {
                    ended??;
                }
                Ok(())
            })
        })?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shared.seen.len()
    }

    /// The gateway that each is subscribed to.
    pub fn seats(&self) -> Vec<Option<u16>> {
        self.shared.seats.lock().clone()
    }

    /// Those that are subscribed to this gateway.
    pub fn at(&self, gateway: u16) -> Vec<usize> {
        let seats = self.shared.seats.lock();
        seats.iter().enumerate().filter(|(_, seat)| **seat == Some(gateway)).map(|(host, _)| host).collect()
    }

    /// What they did since then, in order.
    pub fn since(&self, from: Instant) -> Vec<Noted> {
        let log = self.shared.log.lock();
        log.iter().filter(|noted| noted.at >= from).copied().collect()
    }

    /// What they hold, as of the last second.
    pub fn total(&self) -> Total {
        let mut total = Total { fewest: usize::MAX, ..Total::default() };
        for seen in &self.shared.seen {
            let Seen { held, counts } = *seen.lock();
            total.held += held;
            total.fewest = total.fewest.min(held);
            total.lapsed += counts.expired;
            total.adoptions += counts.adoptions;
            total.adopted += counts.adopted;
        }
        total
    }

    /// Ends them.
    ///
    /// # Errors
    /// Where one of them could not go on.
    pub fn stop(mut self) -> Result<()> {
        self.stop.send_replace(true);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow!("the hosts panicked"))?
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// The configuration of a host's agent.
fn configuration(number: usize, gateways: &[u16]) -> Config {
    let mut urls: Vec<String> = gateways.iter().map(|gateway| format!("http://{}", grpc(*gateway))).collect();
    // As an operator divides hosts: each gateway is first for as many, and those of one that is gone are divided too.
    let (count, turn) = (urls.len().max(1), number / urls.len().max(1));
    urls.rotate_left(number % count);
    if let Some((_, rest)) = urls.split_first_mut() {
        let rest_count = rest.len().max(1);
        rest.rotate_left(turn % rest_count);
    }
    let gateway = config::Gateway { url: None, urls: Some(urls), ..config::Gateway::default() };
    Config { host_name: format!("web-{number}.example.org"), gateway, ..Config::default() }
}

/// Apart from the servers of played traffic, whose starts would be pushed.
fn address(number: usize) -> Result<IpAddr> {
    let [high, low] = u16::try_from(number)?.to_be_bytes();
    Ok(Ipv4Addr::new(10, 97, high, low).into())
}

async fn run(number: usize, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) -> Result<()> {
    let config = configuration(number, &shared.gateways);
    let clock = Clock::start();
    let (signals, heard) = mpsc::channel(QUEUE);
    let (_addresses, own) = watch::channel(vec![address(number)?]);
    let description = AgentDescription {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: Some(Mode::Observe),
        method: Some(ApplyMethod::DryRun),
        pause: None,
    };
    let speaker = (HostName::try_from(config.host_name.clone())?, description);
    let subscriber = Subscriber::new(Arc::new(Dialer::new(&config)?), clock, speaker, signals);
    let lifetime = Micros::from_secs(config.policy.lifetime_s.get());
    let holdings = Holdings::new(config.limits.networks, lifetime);
    tokio::select! {
        () = subscriber.run(own) => Err(anyhow!("the subscriber of host {number} ended")),
        () = hold(number, &shared, clock, heard, holdings) => Err(anyhow!("the signals of host {number} ended")),
        _ = stopped.wait_for(|stop| *stop) => Ok(()),
    }
}

/// Takes in signals as the agent does.
async fn hold(number: usize, shared: &Shared, clock: Clock, mut heard: mpsc::Receiver<Signal>, mut holdings: Holdings) {
    // Not all of them at one moment.
    let first = TICK.mul_f64(number as f64 / shared.seen.len() as f64);
    let mut tick = interval_at(tokio::time::Instant::now() + first, TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seat = None;
    loop {
        let signal = tokio::select! {
            signal = heard.recv() => signal,
            _ = tick.tick() => {
                holdings.expire(clock.now());
                if let Some(seen) = shared.seen.get(number) {
                    *seen.lock() = Seen { held: holdings.len(), counts: holdings.counts() };
                }
                continue;
            }
        };
        match signal {
            None => return,
            Some(Signal::Connected(url)) => {
                holdings.on_new_stream();
                seat = shared.gateway(&url);
                shared.note(number, seat, What::Subscribed);
            }
            Some(Signal::Event(event, arrived)) => {
                holdings.on_event(&event, arrived);
                if matches!(*event, UpdateEvent::SnapshotEnd { .. }) {
                    shared.note(number, seat, What::Whole);
                }
            }
            Some(Signal::Unreadable(Some(network))) => holdings.forget(network),
            Some(Signal::Lost { gateway, .. }) => {
                holdings.on_lost(clock.now());
                shared.note(number, shared.gateway(&gateway), What::Failed);
            }
            Some(Signal::Gap | Signal::Unreadable(None) | Signal::Restarted(_) | Signal::NotBack { .. }) => {}
        }
    }
}

impl Shared {
    fn gateway(&self, url: &str) -> Option<u16> {
        self.gateways.iter().copied().find(|gateway| url == format!("http://{}", grpc(*gateway)))
    }

    fn note(&self, host: usize, gateway: Option<u16>, what: What) {
        let Some(gateway) = gateway else { return };
        if let Some(seat) = self.seats.lock().get_mut(host) {
            match what {
                What::Subscribed => *seat = Some(gateway),
                What::Whole => {}
                What::Failed => *seat = None,
            }
        }
        self.log.lock().push(Noted { at: Instant::now(), host, gateway, what });
    }
}
