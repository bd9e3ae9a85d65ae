//! Honest ones: an agent that is subscribed, one that begins, a supervisor; and what the gateway counts.

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use spand_core::event::{Event as EngineEvent, StartImminent};
use spand_core::types::Trigger;
use spand_gateway::publisher::{Batch, Published};
use spand_proto::network::Network;
use spand_proto::units::Window;
use spand_proto::v1::update::Event;
use spand_proto::{made_up, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::attacker::{Counts, Look};
use super::{HOSTS, NAMES, NETWORKS, START_EVERY, SUPERVISOR, Target};
use crate::access::Setup;
use crate::patience::PATIENCE;

/// Time between two questions of the supervisor.
const HEALTH_EVERY: Duration = Duration::from_millis(50);
/// Who gets no answer within this counts as not answered.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// An agent that is subscribed, and how long each start took to it.
#[derive(Debug)]
pub(super) struct Agent {
    delays: Arc<Mutex<Vec<Duration>>>,
    reader: AbortHandle,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Agent {
    /// Subscribes, and has its snapshot.
    pub(super) async fn subscribe(target: &Target) -> Result<Self> {
        let mut client = target.client(NAMES[0], None).await?;
        let mut updates = client.subscribe(wish(0)).await?.into_inner();
        loop {
            let update = updates.message().await?.context("the stream ended")?;
            if matches!(update.event, Some(Event::SnapshotEnd(_))) {
                break;
            }
        }
        let delays = Arc::new(Mutex::new(Vec::new()));
        let (noted, clock_ns) = (Arc::clone(&delays), target.clock_ns);
        let reader = tokio::spawn(async move {
            // Held as long as its stream.
            let _client = client;
            while let Ok(Some(update)) = updates.message().await {
                if let Some(Event::ImminentStart(start)) = update.event {
                    let now_ns = monotonic_ns() + clock_ns;
                    noted.lock().push(Duration::from_nanos(now_ns.saturating_sub(start.observed_unix_ns)));
                }
            }
        });
        Ok(Self { delays, reader: reader.abort_handle() })
    }

    fn take(&self) -> Result<Vec<Duration>> {
        if self.reader.is_finished() {
            bail!("the gateway ended the agent's stream");
        }
        Ok(std::mem::take(&mut *self.delays.lock()))
    }
}

fn wish(host: usize) -> v1::SubscribeRequest {
    let (addresses, host_name) = (vec![HOSTS[host].to_owned()], NAMES[host].to_owned());
    v1::SubscribeRequest {
        contract_version: 1,
        host_name,
        addresses,
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| u64::try_from(now.tv_sec() * 1_000_000_000 + now.tv_nsec()).unwrap_or(0))
}

/// Lets time pass, and what the agent gets in it.
pub(super) async fn skip(agent: &mut Agent, span: Duration) -> Result<()> {
    sleep(span).await;
    agent.take().map(drop)
}

/// What honest ones see for so long.
pub(super) async fn look(target: &Target, agent: &mut Agent, span: Duration) -> Result<Look> {
    let until = Instant::now() + span;
    agent.take()?;
    let supervisor = {
        let target = target.clone();
        tokio::spawn(async move { supervise(&target, until).await })
    };
    // As one that starts.
    let snapshot = timeout(ANSWER_MAX, snapshot(target)).await;
    let snapshot = snapshot.unwrap_or(Ok(ANSWER_MAX))?;
    sleep(until.saturating_duration_since(Instant::now())).await;
    let pushes = agent.take()?;
    let (asked, answered, slowest) = supervisor.await?;
    Ok(Look { snapshots: vec![snapshot], pushes, asked, answered, slowest })
}

/// From the connection to the end of the snapshot.
async fn snapshot(target: &Target) -> Result<Duration> {
    let began = Instant::now();
    let mut updates = target.client(NAMES[1], None).await?.subscribe(wish(1)).await?.into_inner();
    loop {
        let update = updates.message().await?.context("the stream ended")?;
        if let Some(Event::SnapshotEnd(end)) = update.event {
            // Reports of losses take advice back, which is another matter.
            if end.networks * 2 < u32::from(NETWORKS) {
                bail!("the snapshot holds {} of {NETWORKS} networks", end.networks);
            }
            return Ok(began.elapsed());
        }
    }
}

/// Asks for health again and again: how often, how often it was answered, and the longest that took.
async fn supervise(target: &Target, until: Instant) -> (u32, u32, Duration) {
    let (mut asked, mut answered, mut slowest) = (0, 0, Duration::ZERO);
    while Instant::now() < until {
        let began = Instant::now();
        asked += 1;
        let answer = timeout(ANSWER_MAX, get(target, "/healthz")).await;
        answered += u32::from(answer.is_ok_and(|answer| answer.is_ok_and(|text| text.starts_with("HTTP/1.1 200"))));
        slowest = slowest.max(began.elapsed());
        sleep(HEALTH_EVERY.saturating_sub(began.elapsed())).await;
    }
    (asked, answered, slowest)
}

async fn get(target: &Target, path: &str) -> Result<String> {
    let mut tcp = target.connect(target.http, SUPERVISOR, None).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    tcp.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// What the gateway has counted so far.
pub(super) async fn counts(target: &Target) -> Result<Counts> {
    let text = get(target, "/metrics").await?;
    let sum = |name: &str| -> u64 {
        let of = text.lines().filter(|line| line.starts_with(name));
        of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    Ok(Counts {
        connections: sum("spand_api_connections_accepted_total"),
        requests: sum("spand_api_requests_total"),
        refused: sum("spand_api_refused_total") + sum("spand_api_connections_displaced_total"),
    })
}

/// Waits until more than a supervisor and these questions have come.
pub(super) async fn until_more(target: &Target, before: &Counts) -> Result<()> {
    const MORE: u64 = 20;
    let began = Instant::now();
    for own in 1.. {
        let now = counts(target).await?;
        if now.connections + now.requests >= before.connections + before.requests + MORE + 2 * own {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            bail!("nothing of the attack came");
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

// The gateway's process: its listeners as a configuration makes them, and a thread that announces starts as an engine does.

/// Runs until the process that started it is gone.
pub(super) fn run() -> Result<()> {
    // As many threads as the product has.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stage = runtime.block_on(async { Setup::new()?.start().await })?;
    for (host, name) in HOSTS.iter().zip(NAMES) {
        stage.authority.make(&[host])?.write(stage.path(), name)?;
    }
    fill(&stage.published);
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let now_ns = stage.published.now().0;
    let monotonic_ns = u64::try_from(monotonic.tv_sec() * 1_000_000_000 + monotonic.tv_nsec())?;
    let (grpc, http, folder) = (stage.grpc, stage.http, stage.path().to_owned());
    let target = Target { grpc, http, folder, clock_ns: now_ns - monotonic_ns };
    println!("{}", serde_json::to_string(&target)?);
    std::io::stdout().flush()?;
    let published = stage.published.clone();
    thread::Builder::new().name("engine".to_owned()).spawn(move || announce(&published))?;
    // Ends with the process that holds the other end.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    stage.stop();
    Ok(())
}

fn fill(published: &Published) {
    let now = published.now();
    let network = |n: u16| {
        let [high, low] = n.to_be_bytes();
        Network::of([100, high, low, 1].into())
    };
    let estimate = |n: u16| {
        let share = Window::from_bytes(20_000.0 + f64::from(n)).unwrap_or_default();
        EngineEvent::estimate(made_up::estimate(network(n), share, now))
    };
    published.apply(Batch { events: (0..NETWORKS).map(estimate).collect(), ..Batch::new() });
}

fn announce(published: &Published) {
    let host = HOSTS[0].parse().expect("an address");
    let began = Instant::now();
    for n in 1.. {
        let [_, _, high, low] = u32::to_be_bytes(n % u32::from(NETWORKS));
        let remote = [100, high, low, 7].into();
        let network = Network::of(remote);
        published.push_start(StartImminent {
            at: published.now(),
            host,
            remote,
            network,
            trigger: Trigger::PassiveOpen,
        });
        thread::sleep((began + START_EVERY * n).saturating_duration_since(Instant::now()));
    }
}
