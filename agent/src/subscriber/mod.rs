//! The agent's side of the subscription: connect, listen, and come back after a failure.
//!
//! Knows nothing about what is done with updates. It hands them over through a bounded queue: a busy agent makes the
//! gateway wait, which then resynchronises the stream instead of buffering.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use spand_proto::contract::HostName;
use spand_proto::network::Network;
use spand_proto::push::{AgentDescription, Subscription, UpdateEvent};
use spand_proto::start::Mode;
use spand_proto::units::Timestamp;
use tokio::sync::{mpsc, watch};
use tracing::warn;

mod dial;
mod holdings;
mod origin;
mod report;
mod socket;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use dial::words;
pub use dial::{Dialer, Timing, TlsError, TlsStatus};
pub use holdings::{HoldingCounts, Holdings};
pub use report::Reporter;
pub(crate) use stream::ask;

use crate::clock::Clock;
use crate::config::Gateway;
use crate::pause::Pausing;
use origin::Origin;
use stream::{Heard, Stream, StreamError};

/// Largest message that is read; the largest regular one holds one estimate.
const MOST_MESSAGE_BYTES: usize = 64 * 1_024;

/// Updates between the stream and the agent.
pub const QUEUE: usize = 256;

/// Events of the subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// A stream from this gateway began; the next event is the start of a snapshot.
    Connected(String),
    /// An event, with the moment of its arrival.
    Event(Box<UpdateEvent>, Timestamp),
    /// The sequence had a gap: the gateway dropped updates and a resync follows.
    Gap,
    /// A message that could not be read; with its network where at least that could be.
    Unreadable(Option<Network>),
    /// The stream ended or could not be opened.
    Lost {
        /// The gateway.
        gateway: String,
        /// Why.
        why: String,
        /// When the next attempt is made, at this or another gateway.
        next_retry: Timestamp,
    },
    /// This host ended the stream, for this reason, and opens another at once.
    Restarted(String),
    /// A gateway earlier in the list does not take this host back yet.
    NotBack {
        /// The gateway.
        gateway: String,
        /// Why.
        why: String,
    },
}

/// What this host says of itself.
#[derive(Clone, Debug)]
struct Speaker {
    host_name: HostName,
    description: AgentDescription,
    pause: Option<watch::Receiver<Pausing>>,
    mode: Option<watch::Receiver<Mode>>,
}

impl Speaker {
    /// A subscription of a host that holds advice of this origin.
    fn subscription(&self, own: &[IpAddr], origin: &Origin, clock: Clock) -> Subscription {
        let pause = self.pause.as_ref().map(|pause| pause.borrow().state(clock.now()));
        let mode = self.mode.as_ref().map_or(self.description.mode, |mode| Some(*mode.borrow()));
        let agent = Some(AgentDescription { pause, mode, ..self.description.clone() });
        let (cluster, networks) = (origin.cluster().cloned(), origin.networks());
        Subscription { host_name: self.host_name.clone(), addresses: own.to_vec(), agent, cluster, networks }
    }
}

/// A subscriber.
#[derive(Debug)]
pub struct Subscriber {
    dialer: Arc<Dialer>,
    clock: Clock,
    speaker: Speaker,
    signals: mpsc::Sender<Signal>,
    /// Where what was handed on came from.
    origin: Origin,
}

/// The end of a stream, or of the attempt to open one.
#[derive(Debug)]
struct End {
    at: usize,
    /// Whether the stream gave a whole snapshot.
    was_whole: bool,
    error: StreamError,
}

/// Which gateway is tried next: each of the list in its order, then a pause.
#[derive(Debug)]
struct Attempts {
    next: usize,
    pauses: ExponentialBackoff,
}

impl Attempts {
    fn new(gateway: &Gateway) -> Self {
        Self { next: 0, pauses: pauses(gateway) }
    }

