//! One connection to one server, from its making to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{ContextBuilder, PublishErrorKind};
use async_nats::jetstream::stream::Config as StreamConfig;
use async_nats::{Client, Event, ServerAddr, ServerError, jetstream};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use spand_cells::GatewayId;
use strum::VariantArray;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::catch_up::CatchUp;
use super::fault::Fault;
use super::subjects::Subjects;
use super::{Nats, set, stream, streams};
use crate::exchange::{Incoming, Link, LinkState, MESSAGE_BYTES, Outgoing, SiteStream, Topic};

/// An acknowledgement or answer later than this is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The end waits no longer.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often other sites' streams are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often it is tried whether the stream keeps what is sent, and how soon again where it does not.
const TRY_EVERY: Duration = Duration::from_secs(5);
const FIRST_TRY: Duration = Duration::from_millis(200);
const LONGEST_TRY: Duration = Duration::from_secs(1);
/// What came so long before a connection was noticed to be gone may not have come.
const UNNOTICED: Duration = Duration::from_secs(15);
/// Events that wait to be looked at.
const EVENTS: usize = 64;
/// Before this, streams behave otherwise.
const OLDEST_SERVER: (u32, u32) = (2, 12);

/// How a session ended.
pub(super) enum Ended {
    /// There is nothing more to send.
    ForGood,
    /// It failed; whether it had come up before.
    Failed(Fault, bool),
}

/// An attempt to write to the stream.
type Attempt = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// A look for streams: their names and states.
type Look = Pin<Box<dyn Future<Output = (Vec<String>, Vec<SiteStream>)> + Send>>;

/// What a connection is worked with.
struct Session<'a> {
    nats: &'a Nats,
    client: Client,
    context: Context,
    events: mpsc::Receiver<Event>,
    wanted: StreamConfig,
    server: String,
    /// What hears and reads, which ends with this.
    tasks: JoinSet<()>,
    /// Streams that were read, or are.
    read: BTreeSet<String>,
    inbox: Inbox,
    /// What was published since may not have been heard.
    since: SystemTime,
}

/// Connects to one of `servers` and carries messages until that fails or there are no more to send. At first everything must work; once it has,
/// messages go before the stream takes any. What was published after `since` is read.
pub(super) async fn run(
    nats: &Nats,
    servers: &[ServerAddr],
    since: &mut SystemTime,
    link: &mut Link,
    has_been_up: bool,
) -> Ended {
    let Link { outgoing, cells, incoming, state, streams } = link;
    let inbox = Inbox::new(Arc::clone(&nats.subjects), cells.clone(), incoming.clone());
    let made = async {
        let mut session = Session::connect(nats, servers, inbox, *since).await?;
        session.begin(has_been_up).await?;
        Ok(session)
    };
    let session = tokio::select! {
        made = made => made,
        () = ended(outgoing) => return Ended::ForGood,
    };
    match session {
        Err(fault) => Ended::Failed(fault, false),
        Ok(mut session) => {
            let carried = session.carry(outgoing, (state, streams), has_been_up).await;
            streams.lock().clear();
            *since = SystemTime::now() - UNNOTICED;
            match carried {
                Ok(()) => Ended::ForGood,
                Err(fault) => Ended::Failed(fault, true),
            }
        }
    }
}

/// Drops what is to be sent, until there is no more.
pub(super) async fn ended(outgoing: &mut mpsc::Receiver<Outgoing>) {
    while outgoing.recv().await.is_some() {}
}

impl<'a> Session<'a> {
    /// To the first server that takes us. Else why not: the word of one that refuses before the silence of one that is away.
    async fn connect(nats: &'a Nats, servers: &[ServerAddr], inbox: Inbox, since: SystemTime) -> Result<Self, Fault> {
        let mut worst: Option<Fault> = None;
        for address in servers {
            match Self::connect_to(nats, address).await {
                Ok((client, events, server)) => {
                    let context =
                        ContextBuilder::new().timeout(ANSWER_WITHIN).ack_timeout(ANSWER_WITHIN).build(client.clone());
                    return Ok(Self {
                        nats,
                        client,
                        context,
                        events,
                        wanted: stream::wanted(&nats.config, &nats.subjects),
                        server,
                        tasks: JoinSet::new(),
                        read: BTreeSet::new(),
                        inbox,
                        since,
                    });
                }
                Err(fault) => match &worst {
                    Some(worse) if fault.is_absence || !worse.is_absence => {}
                    _ => worst = Some(fault),
                },
            }
        }
        Err(worst.unwrap_or_else(|| Fault::of("no NATS server is named")))
    }

