//! Questions asked of the gateway while packets come: how long each waited from when it was due.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use spand_proto::contract::ContractVersion;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::{QueryRequest, Question};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::ending::TooBusy;
use crate::lab::namespace::Namespace;
use crate::patience::PATIENCE;

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

// The gateway's JSON interface, asked as a person would with curl.

/// Where the interface is.
#[derive(Debug)]
pub struct Api {
    /// A namespace that reaches it.
    pub namespace: Namespace,
    /// Its address there.
    pub address: SocketAddr,
}

impl Api {
    /// The address of `path` for people.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Asks for `path`: status and body.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let url = self.url(path);
        self.namespace.enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let answer = runtime.block_on(async {
                tokio::time::timeout(PATIENCE, async {
                    let client = Client::builder(TokioExecutor::new()).build_http::<String>();
                    let response = client.get(url.parse()?).await?;
                    let status = response.status().as_u16();
                    let body = response.into_body().collect().await?.to_bytes();
                    anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
                })
                .await
            });
            answer.map_err(|_| TooBusy::new(format!("the answer of {url}"), PATIENCE))?
        })
    }

    /// Asks for `path` and reads the JSON of a good answer.
    pub fn json(&self, path: &str) -> Result<Value> {
        let (status, body) = self.get(path)?;
        if status != 200 {
            bail!("{} answered {status}: {body}", self.url(path));
        }
        serde_json::from_str(&body).with_context(|| format!("{} is no JSON: {body}", self.url(path)))
    }
}
