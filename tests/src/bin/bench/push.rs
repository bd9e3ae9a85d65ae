//! How long a push takes: from a SYN's frame handed to the engine to the update in the subscriber's hands.
//!
//! Engine, publisher and gRPC server are the gateway's own; the subscribers are real gRPC clients over loopback, on a
//! runtime of their own. Engine, server and subscribers share this machine's cores, which a real gateway's subscribers
//! do not. Not in the figure: the kernel's way from the wire to the capture thread (`spand_publisher_start_sent_seconds`
//! of a running gateway has it).
//!
//! Ends with 1 when the 99th percentile is not below the target.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::wire::Frame;
use spand_gateway::api::{Api, ApiConfig};
use spand_gateway::publisher::{Batch, MonotonicClock, PacketClock, Published, PublisherConfig};
use spand_proto::made_up;
use spand_proto::network::Network;
use spand_proto::units::{Timestamp, Window};
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event as UpdateEvent;
use spand_proto::v1::{SubscribeRequest, Update};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Barrier, watch};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Subscribed hosts
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=250))]
    subscribers: u32,
    /// Networks with an estimate
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    networks: u32,
    /// SYNs a second, each from another address
    #[arg(long, default_value_t = 1_000)]
    syns: u32,
    /// Estimates a second that move, each sent to every subscriber
    #[arg(long, default_value_t = 200)]
    moves: u32,
    /// Seconds measured
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Resynchronise every subscriber this often, in seconds, as a reload would: all snapshots at once
    #[arg(long)]
    replace_every: Option<u32>,
    /// Target of the 99th percentile in milliseconds
    #[arg(long, default_value_t = 5.0)]
    target: f64,
}

/// `LINKTYPE_RAW` of the tcpdump.org registry: the frame begins with the IP header.
const LINKTYPE_RAW: u16 = 101;

/// When the SYN of each number was handed in and received, in nanoseconds of one clock; 0 while it was not.
#[derive(Debug)]
struct Stamps {
    networks: u32,
    started: Instant,
    handed_in: Vec<AtomicU64>,
    received: Vec<AtomicU64>,
}

impl Stamps {
    fn new(count: u32, networks: u32) -> Self {
        let zeros = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { networks, started: Instant::now(), handed_in: zeros(), received: zeros() }
    }

    fn stamp(&self, stamps: &[AtomicU64], number: u32) {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(stamp) = stamps.get(number as usize) {
            stamp.store(nanos, Ordering::Relaxed);
        }
    }

    /// Delays in order of length, and how many SYNs brought none.
    fn delays(&self) -> (Vec<Duration>, usize) {
        let pairs = self.handed_in.iter().zip(&self.received);
        let pairs = pairs.map(|(a, b)| (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)));
        let (came, lost): (Vec<_>, Vec<_>) = pairs.partition(|(_, received)| *received > 0);
        let mut delays: Vec<_> = came.iter().map(|(a, b)| Duration::from_nanos(b.saturating_sub(*a))).collect();
        delays.sort_unstable();
        (delays, lost.len())
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let count = arguments.syns.checked_mul(arguments.seconds).context("too many SYNs")?;
    ensure!(u64::from(count) <= u64::from(arguments.networks) * 250, "more SYNs than addresses: name more networks");
    let stamps = Arc::new(Stamps::new(count, arguments.networks));
    let clock = MonotonicClock::from_wall_clock();
    let published = Published::new(PublisherConfig::default(), clock);
    published.apply(Batch { events: estimates(0..arguments.networks, 0, clock.now()), ..Batch::new() });

