//! Subscribed hosts: they read, make a message of each update, and count.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use prost::Message;
use spand_gateway::api::{Api, ApiConfig};
use spand_gateway::publisher::Published;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event;
use spand_proto::v1::{SubscribeRequest, Update};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::world::host_address;

/// All hosts of a run.
#[derive(Debug)]
pub(super) struct Hosts {
    tally: Arc<Tally>,
    /// Counts how often they are to come back.
    again: watch::Sender<u32>,
    _server: watch::Sender<bool>,
}

/// What hosts received since they subscribed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) estimates: u64,
    pub(super) starts: u64,
    pub(super) withdrawals: u64,
    pub(super) renewals: u64,
    pub(super) others: u64,
    pub(super) bytes: u64,
    pub(super) snapshots: u64,
}

impl Counts {
    pub(super) const fn messages(&self) -> u64 {
        self.estimates + self.starts + self.withdrawals + self.renewals + self.others
    }

    pub(super) const fn since(&self, earlier: &Self) -> Self {
        Self {
            estimates: self.estimates - earlier.estimates,
            starts: self.starts - earlier.starts,
            withdrawals: self.withdrawals - earlier.withdrawals,
            renewals: self.renewals - earlier.renewals,
            others: self.others - earlier.others,
            bytes: self.bytes - earlier.bytes,
            snapshots: self.snapshots - earlier.snapshots,
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    estimates: AtomicU64,
    starts: AtomicU64,
    withdrawals: AtomicU64,
    renewals: AtomicU64,
    others: AtomicU64,
    bytes: AtomicU64,
    snapshots: AtomicU64,
    /// Delays of starts by the power of two of their microseconds.
    delays: [AtomicU64; 32],
}

impl Tally {
    fn take(&self, message: &Update, bytes: usize) {
        let one = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        match &message.event {
            Some(Event::Estimate(_)) => one(&self.estimates),
            Some(Event::ImminentStart(start)) => {
                one(&self.starts);
                let power = u64::BITS - start.delay_us.leading_zeros();
                if let Some(count) = self.delays.get(power as usize) {
                    one(count);
                }
            }
            Some(Event::Withdrawal(_)) => one(&self.withdrawals),
            Some(Event::Renewal(_)) => one(&self.renewals),
            other => {
                one(&self.others);
                if matches!(other, Some(Event::SnapshotEnd(_))) {
                    one(&self.snapshots);
                }
            }
        }
    }
}

impl Hosts {
    /// Subscribes `count` hosts, the first `grpc` of them over loopback.
    pub(super) fn subscribe(runtime: &Runtime, published: &Published, count: u32, grpc: u32) -> Result<Self> {
        let tally = Arc::new(Tally::default());
        let (again, back) = watch::channel(0);
        let (stop, stopped) = watch::channel(false);
        let address = serve(runtime, published, count, stopped)?;
        for host in 0..count {
            let (tally, back) = (Arc::clone(&tally), back.clone());
            if host < grpc {
                runtime.spawn(async move {
                    if let Err(error) = listen(address, host, &tally, back).await {
                        eprintln!("host {host} ended: {error:#}");
                    }
                });
            } else {
                runtime.spawn(read(published.clone(), host_address(host), tally, back));
            }
        }
        Ok(Self { tally, again, _server: stop })
    }

    pub(super) fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let tally = &self.tally;
        Counts {
            estimates: of(&tally.estimates),
            starts: of(&tally.starts),
            withdrawals: of(&tally.withdrawals),
            renewals: of(&tally.renewals),
            others: of(&tally.others),
            bytes: of(&tally.bytes),
            snapshots: of(&tally.snapshots),
        }
    }

    /// Waits until next to nothing is sent any more.
    pub(super) fn settle(&self) {
        loop {
            let before = self.counts();
            thread::sleep(Duration::from_secs(1));
            if self.counts().since(&before).messages() < 1_000 {
                return;
            }
        }
    }

    /// Has all of them end their streams and subscribe again.
    pub(super) fn come_back(&mut self) {
        self.again.send_modify(|times| *times += 1);
    }

    /// Begins the account of delays.
    pub(super) fn forget_delays(&self) {
        for count in &self.tally.delays {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// The delay in milliseconds that this share of all starts did not exceed: the end of its power of two.
    pub(super) fn delay_ms(&self, share: f64) -> f64 {
        let counts: Vec<u64> = self.tally.delays.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let mut sum = 0;
        let place = counts.iter().position(|count| {
            sum += count;
            sum as f64 >= all as f64 * share
        });
        place.map_or(f64::NAN, |power| 2f64.powi(i32::try_from(power).unwrap_or(0)) / 1e3)
    }
}

/// A host in this process.
async fn read(published: Published, address: IpAddr, tally: Arc<Tally>, mut back: watch::Receiver<u32>) {
    let mut encoded = Vec::new();
    loop {
        let Ok(mut subscription) = published.subscribe(&[address]) else { return };
        loop {
            let update = tokio::select! {
                update = subscription.next() => update,
                gone = back.changed() => if gone.is_ok() { break } else { return },
            };
            let Some(update) = update else { return };
            let message = update.to_wire(published.now());
            encoded.clear();
            if message.encode(&mut encoded).is_err() {
                return;
            }
            tally.take(&message, encoded.len());
        }
    }
}

/// A host over gRPC.
async fn listen(address: SocketAddr, host: u32, tally: &Tally, mut back: watch::Receiver<u32>) -> Result<()> {
    let mut client = SpandClient::connect(format!("http://{address}")).await?;
    loop {
        let wish = SubscribeRequest {
            contract_version: 1,
            host_name: format!("host-{host}"),
            addresses: vec![host_address(host).to_string()],
            agent: None,
            cluster: String::new(),
            networks: Vec::new(),
        };
        let mut updates = client.subscribe(wish).await?.into_inner();
        loop {
            let message = tokio::select! {
                message = updates.message() => message?,
                gone = back.changed() => if gone.is_ok() { break } else { return Ok(()) },
            };
            let Some(message) = message else { return Ok(()) };
            tally.take(&message, message.encoded_len());
        }
    }
}

fn serve(runtime: &Runtime, published: &Published, hosts: u32, stopped: watch::Receiver<bool>) -> Result<SocketAddr> {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).context("a port on loopback")?;
    let address = listener.local_addr().context("its number")?;
    let many = NonZeroUsize::new(2 * hosts as usize).context("a host")?;
    let config = ApiConfig {
        grpc_connections: many,
        connections_per_peer: many,
        streams_per_peer: many,
        ..ApiConfig::default()
    };
    let api = Api::new(config, published.clone(), None);
    runtime.spawn(async move { api.serve_grpc(listener, stopped).await });
    Ok(address)
}