    async fn connect_to(nats: &Nats, address: &ServerAddr) -> Result<(Client, mpsc::Receiver<Event>, String), Fault> {
        let server = format!("{}:{}", address.host(), address.port());
        let (sender, events) = mpsc::channel(EVENTS);
        let options = nats.config.options(&nats.subjects).await?.event_callback(move |event| {
            // Where N wait, the first ones end the session.
            let _full = sender.try_send(event);
            std::future::ready(())
        });
        let connected = options.connect(address.clone()).await;
        let client = connected.map_err(|error| Fault::of_connection(&nats.config, &server, &error))?;
        let info = client.server_info();
        check_version(&server, &info.version)?;
        if info.max_payload > MESSAGE_BYTES {
            nats.say_once(&format!(
                "NATS server {server} takes messages of {} bytes, of which as many may wait here as are in the sum of `check-config` with                  {MESSAGE_BYTES}: set `max_payload: {MESSAGE_BYTES}` there",
                info.max_payload
            ));
        }
        Ok((client, events, server))
    }

    /// What must work before it counts as up: hearing others, and at first the stream, too: writing to each subject, and reading.
    async fn begin(&mut self, has_been_up: bool) -> Result<(), Fault> {
        let stream = self.nats.subjects.stream();
        let catch_up = self.catch_up(stream.clone());
        let Self { nats, client, context, events, wanted, server, tasks, inbox, .. } = self;
        let (nats, client, context, wanted, server, inbox) = (*nats, &*client, &*context, &*wanted, &*server, &*inbox);
        let work = async {
            hear_all(nats, client, server, inbox, tasks).await?;
            if has_been_up {
                return client.flush().await.map_err(|_| lost(server));
            }
            keep(context, client, wanted, nats).await?;
            let readable = timeout(ANSWER_WITHIN, catch_up.check()).await;
            match readable {
                Ok(Ok(())) => Ok(()),
                Ok(Err(why)) => Err(Fault::absence(format!("the NATS stream {stream} cannot be read: {why}"))),
                Err(_) => Err(Fault::absence(format!("the NATS stream {stream} can be written to and not be read"))),
            }
        };
        tokio::select! {
            // Refusals first: what they refuse fails later, and with less to say.
            biased;
            fault = first_fault(events, nats, wanted, server) => Err(fault),
            done = work => done,
        }
    }