    /// The gateway tried last gave no whole snapshot. The pause before the next attempt.
    fn on_failed(&mut self, dialer: &Dialer, jitter: f64) -> Duration {
        self.next = (self.next + 1) % dialer.urls().len().max(1);
        if self.next > 0 {
            return Duration::ZERO;
        }
        // Full jitter: a part that is the same on all hosts would keep them together.
        let bound = self.pauses.next().unwrap_or_default();
        bound.mul_f64(jitter).max(Duration::from_millis(dialer.gateway().retry_min_ms.get()) / 4)
    }

    /// A stream ended that had given a whole snapshot. The pause before the next attempt: hosts that lost a gateway together
    /// spread out.
    fn on_lost(&mut self, dialer: &Dialer, jitter: f64) -> Duration {
        // From the top of the list. After the loss of the first gateway the second is tried first: a dead gateway is slow to fail.
        let first_is_lost = self.next == 0 && dialer.urls().len() > 1;
        *self = Self { next: usize::from(first_is_lost), ..Self::new(dialer.gateway()) };
        let longest = Duration::from_millis(dialer.gateway().retry_max_ms.get());
        dialer.timing().spread.min(longest).mul_f64(jitter)
    }
}

fn pauses(gateway: &Gateway) -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(gateway.retry_min_ms.get()))
        .with_max_delay(Duration::from_millis(gateway.retry_max_ms.get()))
        .without_max_times()
        .build()
}

impl Subscriber {
    /// A subscriber with this host name and description, which sends events to `signals`.
    pub fn new(
        dialer: Arc<Dialer>,
        clock: Clock,
        (host_name, description): (HostName, AgentDescription),
        signals: mpsc::Sender<Signal>,
    ) -> Self {
        let speaker = Speaker { host_name, description, pause: None, mode: None };
        Self { dialer, clock, speaker, signals, origin: Origin::default() }
    }

    /// Sends with each subscription whether advice is paused.
    #[must_use]
    pub fn with_pause(mut self, pause: watch::Receiver<Pausing>) -> Self {
        self.speaker.pause = Some(pause);
        self
    }

    /// Describes itself by the mode that is in force; a change of it starts the subscription over.
    #[must_use]
    pub fn with_mode(mut self, mode: watch::Receiver<Mode>) -> Self {
        self.speaker.mode = Some(mode);
        self
    }

