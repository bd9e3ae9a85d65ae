//! Reads one stream from where it was read before, whatever happens to consumers and connections meanwhile.
//!
//! Who has read nothing of it gets the last minute first, and what is older after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::datetime::{DateTime, now};
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::stream::{Info, State};
use async_nats::jetstream::{Context, Message as Received};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::backoff::Backoff;
use super::pull::Pull;
use super::stream;
use super::subjects::Subjects;
use crate::share::exchange::{Incoming, Topic};

/// What matters most, and the most that a reader may be behind.
const NEWEST: Duration = Duration::from_secs(60);
/// Waits after an error.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Hands over messages of other gateways.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    subjects: Arc<Subjects>,
    cells: mpsc::Sender<Incoming>,
    others: mpsc::Sender<Incoming>,
    warned_unknown: Arc<AtomicBool>,
}

/// Nobody takes messages any more.
#[derive(Debug)]
pub(super) struct Closed;

impl Inbox {
    pub(super) fn new(subjects: Arc<Subjects>, cells: mpsc::Sender<Incoming>, others: mpsc::Sender<Incoming>) -> Self {
        Self { subjects, cells, others, warned_unknown: Arc::default() }
    }

    /// Hands a message over, and waits where there is no room. Own ones, empty ones and those of nobody are dropped,
    /// but not what says who has the own number: that may be another gateway.
    pub(super) async fn take(&self, message: async_nats::Message) -> Result<(), Closed> {
        let subject = message.subject.as_str();
        let Some((gateway, topic)) = self.subjects.author(subject) else {
            if !self.warned_unknown.swap(true, Ordering::Relaxed) {
                tracing::warn!(subject, "messages whose subject names no gateway are dropped; this is logged once");
            }
            return Ok(());
        };
        // An empty one only asks whether it gets through.
        if (self.subjects.is_own(gateway) && topic != Topic::Member) || message.payload.is_empty() {
            return Ok(());
        }
        let incoming = Incoming { gateway, topic, payload: message.payload.into() };
        let channel = if topic.has_cells() { &self.cells } else { &self.others };
        channel.send(incoming).await.map_err(|_| Closed)
    }
}

/// How far streams were read: outlives connections.
pub(super) type Positions = Arc<Mutex<BTreeMap<String, Position>>>;

/// How far one was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// When the stream was made: numbers of one before mean nothing in it.
    created: DateTime,
    /// The newest message that was read, by number and time.
    read: Option<(u64, DateTime)>,
    /// Where to go on.
    newest: DeliverPolicy,
    /// What was passed over for the newest.
    older: Option<Older>,
    /// When that was last done.
    skipped: Option<DateTime>,
}

#[derive(Clone, Copy, Debug)]
struct Older {
    from: DeliverPolicy,
    until: DateTime,
}

/// Reads one stream.
pub(super) struct Reader {
    context: Context,
    stream: String,
    filter: String,
    inbox: Inbox,
    window: Duration,
    positions: Positions,
    /// Notified when the server first answers.
    ready: Option<oneshot::Sender<()>>,
}

