//! Traffic at the taps of several gateways: a generated trace, played at its own pace until it is stopped.

use std::io::{BufRead, stdin};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::socket::{self, MsgFlags};
use spand_cells::GatewayId;
use spand_gateway::config::Config;
use spand_gateway::publisher::{MonotonicClock, PacketClock};
use spand_gateway::run::run_with;
use spand_gateway::sharing::start_by;
use spand_share::exchange::{Exchange, Incoming, Link, LinkState, Topic};
use tokio::sync::mpsc;

use super::gateway::port;
use super::made::MadeCells;
use crate::lab::namespace::Namespace;
use crate::lab::wire::packet_port;
use crate::trace::frame::encode;
use crate::trace::packet::Tuple;
use crate::trace::{TraceConfig, generate};

/// At which gateways' taps a connection is seen: indices.
pub type Place = fn(&Tuple, usize) -> Range<usize>;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    /// Connections open at a time.
    pub connections: u32,
    /// Networks of the clients.
    pub networks: u32,
    /// Share of data segments that is lost.
    pub loss: f64,
    /// Where a connection is seen.
    pub place: Place,
    /// Another one gives other connections to the same networks.
    pub seed: u64,
}

/// Traffic that is under way.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Counts>>,
}

/// What was played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets sent.
    pub packets: u64,
    /// The latest that one left after its time.
    pub latest: Duration,
}

/// All connections of a network are seen at one tap.
pub fn by_network(tuple: &Tuple, gateways: usize) -> Range<usize> {
    one(usize::try_from(number(tuple.client.0)).unwrap_or_default(), gateways)
}

/// Connections of every network are seen at all taps, each at one of them.
pub fn by_connection(tuple: &Tuple, gateways: usize) -> Range<usize> {
    one(usize::from(tuple.client.1) + usize::from(tuple.client.0.octets()[3]), gateways)
}

/// Every packet is seen at all taps.
pub fn everywhere(_: &Tuple, gateways: usize) -> Range<usize> {
    0..gateways
}

fn one(number: usize, gateways: usize) -> Range<usize> {
    let place = number % gateways.max(1);
    place..place + 1
}

/// The number of a client's network, as traces count them.
pub fn number(client: Ipv4Addr) -> u32 {
    (client.to_bits() >> 8) & 0xf_ffff
}

impl Traffic {
    /// Plays to the taps of these gateways of a namespace.
    ///
    /// # Errors
    /// Where a tap takes no frames.
    pub fn start(namespace: &Namespace, gateways: Vec<u16>, played: Played) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = namespace.spawn("traffic", move || {
            let ports: Vec<OwnedFd> =
                gateways.iter().map(|number| packet_port(&port(*number))).collect::<Result<_>>()?;
            play(&ports, &played, &stopped)
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it.
    ///
    /// # Errors
    /// Where frames were not taken.
    pub fn stop(self) -> Result<Counts> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the traffic panicked"))?
    }
}

fn play(ports: &[OwnedFd], played: &Played, stop: &AtomicBool) -> Result<Counts> {
    let Played { connections, networks, loss, place, seed } = *played;
    let config = TraceConfig { packets: u64::MAX, connections, loss, networks, snap_len: 1_514, seed };
    let (begun, mut frame, mut counts, mut failed) = (Instant::now(), Vec::new(), Counts::default(), Ok(()));
    generate(&config, |at_ns, tuple, packet| {
        let due = begun + Duration::from_nanos(at_ns);
        // A shorter sleep than this costs more than it waits.
        if let Some(early) =
            due.checked_duration_since(Instant::now()).filter(|early| *early > Duration::from_millis(1))
        {
            thread::sleep(early);
        }
        counts.latest = counts.latest.max(due.elapsed());
        counts.packets += 1;
        let length =
            encode(&mut frame, u16::try_from(counts.packets & 0xffff).unwrap_or_default(), at_ns, tuple, packet);
        frame.resize(length, 0);
        for port in ports.get(place(tuple, ports.len())).unwrap_or_default() {
            failed =
                socket::send(port.as_raw_fd(), &frame, MsgFlags::empty()).map(drop).context("a tap takes no frame");
            if failed.is_err() {
                return false;
            }
        }
        failed.is_ok() && !stop.load(Ordering::Relaxed)
    });
    failed.map(|()| counts)
}

// An exchange that carries nothing and brings the cells of made-up gateways, at the rate that standard input asks for: a whole gateway
// under a load of foreign cells, without servers beside it that take its processors.

/// Between two portions.
const EVERY: Duration = Duration::from_millis(10);
/// How often gateways say who they are.
const MEMBER: Duration = Duration::from_secs(5);
/// More is not caught up with: the rate falls short then, and what is counted shows it.
const MOST_LATE: Duration = Duration::from_millis(500);

/// The exchange.
#[derive(Debug)]
pub struct Load {
    cells: MadeCells,
}

impl Load {
    /// Of these gateways' cells.
    pub const fn new(cells: MadeCells) -> Self {
        Self { cells }
    }
}

impl Exchange for Load {
    async fn run(self: Box<Self>, mut link: Link) {
        link.state.send_replace(LinkState::Up);
        let (cells, others) = (link.cells.clone(), link.incoming.clone());
        let made = thread::Builder::new().name("made".to_owned()).spawn(move || bring(self.cells, &cells, &others));
        if let Err(error) = made {
            link.state.send_replace(LinkState::Down(format!("no thread for made-up cells: {error}")));
        }
        // Nobody hears this gateway.
        while link.outgoing.recv().await.is_some() {}
    }
}

/// Runs a gateway with this configuration under that load until it is asked to end.
///
/// # Errors
/// As a gateway has them.
pub fn run_gateway(config: &std::path::Path, cells: MadeCells) -> Result<()> {
    spand_confine::take_up();
    let read = Config::load(config).with_context(|| format!("{} cannot be used", config.display()))?;
    let share =
        |share: (&_, _), engines: (&_, _, _), published: &_| start_by(|_| Load::new(cells), share, engines, published);
    run_with(&read, config, share).map_err(|failure| anyhow!("the gateway ended: {failure}"))
}

fn bring(mut cells: MadeCells, closed: &mpsc::Sender<Incoming>, others: &mpsc::Sender<Incoming>) {
    let rate = Arc::new(AtomicU64::new(0));
    let asked = Arc::clone(&rate);
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            asked.store(line.trim().parse().unwrap_or(0), Ordering::Relaxed);
        }
    });
    let clock = MonotonicClock::from_wall_clock();
    let (mut member_due, mut done_until) = (Instant::now(), Instant::now());
    loop {
        let now = Instant::now();
        if now >= member_due {
            member_due = now + MEMBER;
            if !send(others, Topic::Member, cells.members(clock.now())) {
                return;
            }
        }
        let rate = rate.load(Ordering::Relaxed);
        let late = now.saturating_duration_since(done_until).min(MOST_LATE);
        let count = (late.as_secs_f64() * rate as f64).round();
        done_until = now;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most half a second of a rate")]
        let messages = cells.messages(count as u64, clock.now());
        if !send(closed, Topic::Closed, messages) {
            return;
        }
        thread::sleep(EVERY);
    }
}

/// Waits for room, as an exchange does; `false` where the gateway ends.
fn send(incoming: &mpsc::Sender<Incoming>, topic: Topic, messages: Vec<(GatewayId, Vec<u8>)>) -> bool {
    let message = |(gateway, payload)| Incoming { gateway, topic, payload };
    messages.into_iter().map(message).all(|message| incoming.blocking_send(message).is_ok())
}