    /// Keeps a subscription for `addresses` up until the receiver of its signals goes away. A change of the addresses
    /// starts it over.
    pub async fn run(mut self, mut addresses: watch::Receiver<Vec<IpAddr>>) {
        let dialer = Arc::clone(&self.dialer);
        let mut attempts = Attempts::new(dialer.gateway());
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.signals.closed() => return,
            }
            pause = Duration::ZERO;
            let own = addresses.borrow_and_update().clone();
            if own.is_empty() {
                warn!("this host has no address that others reach it by: waiting for one");
                if addresses.changed().await.is_err() {
                    return;
                }
                continue;
            }
            if let Some(mode) = &mut self.speaker.mode {
                mode.mark_unchanged();
            }
            let wish = self.speaker.subscription(&own, &self.origin, self.clock);
            let end = match Stream::open(&dialer, attempts.next, &wish).await {
                Ok(stream) => self.follow(stream, &own, &mut addresses).await,
                Err(error) => Some(End { at: attempts.next, was_whole: false, error }),
            };
            let Some(End { at, was_whole, error }) = end else { return };
            attempts.next = at;
            if was_whole {
                attempts.pauses = pauses(dialer.gateway());
            }
            let why = error.to_string();
            let signal = if matches!(error, StreamError::AddressesChanged | StreamError::ModeChanged) {
                Signal::Restarted(why)
            } else {
                dialer.set_seat(0);
                let jitter = rand::random();
                pause = if was_whole { attempts.on_lost(&dialer, jitter) } else { attempts.on_failed(&dialer, jitter) };
                Signal::Lost {
                    gateway: dialer.url(at).to_owned(),
                    why,
                    next_retry: self.clock.now().after(pause.into()),
                }
            };
            if self.signals.send(signal).await.is_err() {
                return;
            }
        }
    }

    /// Hands on what comes by an open stream, and by those that follow it as this host returns to gateways earlier in the list. `None`
    /// where nobody listens any more.
    async fn follow(
        &mut self,
        mut stream: Stream,
        own: &[IpAddr],
        addresses: &mut watch::Receiver<Vec<IpAddr>>,
    ) -> Option<End> {
        let (dialer, speaker, clock) = (Arc::clone(&self.dialer), self.speaker.clone(), self.clock);
        let signals = self.signals.clone();
        let mut waiting = Vec::new();
        loop {
            let (at, mut was_whole) = (stream.at, false);
            dialer.set_seat(at);
            self.signals.send(Signal::Connected(dialer.url(at).to_owned())).await.ok()?;
            for heard in waiting.drain(..) {
                was_whole |= self.hear(heard).await?;
            }
            let back = failback(&dialer, at, &speaker, own, (clock, &signals));
            tokio::pin!(back);
            let error = loop {
                tokio::select! {
                    heard = stream.next(clock) => match heard {
                        Ok(heard) => was_whole |= self.hear(heard).await?,
                        Err(error) => break error,
                    },
                    returned = &mut back => {
                        (stream, waiting) = returned;
                        break StreamError::Ended;
                    }
                    changed = addresses.changed() => {
                        changed.ok()?;
                        break StreamError::AddressesChanged;
                    }
                    () = changed(&mut self.speaker.mode) => break StreamError::ModeChanged,
                    () = self.signals.closed() => return None,
                }
            };
            if stream.at == at {
                return Some(End { at, was_whole, error });
            }
        }
    }

    /// Hands on an update. Whether it was the end of a snapshot.
    async fn hear(&mut self, heard: Heard) -> Option<bool> {
        let is_end = heard.is_snapshot_end();
        if heard.gap {
            self.signals.send(Signal::Gap).await.ok()?;
        }
        if let Signal::Event(event, _) = &heard.signal {
            self.origin.on_event(event);
        }
        self.signals.send(heard.signal).await.ok()?;
        Some(is_end)
    }
}

/// Updates of the new stream that wait for the end of its snapshot; with more of them this host changes over before it.
const WAITING_MOST: usize = 65_536;

/// Tries the gateways before `at` in the list now and then, and gives a stream of the first that sends a whole snapshot, with what it sent.
/// It never returns for the first gateway. Hosts that came to this gateway together leave it one by one.
async fn failback(
    dialer: &Dialer,
    at: usize,
    speaker: &Speaker,
    own: &[IpAddr],
    (clock, signals): (Clock, &mpsc::Sender<Signal>),
) -> (Stream, Vec<Heard>) {
    if at == 0 {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(dialer.timing().failback.mul_f64(0.5 + rand::random::<f64>())).await;
        for earlier in 0..at {
            // Nothing is to be adopted: the stream that is open renews what is held.
            let wish = speaker.subscription(own, &Origin::default(), clock);
            match snapshot(dialer, earlier, &wish, clock).await {
                Ok(returned) => return returned,
                Err(error) => {
                    let signal = Signal::NotBack { gateway: dialer.url(earlier).to_owned(), why: error.to_string() };
                    // A closed channel ends the open stream, too.
                    _ = signals.send(signal).await;
                }
            }
        }
    }
}

/// Subscribes, and reads up to the end of the snapshot.
async fn snapshot(
    dialer: &Dialer,
    at: usize,
    wish: &Subscription,
    clock: Clock,
) -> Result<(Stream, Vec<Heard>), StreamError> {
    let mut stream = Stream::open(dialer, at, wish).await?;
    let mut waiting = Vec::new();
    while !waiting.last().is_some_and(Heard::is_snapshot_end) && waiting.len() < WAITING_MOST {
        waiting.push(stream.next(clock).await?.late());
    }
    Ok((stream, waiting))
}

/// Waits until the mode changes.
async fn changed(mode: &mut Option<watch::Receiver<Mode>>) {
    if let Some(mode) = mode
        && mode.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
