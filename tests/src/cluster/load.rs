//! An exchange that carries nothing and brings the cells of made-up gateways, at the rate that standard input asks for: a whole gateway
//! under a load of foreign cells, without servers beside it that take its processors.

use std::io::{BufRead, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use spand_core::sharing::GatewayId;
use spand_gateway::config::Config;
use spand_gateway::publisher::{MonotonicClock, PacketClock};
use spand_gateway::run::run_with;
use spand_gateway::sharing::start_by;
use spand_share::exchange::{Exchange, Incoming, Link, LinkState, Topic};
use tokio::sync::mpsc;

use super::made::MadeCells;

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
        |share: &_, engines: (&_, _, _), published: &_| start_by(|_| Load::new(cells), share, engines, published);
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