    let server = runtime("server", 2)?;
    let (stop, stopped) = watch::channel(false);
    let address = serve(&server, &published, stopped)?;
    let clients = runtime("client", 2)?;
    // All subscribers and this thread.
    let snapshots = Arc::new(Barrier::new(arguments.subscribers as usize + 1));
    for host in 0..arguments.subscribers {
        let subscribed = subscribe(address, host, Arc::clone(&snapshots), Arc::clone(&stamps));
        clients.spawn(async move {
            if let Err(error) = subscribed.await {
                eprintln!("host {host}: {error:#}");
                exit(1);
            }
        });
    }
    let began = Instant::now();
    clients.block_on(snapshots.wait());
    println!(
        "{} subscribers took a snapshot of {} networks each in {:.2} s",
        arguments.subscribers,
        arguments.networks,
        began.elapsed().as_secs_f64()
    );
    let engine_delay = drive(arguments, &published, clock, &stamps);
    thread::sleep(Duration::from_secs(1));
    stop.send(true).context("the server runs")?;
    Ok(report(arguments, &stamps, &engine_delay, &published))
}

fn runtime(name: &str, threads: usize) -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name).enable_all().build().context("a runtime")
}

fn serve(server: &Runtime, published: &Published, stopped: watch::Receiver<bool>) -> Result<SocketAddr> {
    let listener = server.block_on(TcpListener::bind("127.0.0.1:0")).context("a port on loopback")?;
    let address = listener.local_addr().context("its number")?;
    // All hosts are clients of one address here.
    let config = ApiConfig {
        connections_per_peer: NonZeroUsize::MAX,
        streams_per_peer: NonZeroUsize::MAX,
        subscriptions_per_s: NonZeroU32::MAX,
        ..ApiConfig::default()
    };
    let api = Api::new(config, published.clone(), None);
    server.spawn(published.clone().run());
    server.spawn(async move { api.serve_grpc(listener, stopped).await });
    Ok(address)
}

/// One subscriber; stamps each start by the number in its remote address.
async fn subscribe(address: SocketAddr, host: u32, snapshots: Arc<Barrier>, stamps: Arc<Stamps>) -> Result<()> {
    let mut client = SpandClient::connect(format!("http://{address}")).await?;
    let wish = SubscribeRequest {
        contract_version: 1,
        host_name: format!("host-{host}"),
        addresses: vec![host_address(host).to_string()],
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    };
    let mut updates = client.subscribe(wish).await?.into_inner();
    let mut first = true;
    loop {
        let event = match updates.message().await {
            Ok(Some(Update { event: Some(event), .. })) => event,
            // The end of the measurement ends the stream.
            Err(error) if first => return Err(error.into()),
            _ => return Ok(()),
        };
        match event {
            UpdateEvent::ImminentStart(start) => {
                let number = start.remote_address.parse().ok().and_then(|remote| number_of(remote, stamps.networks));
                if let Some(number) = number {
                    stamps.stamp(&stamps.received, number);
                }
            }
            UpdateEvent::SnapshotEnd(_) if first => {
                first = false;
                snapshots.wait().await;
            }
            _ => {}
        }
    }
}

/// Hands SYNs to the engine at their times, and moves estimates. How long each SYN took to the subscriber's queue.
fn drive(arguments: &Arguments, published: &Published, clock: MonotonicClock, stamps: &Stamps) -> Vec<Duration> {
    let internal = vec!["10.0.0.0/8".parse().expect("a prefix")];
    let mut engine = Engine::new(EngineConfig { internal, ..EngineConfig::default() });
    let total = arguments.syns * arguments.seconds;
    let mut to_queue = Vec::with_capacity(total as usize);
    let (mut moved, mut replaced) = (0, 0);
    let started = Instant::now();
    for number in 0..total {
        let due = Duration::from_secs(1) * number / arguments.syns;
        thread::sleep(due.saturating_sub(started.elapsed()));
        let frame = syn(remote_address(number, arguments.networks), host_address(number % arguments.subscribers));
        let handed_in = Instant::now();
        stamps.stamp(&stamps.handed_in, number);
        let input = Frame { link_type: LINKTYPE_RAW, wire_len: 40, input: 0, data: &frame };
        engine.handle_frame(clock.now(), &input);
        while let Some(event) = engine.poll_event() {
            if let Event::StartImminent(start) = event
                && published.push_start(start)
            {
                engine.note_advised(start.host, start.remote, start.at);
            }
        }
        to_queue.push(handed_in.elapsed());

        let moves_due = u64::from(arguments.moves) * u64::from(number) / u64::from(arguments.syns);
        if moved < moves_due {
            let networks = (moved..moves_due).map(|n| u32::try_from(n % u64::from(arguments.networks)).unwrap_or(0));
            let round = moves_due / u64::from(arguments.networks) + 1;
            published.apply(Batch { events: estimates(networks, round, clock.now()), ..Batch::new() });
            moved = moves_due;
        }
        if let Some(every) = arguments.replace_every.filter(|every| due.as_secs() >= u64::from(every * (replaced + 1)))
        {
            replaced = u32::try_from(due.as_secs()).unwrap_or(u32::MAX) / every;
            let views = published.page(None, arguments.networks as usize);
            published.replace(views.iter().map(|view| (**view).clone()).collect(), |_| true, None);
        }
    }
    to_queue.sort_unstable();
    to_queue
}

