//! The agent's side of the subscription: connect, listen, and come back after a failure.
//!
//! Knows nothing about what is done with updates. It hands them over through a bounded queue: a busy agent makes the
//! gateway wait, which then resynchronises the stream instead of buffering.

use std::sync::Arc;
use std::time::Duration;

use spand_proto::contract::HostName;
use spand_proto::convert::WireError;
use spand_proto::network::Network;
use spand_proto::push::{AgentDescription, Subscription, Update, UpdateEvent};
use spand_proto::start::Mode;
use spand_proto::units::{Micros, Timestamp};
use spand_proto::v1;
use tokio::sync::{mpsc, watch};
use tracing::warn;

mod backoff;
mod dial;
mod holdings;
mod outage;
mod report;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub(crate) use dial::words;
pub use dial::{Dialer, TlsError, TlsStatus};
pub use holdings::{HoldingCounts, Holdings};
pub use outage::{Lasting, News, Outage};
pub use report::Reporter;

use crate::clock::Clock;
use crate::pause::Pausing;

/// Largest message that is read; the largest regular one holds one estimate.
const MOST_MESSAGE_BYTES: usize = 64 * 1_024;

/// Updates between the stream and the agent.
pub const QUEUE: usize = 256;

/// Events of the subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// A stream began; the next event is the start of a snapshot.
    Connected,
    /// An event, with the moment of its arrival.
    Event(Box<UpdateEvent>, Timestamp),
    /// The sequence had a gap: the gateway dropped updates and a resync follows.
    Gap,
    /// A message that could not be read; with its network where at least that could be.
    Unreadable(Option<Network>),
    /// The stream ended or could not be opened.
    Lost {
        /// Why.
        why: String,
        /// When the next attempt is made.
        next_retry: Timestamp,
    },
    /// This host ended the stream, for this reason, and opens another at once.
    Restarted(String),
}

/// A subscriber.
#[derive(Debug)]
pub struct Subscriber {
    dialer: Arc<Dialer>,
    clock: Clock,
    host_name: HostName,
    description: AgentDescription,
    pause: Option<watch::Receiver<Pausing>>,
    mode: Option<watch::Receiver<Mode>>,
    signals: mpsc::Sender<Signal>,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("cannot reach the gateway at {url}: {why}")]
    Connect { url: String, why: String },
    #[error("the gateway at {url} does not answer within {timeout:?}")]
    Slow { url: String, timeout: Duration },
    #[error("the gateway refused: {} ({:?})", words(.0), .0.code())]
    Refused(Box<tonic::Status>),
    #[error("no message from the gateway for {0:?}")]
    Silent(Duration),
    #[error("the gateway ended the stream")]
    Ended,
    #[error("{0}")]
    Version(WireError),
    #[error("the addresses of this host changed")]
    AddressesChanged,
    #[error("the mode changed")]
    ModeChanged,
}

impl Subscriber {
    /// A subscriber with this host name and description, which sends events to `signals`.
    pub fn new(
        dialer: Arc<Dialer>,
        clock: Clock,
        (host_name, description): (HostName, AgentDescription),
        signals: mpsc::Sender<Signal>,
    ) -> Self {
        Self { dialer, clock, host_name, description, pause: None, mode: None, signals }
    }

    /// Sends with each subscription whether advice is paused.
    #[must_use]
    pub fn with_pause(self, pause: watch::Receiver<Pausing>) -> Self {
        Self { pause: Some(pause), ..self }
    }

    /// Describes itself by the mode that is in force; a change of it starts the subscription over.
    #[must_use]
    pub fn with_mode(self, mode: watch::Receiver<Mode>) -> Self {
        Self { mode: Some(mode), ..self }
    }

