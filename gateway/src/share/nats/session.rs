//! One connection to one server, from its making to its end.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{ContextBuilder, PublishErrorKind};
use async_nats::jetstream::stream::Config as StreamConfig;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Event, ServerAddr, ServerError};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::backoff::Backoff;
use super::fault::Fault;
use super::reader::{Inbox, Positions, Reader};
use super::stream;
use super::unanswered::{LATE, Unanswered};
use super::{Nats, set};
use crate::share::exchange::{Link, LinkState, Outgoing, Topic};

/// Messages to the stream whose acknowledgement is awaited. What comes then waits in the channel, whatever it is about, until one is there or
/// they are late, and is dropped before it.
const IN_FLIGHT: usize = 64;
/// An acknowledgement or answer later than this is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The end waits no longer.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often other sites' streams are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Between attempts to write again.
const FIRST_PROBE: Duration = Duration::from_millis(200);
const LONGEST_PROBE: Duration = Duration::from_secs(1);
/// A stream that takes an attempt and then fails again is tried later each time, as what was not kept is sent to it each time; unless it was
/// steady for so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const STEADY: Duration = Duration::from_secs(10);
/// Events that wait to be looked at.
const EVENTS: usize = 64;
/// Before this, consumers and streams behave otherwise.
const OLDEST_SERVER: (u32, u32) = (2, 12);

/// How a session ended.
pub(super) enum Ended {
    /// There is nothing more to send.
    ForGood,
    /// It failed; whether it had come up before.
    Failed(Fault, bool),
}

/// An attempt to write to the stream again.
type Attempt = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// What a connection is worked with.
struct Session<'a> {
    nats: &'a Nats,
    client: Client,
    context: Context,
    events: mpsc::Receiver<Event>,
    wanted: StreamConfig,
    server: String,
    /// Readers, which end with this.
    readers: JoinSet<String>,
    read: BTreeSet<String>,
    inbox: Inbox,
    positions: Positions,
}

/// Connects to one of `servers` and carries messages until that fails or there are no more to send. At first everything must work; once it has,
/// what needs no stream goes on before the stream does.
pub(super) async fn run(
    nats: &Nats,
    servers: &[ServerAddr],
    positions: &Positions,
    link: &mut Link,
    has_been_up: bool,
) -> Ended {
    let Link { outgoing, cells, incoming, state } = link;
    let inbox = Inbox::new(Arc::clone(&nats.subjects), cells.clone(), incoming.clone());
    let made = async {
        let mut session = Session::connect(nats, servers, inbox, Arc::clone(positions)).await?;
        let attempt = if has_been_up { session.resume().await? } else { session.begin().await? };
        Ok((session, attempt))
    };
    let session = tokio::select! {
        made = made => made,
        () = ended(outgoing) => return Ended::ForGood,
    };
    match session {
        Err(fault) => Ended::Failed(fault, false),
        Ok((mut session, attempt)) => match session.carry(outgoing, state, attempt).await {
            Ok(()) => Ended::ForGood,
            Err(fault) => Ended::Failed(fault, true),
        },
    }
}

/// Drops what is to be sent, until there is no more.
pub(super) async fn ended(outgoing: &mut mpsc::Receiver<Outgoing>) {
    while outgoing.recv().await.is_some() {}
}

impl<'a> Session<'a> {
    /// To the first server that takes us. Else why not: the word of one that refuses before the silence of one that is away.
    async fn connect(
        nats: &'a Nats,
        servers: &[ServerAddr],
        inbox: Inbox,
        positions: Positions,
    ) -> Result<Self, Fault> {
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
                        readers: JoinSet::new(),
                        read: BTreeSet::new(),
                        inbox,
                        positions,
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
        let options = nats.config.options().await?.event_callback(move |event| {
            // Where N wait, the first ones end the session.
            let _full = sender.try_send(event);
            std::future::ready(())
        });
        let connected = options.connect(address.clone()).await;
        let client = connected.map_err(|error| Fault::of_connection(&nats.config, &server, &error))?;
        check_version(&server, &client.server_info().version)?;
        Ok((client, events, server))
    }

    /// Everything that must work before it counts as up: hearing others, reading the stream, and writing to each subject.
    async fn begin(&mut self) -> Result<Option<Attempt>, Fault> {
        let work = async {
            let problem = stream::ensure(&self.context, &self.wanted).await?;
            if let Some(different) = problem {
                self.nats.say_once(&different);
            }
            hear_all(self.nats, &self.client, &self.server, &self.inbox, &mut self.readers).await?;
            let own = self.nats.subjects.stream();
            let mut reader = reader(self.nats, &self.context, own.clone(), &self.inbox, &self.positions);
            let ready = reader.ready();
            self.readers.spawn(reader.run());
            self.read.insert(own);
            probe(&self.client, &self.context, self.nats).await?;
            match timeout(ANSWER_WITHIN, ready).await {
                Ok(Ok(())) => Ok(None),
                _ => Err(Fault::absence(format!(
                    "the NATS stream {} can be written to and not be read",
                    self.wanted.name
                ))),
            }
        };
        tokio::select! {
            // Refusals first: what they refuse fails later, and with less to say.
            biased;
            fault = first_fault(&mut self.events, self.nats, &self.wanted, &self.server) => Err(fault),
            done = work => done,
        }
    }

