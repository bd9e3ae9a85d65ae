//! One stream of updates, from its opening to its end.

use std::time::Duration;

use spand_proto::convert::{WireError, answers_from_wire};
use spand_proto::network::Network;
use spand_proto::operator::Failure;
use spand_proto::push::{Subscription, Update, UpdateEvent};
use spand_proto::query::{Answer, Query};
use spand_proto::units::Timestamp;
use spand_proto::v1;
use spand_proto::v1::spand_client::SpandClient;
use tonic::transport::Channel;
use tracing::warn;

use super::dial::{innermost, words};
use super::{Dialer, Signal};
use crate::clock::Clock;

/// Of the error of a connection that was closed under its streams: by the other end, or by this one for want of a sign of life.
/// Which of them it was, it does not tell.
const CLOSED: &str = "broken pipe";

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("cannot reach the gateway at {url}: {why}")]
    Connect { url: String, why: String },
    #[error("the gateway at {url} does not answer within {timeout:?}")]
    Slow { url: String, timeout: Duration },
    #[error("the gateway refused: {} ({:?})", words(.0), .0.code())]
    Refused(Box<tonic::Status>),
    #[error("no message from the gateway for {0:?}")]
    Silent(Duration),
    #[error("the connection to the gateway was closed, or gave no sign of life for {0:?}")]
    Closed(Duration),
    #[error("the gateway ended the stream")]
    Ended,
    #[error("{0}")]
    Version(WireError),
    #[error("the addresses of this host changed")]
    AddressesChanged,
    #[error("the mode changed")]
    ModeChanged,
}

/// An open stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// The gateway's position in the list.
    pub(super) at: usize,
    /// Without it the connection takes itself for idle, however many streams are open, and sends no more pings.
    _client: SpandClient<Channel>,
    messages: tonic::Streaming<v1::Update>,
    sequence: u64,
    silence: Duration,
    dead: Duration,
}

/// An update, and whether some are missing before it.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) gap: bool,
    pub(super) signal: Signal,
}

impl Heard {
    /// Whether it is the end of a snapshot.
    pub(super) fn is_snapshot_end(&self) -> bool {
        matches!(&self.signal, Signal::Event(event, _) if matches!(**event, UpdateEvent::SnapshotEnd { .. }))
    }

    /// What is left of an update that waits: the connection that a start announces has begun by then, on what the gateway in use sent.
    pub(super) fn late(self) -> Self {
        let signal = match self.signal {
            Signal::Event(event, arrived) => match *event {
                UpdateEvent::ImminentStart(start) => {
                    Signal::Event(Box::new(UpdateEvent::Estimate(start.estimate)), arrived)
                }
                event => Signal::Event(Box::new(event), arrived),
            },
            signal => signal,
        };
        Self { signal, ..self }
    }
}

impl Stream {
    /// Subscribes at the gateway at this place.
    pub(super) async fn open(dialer: &Dialer, at: usize, subscription: &Subscription) -> Result<Self, StreamError> {
        let gateway = dialer.gateway();
        let timing = dialer.timing();
        let url = || dialer.url(at).to_owned();
        let timeout = Duration::from_millis(gateway.timeout_ms.get());
        let opened = tokio::time::timeout(timeout, async {
            let connected = dialer.connect_to(at).await;
            let mut client = connected.map_err(|why| StreamError::Connect { url: url(), why })?;
            let subscribed = client.subscribe(v1::SubscribeRequest::from(subscription)).await;
            let messages = subscribed.map_err(|status| StreamError::Refused(Box::new(status)))?.into_inner();
            Ok::<_, StreamError>((client, messages))
        });
        let (client, messages) = opened.await.map_err(|_| StreamError::Slow { url: url(), timeout })??;
        let silence = Duration::from_secs(gateway.idle_timeout_s.get());
        Ok(Self { at, _client: client, messages, sequence: 0, silence, dead: timing.ping_after + timing.ping_timeout })
    }

    /// The next update. Nothing is lost where this is dropped.
    pub(super) async fn next(&mut self, clock: Clock) -> Result<Heard, StreamError> {
        let message = match tokio::time::timeout(self.silence, self.messages.message()).await {
            Err(_) => return Err(StreamError::Silent(self.silence)),
            Ok(Err(status)) if innermost(&status).contains(CLOSED) => return Err(StreamError::Closed(self.dead)),
            Ok(Err(status)) => return Err(StreamError::Refused(Box::new(status))),
            Ok(Ok(None)) => return Err(StreamError::Ended),
            Ok(Ok(Some(message))) => message,
        };
        let now = clock.now();
        let gap = self.sequence > 0 && message.sequence != self.sequence + 1;
        self.sequence = message.sequence;
        let network = network_of(&message);
        let signal = match Update::from_wire(message, now) {
            Ok(update) => Signal::Event(Box::new(update.event), now),
            Err(error @ WireError::Version(_)) => return Err(StreamError::Version(error)),
            Err(error) => {
                warn!(%error, "an update cannot be read: its network goes back to the host's default");
                Signal::Unreadable(network)
            }
        };
        Ok(Heard { gap, signal })
    }
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

// Questions to the gateway, apart from the subscription.

/// The reason that a query failed. A server without HTTP/2, such as a gateway's HTTP interface, closes the connection.
fn refusal(url: &str, status: &tonic::Status) -> String {
    let why = words(status);
    if why.contains(CLOSED) || why.contains("frame with invalid size") {
        return format!(
            "the server at {url} closed the connection and may be no gateway: name its api.grpc_listen with --gateway, such as \
             http://127.0.0.1:7400 (7480 is api.http_listen)"
        );
    }
    format!("the gateway at {url} refused: {why}")
}

/// The answers, and when they came.
pub(crate) async fn ask(dialer: &Dialer, questions: &Query) -> Result<(Vec<Answer>, Timestamp), Failure> {
    let url = dialer.url(dialer.seat());
    let timeout = Duration::from_millis(dialer.gateway().timeout_ms.get());
    let silent = |_| Failure::Environment(format!("the gateway at {url} does not answer within {timeout:?}"));
    // Longer than the lookup of the gateway's name may take: a lookup that fails has an error of its own.
    let connected = tokio::time::timeout(timeout * 2, dialer.connect()).await.map_err(silent)?;
    let mut client =
        connected.map_err(|why| Failure::Environment(format!("cannot reach the gateway at {url}: {why}")))?;
    let answered = tokio::time::timeout(timeout, async {
        client
            .query(v1::QueryRequest::from(questions))
            .await
            .map_err(|status| Failure::Environment(refusal(url, &status)))
    });
    let response = answered.await.map_err(silent)??;
    let now = Clock::start().now();
    let answers = answers_from_wire(response.into_inner(), now)
        .map_err(|error| Failure::Environment(format!("the gateway at {url} gave an unknown answer: {error}")))?;
    if answers.len() == questions.questions.len() {
        return Ok((answers, now));
    }
    Err(Failure::Environment(format!("the gateway at {url} gave {} answers", answers.len())))
}
