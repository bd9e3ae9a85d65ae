//! A gateway under steady load for a long time: does anything grow, slow down, or fail?
//!
//! In a namespace of its own a generated trace is played into one end of a veth pair as fast as one core can, over and over, connections
//! coming and going; a gateway captures at the other end. Meanwhile hosts subscribe, listen for a while, and leave without a
//! word, and questions are asked. One line a minute; the last lines say what moved between the first quarter and the last.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use rand::RngExt;
use spand_proto::contract::ContractVersion;
use spand_proto::v1::SubscribeRequest;
use spand_proto::v1::spand_client::SpandClient;
use spand_tests::lab::link::{End, veth};
use spand_tests::lab::namespace::Namespace;
use spand_tests::lab::wire::packet_port;
use spand_tests::product::{self, Asking, MeasuredGateway, Waits};
use spand_tests::trace::{TraceConfig, write_trace};
use tokio::task::JoinSet;

const NEAR: &str = "near0";
const FAR: &str = "far0";
/// Networks of the trace.
const NETWORKS: u32 = 5_000;
/// A frame is as long as it says it is.
const SNAP_LEN: usize = 1_514;
/// Counters that tell of something lost or refused.
const FAULTS: [&str; 4] = ["dropped", "no_room", "evicted", "queue_full"];

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Minutes of load
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Frames a second; as many as there can be where it is not given
    #[arg(long)]
    rate: Option<u32>,
    /// Connections of the trace that send at a time
    #[arg(long, default_value_t = 20_000)]
    connections: u32,
    /// Hosts that come and go
    #[arg(long, default_value_t = 50)]
    hosts: u8,
    /// Destinations a second that are asked about, in tens
    #[arg(long, default_value_t = 1_000)]
    queries: u32,
    /// The gateway; beside this program where it is not given
    #[arg(long)]
    gateway: Option<PathBuf>,
}

/// What is shared with the threads of the load.
#[derive(Debug, Default)]
struct Load {
    stop: AtomicBool,
    frames: AtomicU64,
    subscriptions: AtomicU64,
    failures: AtomicU64,
}

/// One minute.
struct Minute {
    resident: u64,
    p99: Duration,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let program = product::program(arguments.gateway.as_deref(), "spand-gateway")?;
    let namespace = Namespace::create("soak")?;
    namespace.sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    let end = |device, station| End { namespace: &namespace, device, station };
    veth(end(NEAR, 1), end(FAR, 2))?;
    let remotes: Vec<IpAddr> = (0..NETWORKS).map(|n| Ipv4Addr::from(0x5000_0001 | (n << 8)).into()).collect();
    let gateway = MeasuredGateway::start(&namespace, &program, FAR, "", &remotes)?;

    let load = Arc::new(Load::default());
    let sender = send_trace(&namespace, arguments, &load)?;
    let hosts = come_and_go(&namespace, arguments.hosts, &load)?;
    let mut minutes = Vec::new();
    println!(
        "| minute | frames sent | frames read | lost | held (MB) | p50 (ms) | p99 (ms) | subscriptions | failed |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for minute in 1..=arguments.minutes {
        let asking = Asking::start(&namespace, arguments.queries, remotes.clone())?;
        let over = Instant::now() + Duration::from_secs(60);
        while Instant::now() < over {
            thread::sleep(Duration::from_millis(200));
            ensure!(!sender.is_finished() && !hosts.is_finished(), "the load has ended");
        }
        let waits = asking.stop()?;
        minutes.push(tell(minute, &gateway, &load, &waits)?);
    }
    load.stop.store(true, Ordering::Relaxed);
    sender.join().map_err(|_| anyhow!("the sender panicked"))??;
    hosts.join().map_err(|_| anyhow!("the hosts panicked"))??;

    let quarter = minutes.len().div_ceil(4);
    let of = |minutes: &[Minute]| {
        let resident = minutes.iter().map(|minute| minute.resident).max().unwrap_or_default();
        (resident as f64 / 1e6, minutes.iter().map(|minute| minute.p99).max().unwrap_or_default())
    };
    let (first, last) =
        (of(minutes.get(..quarter).unwrap_or_default()), of(minutes.rchunks(quarter).next().unwrap_or_default()));
    println!("held at most, first and last quarter: {:.1} and {:.1} MB", first.0, last.0);
    println!("p99 at most, first and last quarter: {:.2?} and {:.2?}", first.1, last.1);
    for (name, count) in gateway.scrape()? {
        if count > 0 && FAULTS.iter().any(|fault| name.contains(fault)) {
            println!("{name}: {count}");
        }
    }
    gateway.stop()
}