    /// Until there are no more messages to send; an error where the connection is of no more use.
    async fn carry(
        &mut self,
        outgoing: &mut mpsc::Receiver<Outgoing>,
        (state, streams): (&watch::Sender<LinkState>, &Mutex<Vec<SiteStream>>),
        has_been_up: bool,
    ) -> Result<(), Fault> {
        let own = self.nats.subjects.stream();
        let (begun, wait) = if has_been_up {
            (LinkState::Degraded(format!("the NATS stream {own} takes no messages yet")), Duration::ZERO)
        } else {
            (LinkState::Up, TRY_EVERY)
        };
        set(state, begun);
        self.read_all(vec![own]);
        let (mut attempt, mut tries) = (self.attempt(wait), Backoff::new(FIRST_TRY, LONGEST_TRY));
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut listing: Option<Look> = None;
        loop {
            tokio::select! {
                event = self.events.recv() => {
                    let fault = event.map_or_else(|| Some(lost(&self.server)), |event| fault_of(&event, self.nats, &self.wanted, &self.server));
                    if let Some(fault) = fault {
                        return Err(fault);
                    }
                }
                kept = &mut attempt => match kept {
                    Ok(()) => {
                        tries.reset();
                        set(state, LinkState::Up);
                        attempt = self.attempt(TRY_EVERY);
                    }
                    Err(fault) => {
                        if !fault.is_absence {
                            self.nats.say_once(&fault.sentence);
                        }
                        set(state, LinkState::Degraded(fault.sentence));
                        attempt = self.attempt(tries.wait());
                    }
                },
                _ = look.tick(), if listing.is_none() => {
                    let heard = self.inbox.sites(LOOK_EVERY);
                    listing = Some(streams::look(self.context.clone(), Arc::clone(&self.nats.subjects), heard).boxed());
                }
                Some((names, found)) = async { Some(listing.as_mut()?.await) }, if listing.is_some() => {
                    listing = None;
                    self.read_all(names);
                    *streams.lock() = found;
                }
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                message = outgoing.recv() => match message {
                    None => {
                        self.finish().await;
                        return Ok(());
                    }
                    Some(Outgoing { topic, to, payload }) => self.send(self.nats.subjects.own_to(topic, to), payload).await?,
                },
            }
        }
    }

    /// Publishes a message. Every subscribed gateway gets it, and the stream keeps it where its subject is the stream's.
    async fn send(&self, subject: String, payload: Vec<u8>) -> Result<(), Fault> {
        let sent = timeout(ANSWER_WITHIN, self.client.publish(subject, payload.into())).await;
        sent.map_err(|_| lost(&self.server))?.map_err(|_| lost(&self.server))
    }

    /// What was sent last is to arrive, if that does not take long.
    async fn finish(&self) {
        if !timeout(LAST_WORDS, self.client.flush()).await.is_ok_and(|flushed| flushed.is_ok()) {
            tracing::debug!("the last messages to NATS may not have arrived");
        }
    }

    /// Tries once whether the stream keeps what is sent, after `wait`.
    fn attempt(&self, wait: Duration) -> Attempt {
        let (context, client, wanted, nats) =
            (self.context.clone(), self.client.clone(), self.wanted.clone(), self.nats.clone());
        async move {
            sleep(wait).await;
            keep(&context, &client, &wanted, &nats).await
        }
        .boxed()
    }

    fn catch_up(&self, stream: String) -> CatchUp {
        let filter = self.nats.subjects.everybody(Topic::Closed);
        CatchUp { client: self.client.clone(), stream, filter, inbox: self.inbox.clone() }
    }

    fn read_all(&mut self, streams: Vec<String>) {
        for stream in streams {
            if self.read.insert(stream.clone()) {
                let (catch_up, since) = (self.catch_up(stream.clone()), self.since);
                self.tasks.spawn(async move {
                    if let Err(why) = catch_up.run(since).await {
                        tracing::warn!(
                            stream,
                            why,
                            "what a NATS stream kept was not read; other gateways are asked for it"
                        );
                    }
                });
            }
        }
    }
}

/// Has the stream be there, and writes to it.
async fn keep(context: &Context, client: &Client, wanted: &StreamConfig, nats: &Nats) -> Result<(), Fault> {
    if let Some(different) = stream::ensure(context, wanted).await? {
        nats.say_once(&different);
    }
    probe(client, context, nats).await
}

/// Has everything heard that is published.
async fn hear_all(
    nats: &Nats,
    client: &Client,
    server: &str,
    inbox: &Inbox,
    tasks: &mut JoinSet<()>,
) -> Result<(), Fault> {
    let subjects = [Topic::Closed, Topic::Open, Topic::Member].map(|topic| nats.subjects.everybody(topic));
    for subject in subjects.into_iter().chain(nats.subjects.inboxes()) {
        let subscriber = client.subscribe(subject).await.map_err(|_| lost(server))?;
        tasks.spawn(hear(subscriber, inbox.clone()));
    }
    Ok(())
}

