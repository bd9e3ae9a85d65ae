//! Subscribed hosts: as many gRPC streams, each noting when a start is there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use spand_proto::contract::ContractVersion;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event;
use spand_proto::v1::{SubscribeRequest, Update};
use tokio::sync::watch;

use super::{End, Ledger, host, number_of};
use crate::lab::namespace::Namespace;
use crate::patience::PATIENCE;

/// Running subscribers.
#[derive(Debug)]
pub struct Subscribers {
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<()>>,
}

/// What hosts subscribe at.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The gateway's port for agents, on loopback of its namespace.
    pub grpc: SocketAddr,
    /// Networks that SYNs go to.
    pub networks: usize,
    /// Networks that the snapshot of a host must hold.
    pub at_once: usize,
}

/// Starts `count` subscribers and returns when each of them has its snapshot.
///
/// # Errors
/// Where one cannot subscribe, or has no snapshot within a minute.
pub fn start(namespace: &Namespace, count: usize, target: Target, ledger: &Arc<Ledger>) -> Result<Subscribers> {
    let (stop, stopped) = watch::channel(false);
    let ready = Arc::new(AtomicUsize::new(0));
    let (counting, ledger) = (Arc::clone(&ready), Arc::clone(ledger));
    let thread = namespace.spawn("subscribers", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let mut tasks = tokio::task::JoinSet::new();
            for index in 0..count {
                let subscriber = subscribe(index, target, Arc::clone(&ledger), Arc::clone(&counting), stopped.clone());
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
    let deadline = Instant::now() + PATIENCE;
    while ready.load(Ordering::Acquire) < count {
        let short = || format!("only {} of {count} subscribers have their snapshot", ready.load(Ordering::Acquire));
        if thread.is_finished() {
            thread.join().map_err(|_| anyhow!("{}: their thread panicked", short()))?.with_context(short)?;
            bail!("{}, and all have ended", short());
        }
        if Instant::now() > deadline {
            bail!("{} after {PATIENCE:?}", short());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Subscribers { stop, thread })
}

impl Subscribers {
    /// Ends all streams.
    pub fn stop(self) {
        self.stop.send_replace(true);
        if let Ok(Err(error)) = self.thread.join() {
            eprintln!("a subscriber failed: {error:#}");
        }
    }
}

async fn subscribe(
    index: usize,
    Target { grpc, networks, at_once }: Target,
    ledger: Arc<Ledger>,
    ready: Arc<AtomicUsize>,
    mut stopped: watch::Receiver<bool>,
) -> Result<()> {
    let mut client =
        SpandClient::connect(format!("http://{grpc}")).await.context("cannot reach the gateway's gRPC port")?;
    let request = SubscribeRequest {
        contract_version: ContractVersion::CURRENT.number(),
        host_name: format!("host{index}"),
        addresses: vec![IpAddr::V4(host(index)).to_string()],
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
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
                ledger.note(End::Received, number_of(remote, networks));
            }
            Event::SnapshotEnd(end) if end.networks as usize >= at_once => {
                ready.fetch_add(1, Ordering::Release);
            }
            Event::SnapshotEnd(end) => bail!("the snapshot holds {} of {at_once} networks", end.networks),
            _ => {}
        }
    }
}
