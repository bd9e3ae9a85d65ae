//! Subscribed hosts: as many gRPC streams, each noting when a start is there.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use spand_proto::contract::ContractVersion;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event;
use spand_proto::v1::{SubscribeRequest, Update};
use spand_tests::lab::namespace::Namespace;
use tokio::sync::watch;

use super::{Ledger, host};
use crate::gateway::GRPC;

/// Running subscribers.
#[derive(Debug)]
pub(super) struct Subscribers {
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<()>>,
}

/// Starts `count` subscribers and returns when each of them has its snapshot.
pub(super) fn start(namespace: &Namespace, count: usize, networks: usize, ledger: &Arc<Ledger>) -> Result<Subscribers> {
    let (stop, stopped) = watch::channel(false);
    let ready = Arc::new(AtomicUsize::new(0));
    let (counting, ledger) = (Arc::clone(&ready), Arc::clone(ledger));
    let thread = namespace.spawn("subscribers", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let mut tasks = tokio::task::JoinSet::new();
            for index in 0..count {
                let subscriber =
                    subscribe(index, networks, Arc::clone(&ledger), Arc::clone(&counting), stopped.clone());
                tasks.spawn(async move {
                    subscriber.await.with_context(|| format!("subscriber {index} of {count} ({})", host(index)))
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            Ok(())
        })
    })?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while ready.load(Ordering::Acquire) < count {
        let short = || format!("only {} of {count} subscribers have their snapshot", ready.load(Ordering::Acquire));
        if thread.is_finished() {
            thread.join().map_err(|_| anyhow!("{}: their thread panicked", short()))?.with_context(short)?;
            bail!("{}, and all have ended", short());
        }
        if Instant::now() > deadline {
            bail!("{} after a minute", short());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Subscribers { stop, thread })
}

impl Subscribers {
    /// Ends all streams.
    pub(super) fn stop(self) {
        self.stop.send_replace(true);
        if let Ok(Err(error)) = self.thread.join() {
            eprintln!("a subscriber failed: {error:#}");
        }
    }
}

async fn subscribe(
    index: usize,
    networks: usize,
    ledger: Arc<Ledger>,
    ready: Arc<AtomicUsize>,
    mut stopped: watch::Receiver<bool>,
) -> Result<()> {
    let mut client =
        SpandClient::connect(format!("http://{GRPC}")).await.context("cannot reach the gateway's gRPC port")?;
    let request = SubscribeRequest {
        contract_version: ContractVersion::CURRENT.number(),
        host_name: format!("host{index}"),
        addresses: vec![IpAddr::V4(host(index)).to_string()],
        agent: None,
        cluster: String::new(),
    };
    let mut stream = client.subscribe(request).await.context("the gateway refused the subscription")?.into_inner();
    loop {
        let update = tokio::select! {
            update = stream.message() => update.context("the stream of updates broke")?,
            _ = stopped.wait_for(|stop| *stop) => return Ok(()),
        };
        let Some(Update { event: Some(event), .. }) = update else { bail!("the gateway ended the stream") };
        match event {
            Event::ImminentStart(start) => {
                let remote: Ipv4Addr = start
                    .remote_address
                    .parse()
                    .with_context(|| format!("a start for `{}`, which is no IPv4 address", start.remote_address))?;
                ledger.note(&ledger.received, super::number_of(remote, networks));
            }
            Event::SnapshotEnd(end) if end.networks as usize >= networks => {
                ready.fetch_add(1, Ordering::Release);
            }
            Event::SnapshotEnd(end) => bail!("the snapshot holds {} of {networks} networks", end.networks),
            _ => {}
        }
    }
}