/// Hands over what is published. Gateways send no headers, and answers of servers have some: a client that asks a server names the
/// subject of the answer, which may be one that its user has no right to write to.
async fn hear(mut subscriber: async_nats::Subscriber, inbox: Inbox) {
    while let Some(message) = subscriber.next().await {
        if message.headers.is_none() && inbox.take(message.subject.as_str(), &message.payload).await.is_err() {
            return;
        }
    }
}

/// Writes nothing to each subject, and waits for the stream to acknowledge its own.
async fn probe(client: &Client, context: &Context, nats: &Nats) -> Result<(), Fault> {
    let stream = nats.subjects.stream();
    let tried = async {
        for topic in Topic::VARIANTS.iter().filter(|topic| !topic.is_kept()) {
            client
                .publish(nats.subjects.own(*topic), Vec::new().into())
                .await
                .map_err(|_| Fault::absence("the connection ended"))?;
        }
        let sent = context.publish(nats.subjects.own(Topic::Closed), Vec::new().into()).await;
        let acknowledged =
            sent.map_err(|error| refused(&stream, &error))?.await.map_err(|error| refused(&stream, &error))?;
        if acknowledged.stream == stream {
            Ok(())
        } else {
            let (kept, subject) = (acknowledged.stream, nats.subjects.kept());
            Err(Fault::of(format!(
                "the NATS stream {kept} takes what is for {stream}: take {subject} out of its subjects"
            )))
        }
    };
    let tried = timeout(2 * ANSWER_WITHIN, tried).await;
    tried.map_err(|_| Fault::absence(format!("the NATS stream {stream} takes no messages")))?
}

/// The first event that ends a session.
async fn first_fault(events: &mut mpsc::Receiver<Event>, nats: &Nats, wanted: &StreamConfig, server: &str) -> Fault {
    while let Some(event) = events.recv().await {
        if let Some(fault) = fault_of(&event, nats, wanted, server) {
            return fault;
        }
    }
    lost(server)
}

fn fault_of(event: &Event, nats: &Nats, wanted: &StreamConfig, server: &str) -> Option<Fault> {
    match event {
        Event::Disconnected | Event::Closed => Some(lost(server)),
        Event::LameDuckMode => Some(Fault::absence(format!("NATS server {server} is about to stop"))),
        Event::ServerError(ServerError::Other(message)) => {
            let right = Fault::of_right(&nats.subjects, &stream::how_to_make(wanted), message);
            if let Some(right) = right.as_ref().filter(|_| nats.subjects.is_of_copy(message)) {
                // It costs what other sites' gateways sent while they are away.
                nats.say_once(&right.sentence);
                return None;
            }
            Some(right.unwrap_or_else(|| Fault::absence(format!("NATS server {server} says: {message}"))))
        }
        Event::ServerError(ServerError::AuthorizationViolation) => {
            Some(Fault::of(format!("NATS server {server} does not take the login any more: make both the same")))
        }
        Event::SlowConsumer(_) => {
            nats.say_once("messages of other gateways come faster than they are read; what is lost of closed buckets is asked for");
            None
        }
        Event::ServerError(ServerError::SlowConsumer(_))
        | Event::Connected
        | Event::Draining
        | Event::ClientError(_) => None,
    }
}

fn refused(stream: &str, error: &jetstream::context::PublishError) -> Fault {
    match error.kind() {
        // Without a leader, a message meets either.
        PublishErrorKind::TimedOut | PublishErrorKind::StreamNotFound => {
            Fault::absence(format!("the NATS stream {stream} takes no messages: it elects a leader, or is gone"))
        }
        _ => Fault::absence(format!("the NATS stream {stream} refuses messages: {error}")),
    }
}

fn lost(server: &str) -> Fault {
    Fault::absence(format!("the connection to NATS server {server} was lost"))
}

fn check_version(server: &str, version: &str) -> Result<(), Fault> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let found = (numbers.next().flatten(), numbers.next().flatten());
    let (major, minor) = OLDEST_SERVER;
    match found {
        (Some(found_major), Some(found_minor)) if (found_major, found_minor) >= OLDEST_SERVER => Ok(()),
        _ => Err(Fault::of(format!(
            "NATS server {server} is version {version}, and {major}.{minor} or later is needed: upgrade it"
        ))),
    }
}

