//! The agent's side of the subscription: connect, listen, and come back after a failure.
//!
//! Knows nothing about what is done with updates. It hands them over through a bounded queue: a busy agent makes the
//! gateway wait, which then resynchronises the stream instead of buffering.

use std::net::IpAddr;
use std::sync::Arc;

use spand_proto::contract::HostName;
use spand_proto::network::Network;
use spand_proto::push::{AgentDescription, Subscription, UpdateEvent};
use spand_proto::start::Mode;
use spand_proto::units::Timestamp;
use tokio::sync::{mpsc, watch};
use tracing::warn;

mod backoff;
mod candidates;
mod choice;
mod dial;
mod holdings;
mod origin;
mod outage;
mod report;
mod socket;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod way_back;

pub use backoff::{Backoff, Timing};
pub(crate) use candidates::Standing;
pub use choice::{Place, ranked};
pub(crate) use dial::words;
pub use dial::{Dialer, TlsError, TlsStatus};
pub use holdings::{HoldingCounts, Holdings};
pub use outage::{Lasting, News, Outage};
pub use report::Reporter;
pub(crate) use stream::ask;
pub(crate) use way_back::look;

use crate::clock::Clock;
use crate::pause::Pausing;
use origin::Origin;
use stream::{Heard, Stream, StreamError};
use way_back::{is_snapshot_end, way_back};

/// Largest message that is read; the largest regular one holds one estimate.
const MOST_MESSAGE_BYTES: usize = 64 * 1_024;

/// Updates between the stream and the agent.
pub const QUEUE: usize = 256;

/// Events of the subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// A stream from this gateway began; the next event is the start of a snapshot.
    Connected(Place),
    /// An event, with the moment of its arrival.
    Event(Box<UpdateEvent>, Timestamp),
    /// The sequence had a gap: the gateway dropped updates and a resync follows.
    Gap,
    /// A message that could not be read; with its network where at least that could be.
    Unreadable(Option<Network>),
    /// The stream ended or could not be opened.
    Lost {
        /// The gateway.
        gateway: Place,
        /// Why.
        why: String,
        /// When the next attempt is made, at this or another gateway.
        next_retry: Timestamp,
    },
    /// This host ended the stream, for this reason, and opens another at once.
    Restarted(String),
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
    was_open: bool,
    error: StreamError,
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
        // The gateway to subscribe at again at once.
        let mut again = None;
        loop {
            let now = self.clock.now();
            let (at, when) = again.take().map_or_else(|| self.dialer.candidates().next(now), |at| (at, now));
            tokio::select! {
                () = tokio::time::sleep(when.since(now).into()) => {}
                () = self.signals.closed() => return,
            }
            let own = addresses.borrow_and_update().clone();
            if own.is_empty() {
                warn!("this host has no address that others reach it by: waiting for one");
                if addresses.changed().await.is_err() {
                    return;
                }
                again = Some(at);
                continue;
            }
            if let Some(mode) = &mut self.speaker.mode {
                mode.mark_unchanged();
            }
            let wish = self.speaker.subscription(&own, &self.origin, self.clock);
            let opened = Stream::open(&self.dialer, at, &wish).await;
            let end = match opened {
                Ok(stream) => self.follow(stream, &own, &mut addresses).await,
                Err(error) => Some(End { at, was_open: false, error }),
            };
            let Some(end) = end else { return };
            let signal = if matches!(end.error, StreamError::AddressesChanged | StreamError::ModeChanged) {
                again = Some(end.at);
                Signal::Restarted(end.error.to_string())
            } else {
                self.on_end(&end)
            };
            if self.signals.send(signal).await.is_err() {
                return;
            }
        }
    }

    fn on_end(&self, End { at, was_open, error }: &End) -> Signal {
        let (now, why) = (self.clock.now(), error.to_string());
        let mut candidates = self.dialer.candidates();
        if *was_open {
            candidates.on_lost(*at, why.clone(), now, rand::random());
        } else {
            candidates.on_failed(*at, why.clone(), now, rand::random());
        }
        let (_, next_retry) = candidates.next(now);
        Signal::Lost { gateway: self.place(*at), why, next_retry }
    }

    fn place(&self, at: usize) -> Place {
        let known = self.dialer.places().get(at).cloned();
        known.unwrap_or_else(|| Place { url: String::new(), group: 0, rank: 0 })
    }

    /// Hands on what comes by an open stream, and by those that follow it as this host returns to gateways that it prefers. `None`
    /// where nobody listens any more.
    async fn follow(
        &mut self,
        mut stream: Stream,
        own: &[IpAddr],
        addresses: &mut watch::Receiver<Vec<IpAddr>>,
    ) -> Option<End> {
        let (dialer, speaker, clock) = (Arc::clone(&self.dialer), self.speaker.clone(), self.clock);
        let mut waiting = Vec::new();
        loop {
            self.begin(&stream, waiting).await?;
            let back = way_back(&dialer, clock, &speaker, own);
            tokio::pin!(back);
            let returned = loop {
                let at = stream.at;
                let end = |error| Some(End { at, was_open: true, error });
                tokio::select! {
                    heard = stream.next(clock) => match heard {
                        Ok(heard) => self.hear(at, heard).await?,
                        Err(error) => return end(error),
                    },
                    returned = &mut back => break returned,
                    changed = addresses.changed() => {
                        return changed.is_ok().then_some(StreamError::AddressesChanged).and_then(end);
                    }
                    () = changed(&mut self.speaker.mode) => return end(StreamError::ModeChanged),
                    () = self.signals.closed() => return None,
                }
            };
            (stream, waiting) = (returned.stream, returned.heard);
        }
    }

    /// This host is subscribed by `stream` now, by which `waiting` has come already.
    async fn begin(&mut self, stream: &Stream, waiting: Vec<Signal>) -> Option<()> {
        self.dialer.candidates().on_subscribed(stream.at);
        self.signals.send(Signal::Connected(self.place(stream.at))).await.ok()?;
        for signal in waiting {
            self.hand_on(signal).await?;
        }
        Some(())
    }

    async fn hear(&mut self, at: usize, Heard { gap, signal }: Heard) -> Option<()> {
        if gap {
            self.signals.send(Signal::Gap).await.ok()?;
        }
        if is_snapshot_end(&signal) {
            self.dialer.candidates().on_whole(at);
        }
        self.hand_on(signal).await
    }

    async fn hand_on(&mut self, signal: Signal) -> Option<()> {
        if let Signal::Event(event, _) = &signal {
            self.origin.on_event(event);
        }
        self.signals.send(signal).await.ok()
    }
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