    /// Keeps a subscription for `addresses` up until the receiver of its signals goes away. A change of the addresses
    /// starts it over.
    pub async fn run(mut self, mut addresses: watch::Receiver<Vec<std::net::IpAddr>>) {
        let mut backoff = Backoff::new(
            Duration::from_millis(self.dialer.gateway().retry_min_ms.get()),
            Duration::from_millis(self.dialer.gateway().retry_max_ms.get()),
        );
        loop {
            let own = addresses.borrow_and_update().clone();
            let error = if own.is_empty() {
                warn!("this host has no address that others reach it by: waiting for one");
                if addresses.changed().await.is_err() {
                    return;
                }
                continue;
            } else {
                let pause = self.pause.as_ref().map(|pause| pause.borrow().state(self.clock.now()));
                if let Some(mode) = &mut self.mode {
                    self.description.mode = Some(*mode.borrow_and_update());
                }
                let agent = Some(AgentDescription { pause, ..self.description.clone() });
                let subscription = Subscription { host_name: self.host_name.clone(), addresses: own, agent };
                self.stream(&subscription, &mut addresses, &mut backoff).await
            };
            let Some(error) = error else { return };
            let (signal, pause) = match error {
                StreamError::AddressesChanged | StreamError::ModeChanged => {
                    (Signal::Restarted(error.to_string()), Duration::ZERO)
                }
                error => {
                    let pause = backoff.next(rand::random());
                    let next_retry = self.clock.now().after(Micros::from(pause));
                    (Signal::Lost { why: error.to_string(), next_retry }, pause)
                }
            };
            if self.signals.send(signal).await.is_err() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.signals.closed() => return,
            }
        }
    }

    /// One stream from its opening to its end; `None` where nobody listens any more.
    async fn stream(
        &mut self,
        subscription: &Subscription,
        addresses: &mut watch::Receiver<Vec<std::net::IpAddr>>,
        backoff: &mut Backoff,
    ) -> Option<StreamError> {
        let mut stream = match self.open(subscription).await {
            Ok(stream) => stream,
            Err(error) => return Some(error),
        };
        let dialer = Arc::clone(&self.dialer);
        let gateway = dialer.gateway();
        self.signals.send(Signal::Connected).await.ok()?;
        let silence = Duration::from_secs(gateway.idle_timeout_s.get());
        let mut sequence = 0;
        loop {
            let message = tokio::select! {
                message = tokio::time::timeout(silence, stream.message()) => message,
                changed = addresses.changed() => {
                    return changed.is_ok().then_some(StreamError::AddressesChanged);
                }
                () = changed(&mut self.mode) => return Some(StreamError::ModeChanged),
                () = self.signals.closed() => return None,
            };
            let message = match message {
                Err(_) => return Some(StreamError::Silent(silence)),
                Ok(Err(status)) => return Some(StreamError::Refused(Box::new(status))),
                Ok(Ok(None)) => return Some(StreamError::Ended),
                Ok(Ok(Some(message))) => message,
            };
            let now = self.clock.now();
            if sequence > 0 && message.sequence != sequence + 1 {
                self.signals.send(Signal::Gap).await.ok()?;
            }
            sequence = message.sequence;
            let network = network_of(&message);
            let signal = match Update::from_wire(message, now) {
                Ok(update) => {
                    if matches!(update.event, UpdateEvent::SnapshotEnd { .. }) {
                        // Only a gateway that gave a whole snapshot counts as well.
                        backoff.reset();
                    }
                    Signal::Event(Box::new(update.event), now)
                }
                Err(error @ WireError::Version(_)) => return Some(StreamError::Version(error)),
                Err(error) => {
                    warn!(%error, "an update cannot be read: its network goes back to the host's default");
                    Signal::Unreadable(network)
                }
            };
            self.signals.send(signal).await.ok()?;
        }
    }

    async fn open(&self, subscription: &Subscription) -> Result<tonic::Streaming<v1::Update>, StreamError> {
        let gateway = self.dialer.gateway();
        let timeout = Duration::from_millis(gateway.timeout_ms.get());
        let opened = tokio::time::timeout(timeout, async {
            let connected = self.dialer.connect().await;
            let mut client = connected.map_err(|why| StreamError::Connect { url: gateway.url.clone(), why })?;
            client
                .subscribe(v1::SubscribeRequest::from(subscription))
                .await
                .map_err(|status| StreamError::Refused(Box::new(status)))
        });
        match opened.await {
            Ok(response) => Ok(response?.into_inner()),
            Err(_) => Err(StreamError::Slow { url: gateway.url.clone(), timeout }),
        }
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

/// The network that a message is about, however broken the rest of it is.
fn network_of(message: &v1::Update) -> Option<Network> {
    use v1::update::Event;
    let text = match message.event.as_ref()? {
        Event::Estimate(update) => &update.estimate.as_ref()?.network,
        Event::ImminentStart(start) => &start.estimate.as_ref()?.estimate.as_ref()?.network,
        Event::Withdrawal(withdrawal) => &withdrawal.network,
        _ => return None,
    };
    text.parse().ok()
}