    /// What must work after a connection was lost: hearing others. Where writing to the stream takes longer, as while a leader is elected,
    /// the attempt is returned.
    async fn resume(&mut self) -> Result<Option<Attempt>, Fault> {
        let mut attempt = self.attempt(Duration::ZERO);
        let work = async {
            hear_all(self.nats, &self.client, &self.server, &self.inbox, &mut self.readers).await?;
            Ok(tokio::select! {
                done = &mut attempt => Some(done),
                () = sleep(LATE) => None,
            })
        };
        let written = tokio::select! {
            biased;
            fault = first_fault(&mut self.events, self.nats, &self.wanted, &self.server) => return Err(fault),
            done = work => done?,
        };
        match written {
            Some(Ok(())) => {
                self.read_all(vec![self.nats.subjects.stream()]);
                Ok(None)
            }
            // The next attempt fails likewise, and its reason is shown.
            Some(Err(_)) => Ok(Some(self.attempt(FIRST_PROBE))),
            None => Ok(Some(attempt)),
        }
    }

    /// Until there are no more messages to send; an error where the connection is of no more use. While there is an attempt to write to the
    /// stream, messages go without it.
    async fn carry(
        &mut self,
        outgoing: &mut mpsc::Receiver<Outgoing>,
        state: &tokio::sync::watch::Sender<LinkState>,
        mut attempt: Option<Attempt>,
    ) -> Result<(), Fault> {
        let own = self.nats.subjects.stream();
        let begun = if attempt.is_none() {
            LinkState::Up
        } else {
            LinkState::Degraded(format!("the NATS stream {own} takes no messages yet"))
        };
        set(state, begun);
        let (mut probes, mut pauses) =
            (Backoff::new(FIRST_PROBE, LONGEST_PROBE), Backoff::new(FIRST_PROBE, LONGEST_PAUSE));
        let (mut failed, mut written_since) = (None, Instant::now());
        let mut unanswered = Unanswered::default();
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut listing: Option<Pin<Box<dyn Future<Output = Vec<String>> + Send>>> = None;
        loop {
            let late_at = unanswered.late_at();
            // Nothing else is to wait for the stream.
            if unanswered.len() >= IN_FLIGHT && unanswered.is_late() && attempt.is_none() {
                failed = Some(Fault::absence(format!("the NATS stream {own} acknowledges nothing")));
            }
            if let (Some(fault), None) = (failed.take(), &attempt) {
                self.degrade(state, fault);
                if written_since.elapsed() >= STEADY {
                    pauses.reset();
                }
                probes.reset();
                attempt = Some(self.attempt(pauses.wait()));
            }
            tokio::select! {
                event = self.events.recv() => {
                    let fault = event.map_or_else(|| Some(lost(&self.server)), |event| fault_of(&event, self.nats, &self.wanted, &self.server));
                    if let Some(fault) = fault {
                        return Err(fault);
                    }
                }
                Some(answer) = unanswered.next(), if !unanswered.is_empty() => {
                    if let Err(fault) = answer {
                        self.send_late(&mut unanswered).await?;
                        failed = Some(fault);
                    }
                }
                Some(written) = async { Some(attempt.as_mut()?.await) }, if attempt.is_some() => match written {
                    Ok(()) => {
                        attempt = None;
                        unanswered.clear();
                        written_since = Instant::now();
                        self.read_all(vec![own.clone()]);
                        set(state, LinkState::Up);
                    }
                    Err(fault) => {
                        self.degrade(state, fault);
                        attempt = Some(self.attempt(probes.wait()));
                    }
                },
                () = sleep_until(late_at.unwrap_or_else(Instant::now)), if late_at.is_some() => {
                    self.send_late(&mut unanswered).await?;
                }
                _ = look.tick(), if listing.is_none() => {
                    listing = Some(streams(self.context.clone(), self.nats.subjects.stream_prefix()).boxed());
                }
                names = async { Some(listing.as_mut()?.await) }, if listing.is_some() => {
                    listing = None;
                    self.read_all(names.unwrap_or_default());
                }
                Some(gone) = self.readers.join_next(), if !self.readers.is_empty() => {
                    self.read.remove(&gone.unwrap_or_default());
                }
                message = outgoing.recv(), if attempt.is_some() || unanswered.len() < IN_FLIGHT => match message {
                    None => {
                        self.finish(unanswered).await;
                        return Ok(());
                    }
                    Some(message) => self.send(message, attempt.is_none(), &mut unanswered).await?,
                },
            }
        }
    }

