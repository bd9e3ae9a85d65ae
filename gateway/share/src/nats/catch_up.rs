//! Reads what a stream kept, once: what was published before this gateway heard it.
//!
//! By direct gets in batches, for which a server holds nothing. Messages that are published from now on are heard as they are.

use std::time::{Duration, SystemTime};

use async_nats::header::{NATS_SEQUENCE, NATS_SUBJECT, NATS_TIME_STAMP};
use async_nats::{Client, HeaderMap, StatusCode, Subscriber};
use futures::StreamExt;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::session::{Backoff, Closed, Inbox};

/// Messages of a batch, and their bytes.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 4 << 20;
/// The header of a batch's end, with how many messages are left.
const LEFT: &str = "Nats-Num-Pending";
/// The status of a batch's end.
const END: u16 = 204;
/// A server that answers nothing for so long is asked again.
const SILENCE: Duration = Duration::from_secs(3);
/// What matters most is read first.
const NEWEST: Duration = Duration::from_secs(60);
/// Waits after a failure, and how often it is tried again.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const TRIES: u32 = 20;

/// Of one stream.
pub(super) struct CatchUp {
    pub(super) client: Client,
    pub(super) stream: String,
    /// What of it is read.
    pub(super) filter: String,
    pub(super) inbox: Inbox,
}

/// Where to go on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Time(SystemTime),
    Sequence(u64),
}

/// Why a batch is of no use.
enum Failure {
    /// Nobody is there to read for.
    Closed,
    Why(String),
}

impl From<Closed> for Failure {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Self {
        Self::Why(why.to_owned())
    }
}

/// What is left after a batch.
enum Left {
    Nothing,
    More,
}

impl CatchUp {
    /// Reads everything since `from`, the newest minute first. Why not, where it could not be read.
    pub(super) async fn run(self, from: SystemTime) -> Result<(), String> {
        let newest = SystemTime::now() - NEWEST;
        if from >= newest {
            return self.read(from, None).await;
        }
        self.read(newest, None).await?;
        self.read(from, Some(newest)).await
    }

    /// Whether it can be read.
    pub(super) async fn check(&self) -> Result<(), String> {
        // What is kept is newer than that.
        match self.batch(&mut Next::Sequence(1), Some(SystemTime::UNIX_EPOCH)).await {
            Ok(_) | Err(Failure::Closed) => Ok(()),
            Err(Failure::Why(why)) => Err(why),
        }
    }

    async fn read(&self, from: SystemTime, until: Option<SystemTime>) -> Result<(), String> {
        let mut next = Next::Time(from);
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut failures = 0;
        loop {
            match self.batch(&mut next, until).await {
                Ok(Left::More) => (failures, backoff) = (0, Backoff::new(FIRST_WAIT, LONGEST_WAIT)),
                Ok(Left::Nothing) | Err(Failure::Closed) => return Ok(()),
                Err(Failure::Why(why)) => {
                    failures += 1;
                    if failures == TRIES {
                        return Err(why);
                    }
                    tracing::debug!(stream = self.stream, why, "asks for kept messages again");
                    sleep(backoff.wait()).await;
                }
            }
        }
    }

    async fn batch(&self, next: &mut Next, until: Option<SystemTime>) -> Result<Left, Failure> {
        let mut request = json!({ "batch": BATCH, "max_bytes": BATCH_BYTES, "next_by_subj": self.filter });
        match *next {
            Next::Time(time) => request["start_time"] = humantime::format_rfc3339_nanos(time).to_string().into(),
            Next::Sequence(sequence) => request["seq"] = sequence.into(),
        }
        let reply = self.client.new_inbox();
        let lost = |_| Failure::from("the connection ended");
        let mut answers =
            self.client.subscribe(reply.clone()).await.map_err(|_| Failure::from("the connection ended"))?;
        let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
        self.client.publish_with_reply(subject, reply, request.to_string().into()).await.map_err(lost)?;
        let before = *next;
        let left = match self.take(&mut answers, next, until).await {
            // Asked at once for the same, a server would answer the same.
            Ok(Left::More) if *next == before => Err("a batch without a message".into()),
            left => left,
        };
        // What is still on its way is of no use.
        answers.unsubscribe().await.ok();
        left
    }

    async fn take(
        &self,
        answers: &mut Subscriber,
        next: &mut Next,
        until: Option<SystemTime>,
    ) -> Result<Left, Failure> {
        loop {
            let answer = timeout(SILENCE, answers.next()).await.map_err(|_| Failure::from("no answer"))?;
            let message = answer.ok_or("the connection ended")?;
            let headers = message.headers.as_ref();
            match message.status {
                None => {}
                Some(StatusCode::NOT_FOUND) => return Ok(Left::Nothing),
                Some(StatusCode::NO_RESPONDERS) => {
                    return Err("no server has it with direct gets (allow_direct)".into());
                }
                Some(status) if status.as_u16() == END => {
                    let left = headers.and_then(|headers| headers.get(LEFT)).map(|left| left.as_str().to_owned());
                    return Ok(if left.as_deref() == Some("0") { Left::Nothing } else { Left::More });
                }
                Some(status) => {
                    return Err(Failure::Why(format!("{status} {}", message.description.unwrap_or_default())));
                }
            }
            let kept = headers.and_then(Kept::of).ok_or("a kept message without its number")?;
            if until.is_some_and(|until| kept.time >= until) {
                return Ok(Left::Nothing);
            }
            self.inbox.take(&kept.subject, &message.payload).await?;
            *next = Next::Sequence(kept.sequence + 1);
        }
    }
}

/// What a server knows of a kept message.
struct Kept {
    subject: String,
    sequence: u64,
    time: SystemTime,
}

impl Kept {
    fn of(headers: &HeaderMap) -> Option<Self> {
        Some(Self {
            subject: headers.get(NATS_SUBJECT)?.as_str().to_owned(),
            sequence: headers.get(NATS_SEQUENCE)?.as_str().parse().ok()?,
            time: humantime::parse_rfc3339(headers.get(NATS_TIME_STAMP)?.as_str()).ok()?,
        })
    }
}
