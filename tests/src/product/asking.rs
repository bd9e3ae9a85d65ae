//! Questions asked of the gateway while packets come: how long each waited from when it was due.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::lab::namespace::Namespace;
use anyhow::{Context, Result, ensure};
use spand_proto::contract::ContractVersion;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::{QueryRequest, Question};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Destinations in one question.
const BATCH: u32 = 10;
/// Connections that the questions are spread over, as over as many hosts.
const CLIENTS: usize = 8;

/// Asks until stopped.
#[derive(Debug)]
pub struct Asking {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Waits>>,
}

/// How long answers took.
#[derive(Debug, Default)]
pub struct Waits {
    waits: Vec<Duration>,
    /// Destinations that were answered with an estimate.
    estimates: u64,
}

impl Asking {
    /// Asks `rate` destinations a second among the networks of `remotes`.
    pub fn start(namespace: &Namespace, rate: u32, remotes: Vec<IpAddr>) -> Result<Self> {
        ensure!(rate >= BATCH && !remotes.is_empty(), "nothing to ask");
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = namespace.spawn("queries", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(ask(rate, &remotes, &stopping))
        })?;
        Ok(Self { stop, thread })
    }

    /// Stops asking and returns the waits.
    pub fn stop(self) -> Result<Waits> {
        self.stop.store(true, Ordering::Relaxed);
        let mut waits = self.thread.join().ok().context("the asking thread panicked")??;
        waits.waits.sort_unstable();
        Ok(waits)
    }
}

impl Waits {
    fn take(&mut self, (wait, estimates): (Duration, u64)) {
        self.waits.push(wait);
        self.estimates += estimates;
    }

    /// The wait that this percentage does not exceed.
    pub fn at(&self, percent: usize) -> Duration {
        let place = (self.waits.len() * percent / 100).min(self.waits.len().saturating_sub(1));
        self.waits.get(place).copied().unwrap_or_default()
    }

    /// One line.
    pub fn print(&self) {
        let ms = |percent| self.at(percent).as_secs_f64() * 1e3;
        println!(
            "{} questions of {BATCH} destinations, {} answered with an estimate: p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
            self.waits.len(),
            self.estimates,
            ms(50),
            ms(99),
            ms(100)
        );
    }
}

async fn ask(rate: u32, remotes: &[IpAddr], stop: &AtomicBool) -> Result<Waits> {
    let endpoint = format!("http://{}:7400", Ipv4Addr::LOCALHOST);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(SpandClient::connect(endpoint.clone()).await?);
    }
    let period = Duration::from_secs(1) * BATCH / rate;
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut waits = Waits::default();
    let mut asked = JoinSet::new();
    let (mut next, mut number) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        // What was due earlier counts from then: a gateway that stands still is not asked less.
        let due: Instant = ticks.tick().await.into();
        let questions = (0..BATCH).map(|n| {
            let remote = remotes.get((next + n as usize) % remotes.len());
            Question {
                address: remote.map(ToString::to_string).unwrap_or_default(),
                transfer_bytes: Some(100_000),
                ..Question::default()
            }
        });
        let request = QueryRequest {
            contract_version: ContractVersion::CURRENT.number(),
            questions: questions.collect(),
            ..QueryRequest::default()
        };
        next = (next + BATCH as usize) % remotes.len();
        number += 1;
        let Some(client) = clients.get(number % CLIENTS) else { continue };
        let mut client = client.clone();
        asked.spawn(async move {
            let answers = client.query(request).await?.into_inner().answers;
            let estimates = answers.iter().filter(|answer| answer.estimate.is_some()).count();
            anyhow::Ok((due.elapsed(), estimates as u64))
        });
        while let Some(done) = asked.try_join_next() {
            waits.take(done??);
        }
    }
    while let Some(done) = asked.join_next().await {
        waits.take(done??);
    }
    Ok(waits)
}