    /// Sends a message. One for the stream goes to those who are here where the stream is late or takes nothing; what it does not keep comes
    /// again when it does.
    async fn send(&self, message: Outgoing, is_kept: bool, unanswered: &mut Unanswered) -> Result<(), Fault> {
        let Outgoing { topic, to, payload } = message;
        let subjects = &self.nats.subjects;
        if !topic.is_kept() {
            return self.send_now(subjects.own_to(topic, to), payload).await;
        }
        let is_late = !is_kept || unanswered.is_late();
        if is_late {
            self.send_now(subjects.own(Topic::Open), payload.clone()).await?;
        }
        if is_kept {
            let copy = (!is_late).then(|| payload.clone());
            let sent = self.context.publish(subjects.own_to(topic, to), payload.into()).await;
            let (sent, stream) = (sent.map_err(|_| lost(&self.server))?, self.wanted.name.clone());
            unanswered.push(copy, async move { sent.await.map(drop).map_err(|error| refused(&stream, &error)) });
        }
        Ok(())
    }

    /// Only the stream is away, for this reason.
    fn degrade(&self, state: &tokio::sync::watch::Sender<LinkState>, fault: Fault) {
        if !fault.is_absence {
            self.nats.say_once(&fault.sentence);
        }
        set(state, LinkState::Degraded(fault.sentence));
    }

    /// Sends without the stream what waits for its acknowledgement and was not sent so yet.
    async fn send_late(&self, unanswered: &mut Unanswered) -> Result<(), Fault> {
        for payload in unanswered.take_late() {
            self.send_now(self.nats.subjects.own(Topic::Open), payload).await?;
        }
        Ok(())
    }

    /// Publishes what no stream keeps.
    async fn send_now(&self, subject: String, payload: Vec<u8>) -> Result<(), Fault> {
        let sent = timeout(ANSWER_WITHIN, self.client.publish(subject, payload.into())).await;
        sent.map_err(|_| lost(&self.server))?.map_err(|_| lost(&self.server))
    }

    /// What was sent last is to arrive, if that does not take long.
    async fn finish(&self, mut unanswered: Unanswered) {
        let last = async {
            // Those who are here do not need the stream for it, which may have no leader.
            self.send_late(&mut unanswered).await.ok();
            unanswered.all().await;
            self.client.flush().await
        };
        if !timeout(LAST_WORDS, last).await.is_ok_and(|flushed| flushed.is_ok()) {
            tracing::debug!("the last messages to NATS may not have arrived");
        }
    }

    /// Tries once to write to the stream, after `wait`.
    fn attempt(&self, wait: Duration) -> Attempt {
        let (context, client, wanted, nats) =
            (self.context.clone(), self.client.clone(), self.wanted.clone(), self.nats.clone());
        async move {
            sleep(wait).await;
            stream::ensure(&context, &wanted).await?;
            probe(&client, &context, &nats).await
        }
        .boxed()
    }

    fn read_all(&mut self, streams: Vec<String>) {
        for stream in streams {
            if self.read.insert(stream.clone()) {
                self.readers.spawn(reader(self.nats, &self.context, stream, &self.inbox, &self.positions).run());
            }
        }
    }
}

fn reader(nats: &Nats, context: &Context, stream: String, inbox: &Inbox, positions: &Positions) -> Reader {
    Reader::new(context.clone(), stream, inbox.clone(), nats.config.window, Arc::clone(positions))
}

/// Has everything heard that is published and kept nowhere.
async fn hear_all(
    nats: &Nats,
    client: &Client,
    server: &str,
    inbox: &Inbox,
    readers: &mut JoinSet<String>,
) -> Result<(), Fault> {
    let plain = [Topic::Open, Topic::Member, Topic::Halves].map(|topic| nats.subjects.everybody(topic));
    for subject in plain.into_iter().chain([nats.subjects.inbox()]) {
        let subscriber = client.subscribe(subject).await.map_err(|_| lost(server))?;
        readers.spawn(hear(subscriber, inbox.clone()));
    }
    Ok(())
}

/// Hands over what is published and kept nowhere. Named as no stream is.
async fn hear(mut subscriber: async_nats::Subscriber, inbox: Inbox) -> String {
    while let Some(message) = subscriber.next().await {
        if inbox.take(message).await.is_err() {
            break;
        }
    }
    String::new()
}

/// All sites' streams.
async fn streams(context: Context, prefix: String) -> Vec<String> {
    let names: Result<Vec<String>, _> = context.stream_names().try_collect().await;
    match names {
        Ok(names) => names.into_iter().filter(|name| name.starts_with(&prefix)).collect(),
        Err(error) => {
            tracing::debug!(%error, "cannot list NATS streams");
            Vec::new()
        }
    }
}

/// Writes nothing to each subject, and waits for the stream to acknowledge its own.
async fn probe(client: &Client, context: &Context, nats: &Nats) -> Result<(), Fault> {
    let stream = nats.subjects.stream();
    let tried = async {
        for topic in [Topic::Open, Topic::Member, Topic::Host, Topic::Halves] {
            client
                .publish(nats.subjects.own(topic), Vec::new().into())
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
            Some(right.unwrap_or_else(|| Fault::absence(format!("NATS server {server} says: {message}"))))
        }
        Event::ServerError(ServerError::AuthorizationViolation) => {
            Some(Fault::of(format!("NATS server {server} does not take the login any more: make both the same")))
        }
        Event::SlowConsumer(_) => {
            nats.say_once("messages of other gateways come faster than they are read; those about open buckets are lost meanwhile");
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
}