/// Why reading ended.
enum Ended {
    /// There is no such stream any more, or nobody to read it for.
    ForGood,
    /// For now.
    Failed(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<Closed> for Ended {
    fn from(Closed: Closed) -> Self {
        Self::ForGood
    }
}

impl Position {
    /// Whether the stream counts its messages from one again, under its name and with its age: one in memory does after all its servers
    /// were away at once.
    fn begins_again(&self, state: &State) -> bool {
        self.read.is_some_and(|(sequence, published)| {
            let ends_before = state.last_sequence < sequence;
            ends_before || state.messages > 0 && state.first_sequence <= sequence && state.first_timestamp > published
        })
    }
}

impl Reader {
    /// With nothing read yet, or as far as `positions` say.
    pub(super) fn new(context: Context, stream: String, inbox: Inbox, window: Duration, positions: Positions) -> Self {
        let filter = inbox.subjects.everybody(Topic::Closed);
        Self { context, stream, filter, inbox, window, positions, ready: None }
    }

    /// Completes when the server first answers.
    pub(super) fn ready(&mut self) -> oneshot::Receiver<()> {
        let (sender, ready) = oneshot::channel();
        self.ready = Some(sender);
        ready
    }

    /// Reads until the stream is gone; returns its name.
    pub(super) async fn run(mut self) -> String {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        loop {
            let Ended::Failed(why) = self.follow(&mut backoff).await else { return self.stream };
            tracing::debug!(stream = self.stream, why, "reads a NATS stream again from where it was");
            sleep(backoff.wait()).await;
        }
    }

    async fn follow(&mut self, backoff: &mut Backoff) -> Ended {
        match self.follow_newest(backoff).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn follow_newest(&mut self, backoff: &mut Backoff) -> Result<std::convert::Infallible, Ended> {
        let mut older = JoinSet::new();
        let position = self.position().await?;
        let mut pull = self.pull(position.newest).await?;
        loop {
            let pulled = pull.next().await?;
            backoff.reset();
            if let Some(ready) = self.ready.take() {
                // Who waited has gone on without it.
                let _gone = ready.send(());
            }
            match pulled {
                None => self.start_older(&mut older),
                Some(message) => {
                    let is_last = self.deliver_newest(message).await?;
                    if is_last {
                        self.start_older(&mut older);
                    }
                }
            }
        }
    }

    async fn pull(&self, from: DeliverPolicy) -> Result<Pull, Ended> {
        Ok(Pull::open(&self.context, &self.stream, self.filter.clone(), from).await?)
    }

    /// How far the stream was read, or where to begin with one that is new.
    async fn position(&self) -> Result<Position, Ended> {
        let found = stream::info(&self.context, &self.stream).await.map_err(|fault| fault.sentence)?;
        let Info { created, state, .. } = found.ok_or(Ended::ForGood)?;
        let mut positions = self.positions.lock();
        let is_same = |position: &&Position| position.created == created && !position.begins_again(&state);
        let known = positions.get(&self.stream).filter(is_same);
        let position = known.copied().unwrap_or_else(|| {
            let (until, start_time) = (now() - NEWEST, now() - self.window);
            let older = Older { from: DeliverPolicy::ByStartTime { start_time }, until };
            Position { created, read: None, newest: from_time(until), older: Some(older), skipped: None }
        });
        positions.insert(self.stream.clone(), position);
        Ok(position)
    }

    /// Hands a message over; whether it was the last one for now.
    async fn deliver_newest(&self, received: Received) -> Result<bool, Ended> {
        let info = received.info().map_err(|error| error.to_string())?;
        let (sequence, published, pending) = (info.stream_sequence, info.published, info.pending);
        if pending > 0 && self.skips(sequence, published) {
            return Err(Ended::Failed("too far behind".to_owned()));
        }
        self.inbox.take(received.message).await?;
        self.change(|position| {
            (position.read, position.newest) = (Some((sequence, published)), from_sequence(sequence + 1));
        });
        Ok(pending == 0)
    }

    /// Whether to go on with the newest and come back to what lies before it. A stream that is itself filled late, as a mirror, stays
    /// behind after that, so it is done once in a while only.
    fn skips(&self, sequence: u64, published: DateTime) -> bool {
        let time = now();
        if time - published <= NEWEST {
            return false;
        }
        let mut skips = false;
        self.change(|position| {
            if position.skipped.is_some_and(|skipped| time - skipped < NEWEST) {
                return;
            }
            skips = true;
            if position.skipped.replace(time).is_none() {
                tracing::warn!(
                    stream = self.stream,
                    "more than a minute behind: goes on with the newest minute; this is logged once"
                );
            }
            let until = time - NEWEST;
            position.newest = from_time(until);
            position.older = Some(Older { from: from_sequence(sequence), until });
        });
        skips
    }

    fn change(&self, change: impl FnOnce(&mut Position)) {
        if let Some(position) = self.positions.lock().get_mut(&self.stream) {
            change(position);
        }
    }

    /// Reads what was passed over, beside the newest; once.
    fn start_older(&self, running: &mut JoinSet<()>) {
        let older = self.positions.lock().get(&self.stream).and_then(|position| position.older);
        let (Some(older), true) = (older, running.is_empty()) else { return };
        let reader = Self {
            context: self.context.clone(),
            stream: self.stream.clone(),
            filter: self.filter.clone(),
            inbox: self.inbox.clone(),
            positions: Arc::clone(&self.positions),
            window: self.window,
            ready: None,
        };
        running.spawn(async move {
            let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
            let mut from = older.from;
            while let Err(Ended::Failed(why)) = reader.follow_older(&mut from, older.until).await {
                tracing::debug!(
                    stream = reader.stream,
                    why,
                    "reads older messages of a NATS stream again from where it was"
                );
                sleep(backoff.wait()).await;
            }
        });
    }

    async fn follow_older(&self, from: &mut DeliverPolicy, until: DateTime) -> Result<(), Ended> {
        let mut pull = self.pull(*from).await?;
        while let Some(received) = pull.next().await? {
            let info = received.info().map_err(|error| error.to_string())?;
            let (sequence, published) = (info.stream_sequence, info.published);
            if published >= until {
                break;
            }
            self.inbox.take(received.message).await?;
            *from = from_sequence(sequence + 1);
            self.change(|position| position.older = Some(Older { from: *from, until }));
        }
        self.change(|position| position.older = None);
        Ok(())
    }
}

fn from_time(start_time: DateTime) -> DeliverPolicy {
    DeliverPolicy::ByStartTime { start_time }
}

fn from_sequence(start_sequence: u64) -> DeliverPolicy {
    DeliverPolicy::ByStartSequence { start_sequence }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// Seconds of a day.
    fn at(second: u64) -> DateTime {
        (UNIX_EPOCH + Duration::from_secs(second)).into()
    }

    #[test]
    fn a_stream_whose_messages_are_older_than_what_was_read_goes_on_and_another_begins_again() {
        let position = Position {
            created: at(0),
            read: Some((500, at(40))),
            newest: DeliverPolicy::All,
            older: None,
            skipped: None,
        };
        let begins_again = |position: Position, messages: u64, first: (u64, u64), last: u64| {
            let state = serde_json::from_value(serde_json::json!({
                "messages": messages, "bytes": 0, "consumer_count": 0,
                "first_seq": first.0, "first_ts": format!("1970-01-01T00:00:{:02}Z", first.1),
                "last_seq": last, "last_ts": "1970-01-01T00:00:59Z",
            }));
            position.begins_again(&state.unwrap())
        };
        let goes_on = [
            ("as it was", 101, (400, 20), 500),
            ("nothing before what was read", 10, (500, 40), 509),
            ("what was read has aged", 9, (501, 41), 509),
            ("all has aged", 0, (501, 0), 500),
        ];
        for (what, messages, first, last) in goes_on {
            assert!(!begins_again(position, messages, first, last), "{what}");
        }
        for (what, messages, first, last) in [
            ("few since", 3, (1, 50), 3),
            ("more since than were read", 600, (1, 50), 600),
            ("nothing yet", 0, (0, 0), 0),
        ] {
            assert!(begins_again(position, messages, first, last), "{what}");
            assert!(!begins_again(Position { read: None, ..position }, messages, first, last), "nothing read: {what}");
        }
    }
}