fn tell(minute: u64, gateway: &MeasuredGateway, load: &Load, waits: &Waits) -> Result<Minute> {
    let counters = gateway.scrape()?;
    let sum = |part: &str| counters.iter().filter(|(name, _)| name.starts_with(part)).map(|(_, n)| n).sum::<u64>();
    let measured = Minute { resident: gateway.resident_bytes()?, p99: waits.at(99) };
    println!(
        "| {minute} | {} | {} | {} | {:.1} | {:.2} | {:.2} | {} | {} |",
        load.frames.load(Ordering::Relaxed),
        sum("spand_engine_frames_total"),
        sum("spand_capture_packets_dropped_total"),
        measured.resident as f64 / 1e6,
        waits.at(50).as_secs_f64() * 1e3,
        measured.p99.as_secs_f64() * 1e3,
        load.subscriptions.load(Ordering::Relaxed),
        load.failures.load(Ordering::Relaxed),
    );
    Ok(measured)
}

/// Plays traces, one after the other, until `stop` is set.
fn send_trace(namespace: &Namespace, arguments: &Arguments, load: &Arc<Load>) -> Result<JoinHandle<Result<()>>> {
    let (rate, connections, load) = (arguments.rate, arguments.connections, Arc::clone(load));
    namespace.spawn("sender", move || {
        let mut wire =
            Wire { port: packet_port(NEAR)?, load, rate, started: Instant::now(), record: false, header: true };
        let mut seed = 0;
        loop {
            seed += 1;
            let config = TraceConfig {
                packets: 5_000_000,
                connections,
                loss: 0.01,
                networks: NETWORKS,
                snap_len: SNAP_LEN,
                seed,
            };
            wire.header = true;
            match write_trace(&mut wire, &config) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            };
        }
    })
}

/// Takes a pcap file as it is written, a record's header and its frame at a time, and sends the frames.
struct Wire {
    port: OwnedFd,
    load: Arc<Load>,
    rate: Option<u32>,
    started: Instant,
    /// A record's header has come.
    record: bool,
    /// The file's header is still to come.
    header: bool,
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.header || !self.record {
            self.record = !self.header;
            self.header = false;
            return Ok(bytes.len());
        }
        self.record = false;
        // An error that `write_all` does not try again for.
        let stop = || io::Error::from(io::ErrorKind::BrokenPipe);
        if self.load.stop.load(Ordering::Relaxed) {
            return Err(stop());
        }
        while let Err(error) = send(self.port.as_raw_fd(), bytes, MsgFlags::empty()) {
            if !matches!(error, Errno::ENOBUFS | Errno::EAGAIN) {
                return Err(error.into());
            }
        }
        let sent = self.load.frames.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(rate) = self.rate {
            let due = self.started + Duration::from_secs_f64(sent as f64 / f64::from(rate));
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hosts that subscribe, listen for 2 to 20 s, and leave without a word.
fn come_and_go(namespace: &Namespace, hosts: u8, load: &Arc<Load>) -> Result<JoinHandle<Result<()>>> {
    let load = Arc::clone(load);
    namespace.spawn("hosts", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let mut tasks = JoinSet::new();
            for host in 1..=hosts {
                let load = Arc::clone(&load);
                tasks.spawn(async move {
                    while !load.stop.load(Ordering::Relaxed) {
                        let time = Duration::from_millis(rand::rng().random_range(2_000..20_000));
                        match tokio::time::timeout(time, listen(host, &load)).await {
                            // It listened until its time was over.
                            Err(_) | Ok(Ok(())) => {}
                            Ok(Err(error)) => {
                                load.failures.fetch_add(1, Ordering::Relaxed);
                                eprintln!("host {host}: {error:#}");
                                tokio::time::sleep(Duration::from_secs(1)).await;
                            }
                        }
                    }
                });
            }
            while tasks.join_next().await.is_some() {}
            Ok(())
        })
    })
}

async fn listen(host: u8, load: &Load) -> Result<()> {
    let mut client = SpandClient::connect(format!("http://{}:7400", Ipv4Addr::LOCALHOST)).await?;
    let request = SubscribeRequest {
        contract_version: ContractVersion::CURRENT.number(),
        host_name: format!("host{host}"),
        addresses: vec![Ipv4Addr::new(10, 0, 0, host).to_string()],
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    };
    let mut updates = client.subscribe(request).await?.into_inner();
    load.subscriptions.fetch_add(1, Ordering::Relaxed);
    while updates.message().await?.is_some() {}
    Err(anyhow!("the gateway ended the stream"))
}
