//! A consumer of a stream, asked for messages again and again: what it does not answer is noticed here, not left to the client.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::{Context, Message as Received};
use async_nats::{Client, StatusCode, Subscriber};
use futures::StreamExt;
use tokio::time::timeout;

/// Messages asked for at once.
const BATCH: usize = 128;
/// The server's word that it is there, where there are no messages.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A request ends after this.
const EXPIRES: Duration = Duration::from_secs(5);
/// Nothing came for so long, messages or heartbeats: it has stalled.
const SILENCE: Duration = Duration::from_millis(3_500);
/// The server forgets a consumer that nobody asks for so long. Each error leaves one behind.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15);

/// A consumer of our own.
pub(super) struct Pull {
    client: Client,
    context: Context,
    answers: Subscriber,
    inbox: String,
    requests: String,
    /// Still to come of the request under way.
    left: usize,
    /// The first request does not wait, to learn at once whether it is answered.
    may_wait: bool,
    received: u64,
}

impl Pull {
    /// Makes a consumer that begins with `from`.
    pub(super) async fn open(
        context: &Context,
        stream: &str,
        filter: String,
        from: DeliverPolicy,
    ) -> Result<Self, String> {
        let config = Config {
            deliver_policy: from,
            ack_policy: AckPolicy::None,
            replay_policy: ReplayPolicy::Instant,
            filter_subject: filter,
            inactive_threshold: FORGOTTEN_AFTER,
            memory_storage: true,
            num_replicas: 1,
            ..Config::default()
        };
        let made = context.create_consumer_on_stream(config, stream).await.map_err(|error| error.to_string())?;
        let consumer = &made.cached_info().name;
        let client = context.client();
        let inbox = client.new_inbox();
        let answers = client.subscribe(inbox.clone()).await.map_err(|error| error.to_string())?;
        let requests = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        Ok(Self { client, context: context.clone(), answers, inbox, requests, left: 0, may_wait: false, received: 0 })
    }

    /// The next message, or none where there are no more for now; an error where the consumer is of no more use.
    pub(super) async fn next(&mut self) -> Result<Option<Received>, String> {
        loop {
            if self.left == 0 {
                self.ask().await?;
            }
            let answer = timeout(SILENCE, self.answers.next()).await;
            let answer = answer.map_err(|_| format!("the consumer has sent nothing for {} ms", SILENCE.as_millis()))?;
            let message = answer.ok_or("the connection ended")?;
            match message.status {
                None => return self.message(message).map(Some),
                Some(StatusCode::IDLE_HEARTBEAT) => {}
                Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => {
                    self.left = 0;
                    return Ok(None);
                }
                Some(status) => {
                    return Err(format!("the consumer ended: {status} {}", message.description.unwrap_or_default()));
                }
            }
        }
    }

    async fn ask(&mut self) -> Result<(), String> {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let request = if self.may_wait {
            serde_json::json!({ "batch": BATCH, "expires": nanos(EXPIRES), "idle_heartbeat": nanos(HEARTBEAT) })
        } else {
            serde_json::json!({ "batch": BATCH, "no_wait": true })
        };
        let sent =
            self.client.publish_with_reply(self.requests.clone(), self.inbox.clone(), request.to_string().into());
        let sent = timeout(SILENCE, sent).await.map_err(|_| "the connection takes nothing".to_owned())?;
        sent.map_err(|error| error.to_string())?;
        (self.left, self.may_wait) = (BATCH, true);
        Ok(())
    }

    /// Messages of a consumer are numbered without a gap: one that is missing was lost on the way.
    fn message(&mut self, message: async_nats::Message) -> Result<Received, String> {
        self.left = self.left.saturating_sub(1);
        self.received += 1;
        let received = Received { message, context: self.context.clone() };
        let number = received.info().map_err(|error| error.to_string())?.consumer_sequence;
        if number == self.received {
            Ok(received)
        } else {
            Err(format!("message {} of the consumer is missing", self.received))
        }
    }
}
