//! The socket for applications, served by a thread of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::unistd::{Gid, Group, chown};
use spand_advice::{
    Answer, Asked, Ended, MOST_LINE_BYTES, MOST_MSS_BYTES, Question, Started, ToAgent, ToApplication, VERSION,
};
use spand_proto::network::Network;
use spand_proto::operator::Failure;
use spand_proto::units::Timestamp;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, UCred};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};
use tracing::{debug, error, info, warn};

use super::desk::{Desks, started};
use super::{Heard, Offers};
use crate::clock::Clock;
use crate::config::Applications as Limits;
use crate::control::bind;

/// Time that an application has for its first line, and to take a line.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often an application is sent a sign of life.
const ALIVE: Duration = Duration::from_secs(1);
/// Starts of a user's connections to the socket that wait for their reports. Each connection has an equal part; at its limit the oldest
/// start goes, and what it reserved is free again.
const MOST_STARTS: usize = 16_384;
/// How long the desk of single starts watches a network that none is asked for, at least; at most twice as long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Longest name of an application, in characters.
const MOST_NAME: usize = 64;

/// The thread; it ends, and the socket is removed, when this is dropped.
#[derive(Debug)]
pub struct ApplicationServer {
    path: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Where what applications bring goes.
pub(super) type Way = (Arc<Offers>, mpsc::Sender<Heard>);

impl ApplicationServer {
    /// Listens at `path`.
    pub(super) fn start(path: &Path, limits: &Limits, way: Way, clock: Clock) -> Result<Self, Failure> {
        let fault = |error: io::Error| {
            Failure::Environment(format!("applications.socket: cannot listen at {}: {error}", path.display()))
        };
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(Failure::Environment(format!(
                "applications.socket: another agent already listens at {}: give each agent its own socket",
                path.display()
            )));
        }
        let listener = bind(path).map_err(fault)?;
        if !limits.group.is_empty() {
            let group = group(&limits.group)?;
            chown(path, None, Some(group)).map_err(|error| {
                Failure::Environment(format!(
                    "applications.group: cannot give {} to the group `{}`: {error}; the agent's user must be a member of it",
                    path.display(),
                    limits.group
                ))
            })?;
        }
        let (stop, stopped) = oneshot::channel();
        let limits = limits.clone();
        let thread = thread::Builder::new()
            .name("applications".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let served = runtime.and_then(|runtime| {
                    runtime.block_on(async {
                        tokio::select! {
                            served = accept(listener, limits, way, clock) => served,
                            _ = stopped => Ok(()),
                        }
                    })
                });
                if let Err(error) = served {
                    error!(%error, "applications get no advice: the socket cannot be served");
                }
            })
            .map_err(Failure::environment)?;
        Ok(Self { path: path.to_owned(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ApplicationServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It logs its own errors.
            drop(thread.join());
        }
        // A leftover is replaced by the next start.
        _ = fs::remove_file(&self.path);
    }
}

fn group(name: &str) -> Result<Gid, Failure> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(Failure::Environment(format!("applications.group: this machine has no group `{name}`"))),
        Err(error) => Err(Failure::Environment(format!("applications.group: cannot look up `{name}`: {error}"))),
    }
}

async fn accept(listener: StdListener, limits: Limits, way: Way, clock: Clock) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let desks = Desks::new(limits.networks, way.clone());
    let mut forget = interval_at(Instant::now() + FORGOTTEN_AFTER, FORGOTTEN_AFTER);
    forget.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = forget.tick() => {
                desks.forget(clock.now());
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: they come back.
                debug!(%error, "cannot accept an application");
                tokio::time::sleep(PATIENCE).await;
                continue;
            }
        };
        let Ok(peer) = stream.peer_cred() else { continue };
        if let Err(why) = way.0.admit(peer.uid(), limits.connections) {
            tokio::spawn(refuse(stream, why));
            continue;
        }
        let place = Place { way: way.clone(), desks: desks.clone(), uid: peer.uid() };
        tokio::spawn(async move {
            let served = serve(stream, peer, &place, clock).await;
            debug!(?served, "an application disconnected");
        });
    }
}

/// The place of a connection.
struct Place {
    way: Way,
    desks: Desks,
    uid: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.way.0.dismiss(self.uid) {
            self.desks.close(self.uid);
        }
    }
}

async fn refuse(mut stream: UnixStream, why: String) {
    if let Some(line) = line(&ToApplication::Error(why)) {
        // It may be gone already.
        drop(timeout(PATIENCE, stream.write_all(&line)).await);
    }
}

fn line(message: &ToApplication) -> Option<Vec<u8>> {
    let mut bytes = serde_json::to_vec(message).ok()?;
    bytes.push(b'\n');
    Some(bytes)
}

