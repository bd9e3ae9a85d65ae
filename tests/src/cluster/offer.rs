//! Made-up gateways that write their cells to real servers, at a rate that changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use parking_lot::Mutex;
use spand_cells::GatewayId;
use spand_gateway::publisher::{MonotonicClock, PacketClock};
use spand_share::exchange::{Exchange, Link, LinkState, Outgoing, Topic};
use spand_share::nats::{NatsConfig, NatsExchange};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::made::MadeCells;
use crate::lab::namespace::Namespace;

/// Messages that may wait for an exchange, as in a gateway.
const MESSAGES: usize = 1_024;
/// Between two portions.
const EVERY: Duration = Duration::from_millis(20);
const MEMBER: Duration = Duration::from_secs(5);
/// More is not caught up with.
const MOST_LATE: Duration = Duration::from_millis(500);

/// What was offered to the exchanges so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offered {
    /// Cells.
    pub cells: u64,
    /// Bytes of the messages with them.
    pub bytes: u64,
    /// Messages for which an exchange had no room.
    pub refused: u64,
}

/// Running exchanges of made-up gateways; they end when dropped.
#[derive(Debug)]
pub struct Offer {
    rate: Arc<AtomicU64>,
    offered: Arc<Mutex<Offered>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// One of them.
struct Sender {
    gateway: GatewayId,
    outgoing: mpsc::Sender<Outgoing>,
    state: watch::Receiver<LinkState>,
}

impl Offer {
    /// Gateways with these numbers, each with a connection that `config` describes, which see as many networks.
    ///
    /// # Errors
    /// Where there can be no thread for them.
    pub fn start(
        namespace: &Namespace,
        gateways: Vec<u16>,
        networks: u32,
        config: impl Fn(u16) -> NatsConfig + Send + 'static,
    ) -> Result<Self> {
        let (rate, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let offered = Arc::new(Mutex::new(Offered::default()));
        let (asked, stopped, counted) = (Arc::clone(&rate), Arc::clone(&stop), Arc::clone(&offered));
        let thread = namespace.spawn("offer", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let senders = gateways.iter().map(|number| connect(*number, config(*number))).collect();
                offer(senders, MadeCells::new(gateways, networks), &asked, &stopped, &counted).await;
            });
            Ok(())
        })?;
        Ok(Self { rate, offered, stop, thread: Some(thread) })
    }

    /// From now on N cells a second.
    pub fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// What was offered so far.
    pub fn offered(&self) -> Offered {
        *self.offered.lock()
    }

    /// Ends them.
    ///
    /// # Errors
    /// Where their thread panicked.
    pub fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow!("the made-up gateways panicked"))?
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn connect(number: u16, config: NatsConfig) -> Sender {
    let (outgoing, to_exchange) = mpsc::channel(MESSAGES);
    let (incoming, mut heard) = mpsc::channel(MESSAGES);
    let (state, seen) = watch::channel(LinkState::default());
    let link = Link { outgoing: to_exchange, cells: incoming.clone(), incoming, state, streams: Arc::default() };
    tokio::spawn(Box::new(NatsExchange::new(config)).run(link));
    // What others send is of no interest here.
    tokio::spawn(async move { while heard.recv().await.is_some() {} });
    Sender { gateway: GatewayId(number), outgoing, state: seen }
}

async fn offer(
    senders: Vec<Sender>,
    mut made: MadeCells,
    rate: &AtomicU64,
    stop: &AtomicBool,
    offered: &Mutex<Offered>,
) {
    let clock = MonotonicClock::from_wall_clock();
    let (mut done_until, mut member_due) = (Instant::now(), Instant::now());
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let to = |gateway: GatewayId| senders.iter().find(|sender| sender.gateway == gateway);
    while !stop.load(Ordering::Relaxed) {
        every.tick().await;
        let now = Instant::now();
        if now >= member_due {
            member_due = now + MEMBER;
            for (gateway, payload) in made.members(clock.now()) {
                // The next one comes soon.
                let _full =
                    to(gateway).map(|sender| sender.outgoing.try_send(Outgoing::to_all(Topic::Member, payload)));
            }
        }
        let late = now.saturating_duration_since(done_until).min(MOST_LATE);
        done_until = now;
        if senders.iter().any(|sender| *sender.state.borrow() != LinkState::Up) {
            continue;
        }
        let count = late.as_secs_f64() * rate.load(Ordering::Relaxed) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most half a second of a rate")]
        let count = count.round() as u64;
        if count == 0 {
            continue;
        }
        let (mut bytes, mut refused) = (0, 0);
        for (gateway, payload) in made.messages(count, clock.now()) {
            bytes += payload.len() as u64;
            let sent = to(gateway)
                .is_some_and(|sender| sender.outgoing.try_send(Outgoing::to_all(Topic::Closed, payload)).is_ok());
            refused += u64::from(!sent);
        }
        let mut offered = offered.lock();
        offered.cells += count;
        offered.bytes += bytes;
        offered.refused += refused;
    }
}
