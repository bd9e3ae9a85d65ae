//! Hosts that are subscribed at a gateway and note what it tells them, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;
use spand_proto::contract::ContractVersion;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event;
use spand_proto::v1::{SubscribeRequest, Update};
use tokio::sync::watch;

use super::gateway::grpc;
use crate::lab::namespace::Namespace;

/// An estimate as a host got it.
#[derive(Clone, Copy, Debug)]
pub struct Advertised {
    /// When it came.
    pub at: Instant,
    /// When the newest sample behind it was taken.
    pub sampled: Instant,
    /// The share in bytes.
    pub share: f64,
}

/// What a host was advertised.
#[derive(Debug, Default)]
pub struct Log {
    /// Estimates of each network, the oldest first.
    pub estimates: BTreeMap<String, Vec<Advertised>>,
    /// Withdrawals: of which network, and when.
    pub withdrawn: Vec<(String, Instant)>,
    /// Complete snapshots.
    pub snapshots: usize,
    /// Times that a gateway adopted what the host holds; it names no cluster, so that none should.
    pub adopted: usize,
    /// Streams that ended.
    pub ended: usize,
}

/// A subscribed host.
#[derive(Debug)]
pub struct Listener {
    log: Arc<Mutex<Log>>,
    stop: watch::Sender<bool>,
}

impl Listener {
    /// Subscribes a host at this gateway, and again whenever the stream ends.
    ///
    /// # Errors
    /// Where there can be no thread for it.
    pub fn start(namespace: &Namespace, gateway: u16) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let log = Arc::new(Mutex::new(Log::default()));
        let taking = Arc::clone(&log);
        namespace.spawn("listener", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut stopped = stopped;
                loop {
                    tokio::select! {
                        _ = stopped.wait_for(|stop| *stop) => return,
                        // It ends where the gateway does.
                        _ = listen(gateway, &taking) => taking.lock().ended += 1,
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
            Ok(())
        })?;
        Ok(Self { log, stop })
    }

    /// Looks at what came so far.
    pub fn look<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.log.lock())
    }

    /// Forgets what came so far but the newest estimate of each network.
    pub fn begin(&self) {
        let mut log = self.log.lock();
        log.withdrawn.clear();
        log.ended = 0;
        for advertised in log.estimates.values_mut() {
            advertised.drain(..advertised.len().saturating_sub(1));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn listen(gateway: u16, log: &Mutex<Log>) -> Result<()> {
    let mut client = SpandClient::connect(format!("http://{}", grpc(gateway))).await?;
    let request = SubscribeRequest {
        contract_version: ContractVersion::CURRENT.number(),
        host_name: format!("listener{gateway}"),
        addresses: vec![format!("10.98.0.{gateway}")],
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    };
    let mut stream = client.subscribe(request).await?.into_inner();
    while let Some(Update { event, .. }) = stream.message().await? {
        let at = Instant::now();
        let mut log = log.lock();
        match event {
            Some(Event::Estimate(update)) => {
                let estimate = update.estimate.context("an update without an estimate")?;
                let sampled = at.checked_sub(Duration::from_micros(estimate.age_us)).unwrap_or(at);
                let advertised = Advertised { at, sampled, share: estimate.share_bytes };
                log.estimates.entry(estimate.network).or_default().push(advertised);
            }
            Some(Event::Withdrawal(withdrawal)) => log.withdrawn.push((withdrawal.network, at)),
            Some(Event::SnapshotEnd(_)) => log.snapshots += 1,
            Some(Event::Adopted(_)) => log.adopted += 1,
            _ => {}
        }
    }
    Err(anyhow!("the gateway ended the stream"))
}
