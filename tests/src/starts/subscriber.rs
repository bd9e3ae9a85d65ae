//! Subscribed hosts: as many gRPC streams, each noting when a start is there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::socket::{MsgFlags, send as send_frame};
use spand_proto::contract::ContractVersion;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event;
use spand_proto::v1::{SubscribeRequest, Update};
use tokio::sync::watch;

use super::{End, Ledger, host, number_of, remote};
use crate::lab::namespace::Namespace;
use crate::lab::wire::packet_port;
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
        thread::sleep(Duration::from_millis(20));
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

// The mirror port: SYNs as Ethernet frames, at a steady rate.

/// Sends one SYN per entry of the ledger from the interface `device`, `rate` of them a second.
///
/// # Errors
/// Where the interface takes no frames.
pub fn send(device: &str, hosts: usize, networks: usize, rate: u32, ledger: &Ledger) -> Result<()> {
    let port = packet_port(device)?;
    let gap = Duration::from_secs(1) / rate;
    let started = Instant::now();
    for number in 0..ledger.len() {
        let due = started + gap * u32::try_from(number)?;
        // Sleeping is late by up to a tenth of a millisecond, which only makes the gaps uneven.
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let frame = syn(host(number % hosts), remote(number, networks));
        ledger.note(End::Sent, number);
        send_frame(port.as_raw_fd(), &frame, MsgFlags::empty()).context("cannot send on the mirror port")?;
    }
    Ok(())
}

/// A SYN with the usual options; its checksums are left at zero, as a mirror port may show them.
fn syn(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 48, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x70, 0x02, 0xfa, 0xf0, 0, 0, 0, 0]);
    frame.extend([2, 4, 5, 0xb4, 1, 1, 4, 2]);
    frame
}