// How long to wait before something is tried again.

/// Doubles from `first` to `most`; each wait is anything up to that, so that not all gateways come at once.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// It worked.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next wait.
    pub(super) fn wait(&mut self) -> Duration {
        self.wait_at_most(self.most)
    }

    /// The next wait, where it is to be no longer than this.
    pub(super) fn wait_at_most(&mut self, most: Duration) -> Duration {
        let longest = self.next.min(most);
        self.next = (self.next * 2).min(self.most);
        longest.mul_f64(rand::random())
    }
}

// Hands messages over to the hub.

/// Hands over messages of other gateways.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    subjects: Arc<Subjects>,
    cells: mpsc::Sender<Incoming>,
    others: mpsc::Sender<Incoming>,
    warned_unknown: Arc<AtomicBool>,
    /// The site of each gateway, and when it last sent who it is.
    sites: Arc<Mutex<BTreeMap<GatewayId, (String, Instant)>>>,
}

/// Nobody takes messages any more.
#[derive(Debug)]
pub(super) struct Closed;

impl Inbox {
    pub(super) fn new(subjects: Arc<Subjects>, cells: mpsc::Sender<Incoming>, others: mpsc::Sender<Incoming>) -> Self {
        Self { subjects, cells, others, warned_unknown: Arc::default(), sites: Arc::default() }
    }

    /// Sites of the gateways that were heard within this time.
    pub(super) fn sites(&self, within: Duration) -> BTreeSet<String> {
        let sites = self.sites.lock();
        sites.values().filter(|(_, heard)| heard.elapsed() < within).map(|(site, _)| site.clone()).collect()
    }

    /// Hands a message over, and waits where there is no room. Own ones, empty ones and those of nobody are dropped,
    /// but not what says who has the own number: that may be another gateway.
    pub(super) async fn take(&self, subject: &str, payload: &[u8]) -> Result<(), Closed> {
        let Some((gateway, topic)) = self.subjects.author(subject) else {
            if !self.warned_unknown.swap(true, Ordering::Relaxed) {
                tracing::warn!(subject, "messages whose subject names no gateway are dropped; this is logged once");
            }
            return Ok(());
        };
        // An empty one only asks whether it gets through.
        if (self.subjects.is_own(gateway) && topic != Topic::Member) || payload.is_empty() {
            return Ok(());
        }
        if topic == Topic::Member
            && !self.subjects.is_own(gateway)
            && let Some(site) = Subjects::site_of(subject)
        {
            self.sites.lock().insert(gateway, (site.to_owned(), Instant::now()));
        }
        // Of one that is too long as much is kept as shows that: what waits is bounded by the number of messages.
        let payload = payload.get(..MESSAGE_BYTES + 1).unwrap_or(payload).to_vec();
        let incoming = Incoming { gateway, topic, payload };
        let channel = if topic.has_cells() { &self.cells } else { &self.others };
        channel.send(incoming).await.map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_named_with_its_version() {
        for good in ["2.12.0", "2.15.1", "3.0.0-beta.1", "2.12.0-RC.1"] {
            assert_eq!(check_version("h:1", good), Ok(()), "{good}");
        }
        for old in ["2.9.10", "2.11.9", "1.4.1", "", "dev"] {
            let sentence = check_version("h:1", old).unwrap_err().sentence;
            assert!(sentence.contains("h:1") && sentence.contains(old) && sentence.contains("2.12"), "{sentence}");
        }
    }

    #[test]
    fn waits_are_spread_and_bounded() {
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut backoff = Backoff::new(first, most);
        let waits: Vec<Duration> = (0..200).map(|_| backoff.wait()).collect();
        assert!(waits.iter().all(|wait| *wait <= most));
        assert!(waits.iter().skip(10).any(|wait| *wait < most / 4), "jitter down to nothing");
        assert!(waits.iter().any(|wait| *wait > most / 2));
        backoff.reset();
        assert!(backoff.wait() <= first);
    }
}