/// One application, from its first line to its last.
async fn serve(stream: UnixStream, peer: UCred, place: &Place, clock: Clock) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let hello = in_time(next(&mut reader)).await?;
    let name = match hello {
        Some(Ok(ToAgent::Hello { version: VERSION, application })) => application,
        Some(Ok(ToAgent::Hello { version, .. })) => {
            return refuse_line(
                &mut writer,
                format!("this agent has version {VERSION} of these messages, not {version}"),
            )
            .await;
        }
        Some(Ok(_)) => return refuse_line(&mut writer, "the first line must be hello".to_owned()).await,
        Some(Err(why)) => return refuse_line(&mut writer, why).await,
        None => return Ok(()),
    };
    let name: String = name.chars().filter(|c| !c.is_control()).take(MOST_NAME).collect();
    info!(application = name, uid = peer.uid(), pid = peer.pid(), "an application asks for advice");
    let wake = Arc::new(Notify::new());
    let number = place.way.0.join(name, place.uid, Arc::clone(&wake));
    let (lines, read) = mpsc::channel(64);
    // A line is read to its end whatever else happens meanwhile.
    let reads = tokio::spawn(read_all(reader, lines));
    let mut application = Application { number, place, starts: Starts::default(), clock };
    let served = application.run(read, &mut writer, &wake).await;
    reads.abort();
    application.leave();
    served
}

async fn read_all(mut reader: BufReader<OwnedReadHalf>, lines: mpsc::Sender<Result<ToAgent, String>>) {
    while let Ok(Some(line)) = next(&mut reader).await {
        let is_fault = line.is_err();
        if lines.send(line).await.is_err() || is_fault {
            return;
        }
    }
}