fn report(arguments: &Arguments, stamps: &Stamps, to_queue: &[Duration], published: &Published) -> ExitCode {
    let (delays, lost) = stamps.delays();
    let ms = |delays: &[Duration], share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a list")]
        let place = (delays.len() as f64 * share) as usize;
        delays.get(place.min(delays.len().saturating_sub(1))).map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)
    };
    println!(
        "{} subscribers, {} networks, {} SYN/s, {} moves/s ({} messages/s), {} s",
        arguments.subscribers,
        arguments.networks,
        arguments.syns,
        arguments.moves,
        arguments.moves * arguments.subscribers,
        arguments.seconds
    );
    println!("{:<34}{:>10}{:>10}{:>10}{:>10}", "ms", "p50", "p99", "p99.9", "max");
    for (name, delays) in [("frame to subscriber's queue", to_queue), ("frame to subscriber", &delays)] {
        let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|share| ms(delays, share));
        println!("{name:<34}{p50:>10.3}{p99:>10.3}{p999:>10.3}{max:>10.3}");
    }
    let measures = published.measures();
    println!(
        "received {}, lost {lost}, overflowed {}, resyncs of slow readers {}",
        delays.len(),
        measures.starts_overflowed.get(),
        measures.resyncs_slow_reader.get()
    );
    let met = lost == 0 && ms(&delays, 0.99) < arguments.target;
    println!("target: p99 below {} ms and none lost: {}", arguments.target, if met { "met" } else { "MISSED" });
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn host_address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0001 + host)
}

/// The address whose network and last byte together are the SYN's number.
fn remote_address(number: u32, networks: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_NETWORK + ((number % networks) << 8) + number / networks + 1)
}

/// Where the networks begin: 96.0.0.0.
const FIRST_NETWORK: u32 = 0x6000_0000;

fn number_of(remote: IpAddr, networks: u32) -> Option<u32> {
    let IpAddr::V4(remote) = remote else { return None };
    let place = u32::from(remote).checked_sub(FIRST_NETWORK)?;
    ((place & 0xff).checked_sub(1)? * networks).checked_add(place >> 8)
}

/// Estimates of networks by number; each round is half again as large as, or a third smaller than, the one before.
fn estimates(networks: impl IntoIterator<Item = u32>, round: u64, now: Timestamp) -> Vec<Event> {
    let share = if round.is_multiple_of(2) { 20_000.0 } else { 30_000.0 };
    let estimate = |number: u32| {
        let network = Network::of(Ipv4Addr::from(FIRST_NETWORK + (number << 8)).into());
        made_up::estimate(network, Window::from_bytes(share + f64::from(number)).unwrap_or_default(), now)
    };
    networks.into_iter().map(|network| Event::estimate(estimate(network))).collect()
}

/// A SYN with an MSS option from `remote` to port 443 of `host`, from the IP header on. Checksums are left at zero, as a
/// mirror port on the sending machine shows them.
fn syn(remote: Ipv4Addr, host: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 6, 0, 0];
    frame.extend_from_slice(&remote.octets());
    frame.extend_from_slice(&host.octets());
    frame.extend_from_slice(&50_000u16.to_be_bytes());
    frame.extend_from_slice(&443u16.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0x60, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend_from_slice(&[2, 4, 5, 0xb4]);
    frame
}