/// The next line; `None` at the end.
async fn next(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Result<ToAgent, String>>> {
    let mut line = String::new();
    if reader.take(MOST_LINE_BYTES as u64 + 1).read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    if line.len() > MOST_LINE_BYTES {
        return Ok(Some(Err(format!("a line has at most {MOST_LINE_BYTES} bytes"))));
    }
    Ok(Some(match serde_json::from_str(&line) {
        Ok(ToAgent::Start(Asked { mss_bytes: Some(mss), .. })) if !(1..=MOST_MSS_BYTES).contains(&mss) => {
            Err(format!("start.mss_bytes is {mss}: give 1 to {MOST_MSS_BYTES}, or leave it out"))
        }
        Ok(message) => Ok(message),
        Err(error) => Err(format!("this line is no message: {error}")),
    }))
}

async fn in_time<T>(done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, done).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn write(writer: &mut OwnedWriteHalf, message: &ToApplication) -> io::Result<()> {
    let Some(line) = line(message) else { return Ok(()) };
    in_time(writer.write_all(&line)).await
}

/// Writes a sign of life where the socket has room. An application without a table may not read until it asks again.
pub(super) async fn show_life(writer: &mut OwnedWriteHalf, now: Timestamp) -> io::Result<()> {
    let Some(line) = line(&ToApplication::Alive { now }) else { return Ok(()) };
    match writer.try_write(&line) {
        Ok(written) => in_time(writer.write_all(line.get(written..).unwrap_or_default())).await,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

async fn refuse_line(writer: &mut OwnedWriteHalf, why: String) -> io::Result<()> {
    warn!(why, "an application is refused");
    write(writer, &ToApplication::Error(why)).await
}

/// One that is connected.
struct Application<'a> {
    number: u64,
    place: &'a Place,
    starts: Starts,
    clock: Clock,
}

impl Application<'_> {
    async fn run(
        &mut self,
        mut read: mpsc::Receiver<Result<ToAgent, String>>,
        writer: &mut OwnedWriteHalf,
        wake: &Notify,
    ) -> io::Result<()> {
        let mut alive = interval(ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = read.recv() => match line {
                    Some(Ok(line)) => {
                        if let Some(answer) = self.on_line(&line) {
                            write(writer, &answer).await?;
                        }
                    }
                    Some(Err(why)) => return refuse_line(writer, why).await,
                    None => return Ok(()),
                },
                () = wake.notified() => {
                    for line in self.place.way.0.lines(self.number, self.clock.now()) {
                        write(writer, &line).await?;
                    }
                }
                _ = alive.tick() => show_life(writer, self.clock.now()).await?,
            }
        }
    }

    fn on_line(&mut self, line: &ToAgent) -> Option<ToApplication> {
        match line {
            ToAgent::Hello { .. } => {}
            ToAgent::Watch(address) => {
                let (_, gone) = self.place.way.0.watch(self.number, address.to_canonical(), true);
                self.hear(gone);
            }
            ToAgent::Unwatch(network) => {
                if self.place.way.0.unwatch(self.number, *network) {
                    self.hear([*network]);
                }
            }
            ToAgent::Start(asked) => return Some(ToApplication::Started(self.start(asked))),
            ToAgent::Ended(ended) => self.on_ended(*ended),
        }
        None
    }

    /// Parts of leases changed. At a full queue that follows with the next decision about everything.
    fn hear(&self, changed: impl IntoIterator<Item = Network>) {
        for network in changed {
            drop(self.place.way.1.try_send(Heard::Watched(network)));
        }
    }

    /// Passes a report on, where it is of a start that was given.
    fn report(&self, ended: Option<Ended>) {
        let (offers, heard) = &self.place.way;
        let taken = ended.filter(|_| offers.pay_report(self.place.uid, self.clock.now()));
        let sent = taken.map(|ended| heard.try_send(Heard::Ended(Box::new(ended))).is_ok());
        offers.count(|status| {
            status.reports += 1;
            status.reports_refused += u64::from(sent.is_none());
            status.reports_lost += u64::from(sent == Some(false));
        });
    }

    fn start(&mut self, asked: &Asked) -> Started {
        let question = Question {
            destination: asked.destination,
            local: None,
            bytes: asked.bytes,
            rtt: asked.rtt_us.map(Duration::from_micros),
            mss_bytes: asked.mss_bytes,
            arm: None,
        };
        let desk = self.place.desks.of(self.place.uid);
        let answer = desk.start(&question, self.clock);
        self.place.way.0.count(|status| {
            status.starts += 1;
            status.advised += u64::from(answer.start.is_ok());
        });
        let started = started(asked.id, &answer);
        let most = MOST_STARTS / self.place.way.0.connections_of(self.place.uid).max(1);
        for (question, mut gone) in self.starts.put(asked.id, (question, answer), most) {
            desk.over(&question, &mut gone, None, self.clock);
        }
        started
    }

    fn on_ended(&mut self, ended: Ended) {
        let Some(id) = ended.id else {
            let offers = &self.place.way.0;
            let is_its_own = offers.may_report(self.number, &ended);
            let network = ended.remote.filter(|_| is_its_own).map(|remote| Network::of(remote.ip().to_canonical()));
            self.hear(network.filter(|network| offers.use_part(self.number, *network, self.clock.now())));
            return self.report(is_its_own.then_some(ended));
        };
        let Some(Waiting { question, answer, has_reported, .. }) = self.starts.of.get_mut(&id) else {
            return self.report(None);
        };
        let outcome = ended.outcome;
        let flight = outcome.first_flight_sent_segments.zip(outcome.first_flight_lost_segments);
        self.place.desks.of(self.place.uid).over(question, answer, flight, self.clock);
        let whole = Ended { local: ended.local, ..answer.report(question, &outcome, ended.goes_on) };
        if !ended.goes_on {
            self.starts.take(id);
        } else if flight.is_none_or(|(sent, lost)| lost <= sent / 2) {
            // Released alone: the gateway counts what arrived once, with the connection.
            return;
        } else if std::mem::replace(has_reported, true) {
            return self.report(None);
        }
        self.report(Some(whole));
    }

    fn leave(&mut self) {
        self.hear(self.place.way.0.leave(self.number));
        let starts = std::mem::take(&mut self.starts.of);
        if starts.is_empty() {
            return;
        }
        let desk = self.place.desks.of(self.place.uid);
        for Waiting { question, mut answer, .. } in starts.into_values() {
            desk.over(&question, &mut answer, None, self.clock);
        }
    }
}

/// A start that waits for its report.
struct Waiting {
    turn: u64,
    question: Question,
    answer: Answer,
    /// That its first flight was lost.
    has_reported: bool,
}

/// Starts that wait for their reports, by the application's own numbers.
#[derive(Default)]
pub(super) struct Starts {
    of: BTreeMap<u64, Waiting>,
    /// Their numbers in the order of their starts.
    order: BTreeMap<u64, u64>,
    turn: u64,
}

impl Starts {
    /// Puts a start among at most `most`. Gives those that had to go.
    pub(super) fn put(
        &mut self,
        id: u64,
        (question, answer): (Question, Answer),
        most: usize,
    ) -> Vec<(Question, Answer)> {
        self.turn += 1;
        let mut gone: Vec<_> = self.take(id).into_iter().collect();
        while self.of.len() >= most.max(1)
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            gone.extend(self.take(*oldest));
        }
        self.of.insert(id, Waiting { turn: self.turn, question, answer, has_reported: false });
        self.order.insert(self.turn, id);
        gone
    }

    fn take(&mut self, id: u64) -> Option<(Question, Answer)> {
        let Waiting { turn, question, answer, .. } = self.of.remove(&id)?;
        self.order.remove(&turn);
        Some((question, answer))
    }
}
