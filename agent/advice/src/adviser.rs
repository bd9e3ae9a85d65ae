//! The connection to the agent, and the handles that applications hold. The table answers; two threads keep it current.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use spand_proto::report::Arm;
use spand_proto::units::{Micros, Timestamp};

use crate::message::{MOST_LINE_BYTES, Outcome, SILENCE, ToAgent, ToApplication, VERSION};
use crate::table::{Answer, Counts, Question, Start, Table};
use crate::{Ended, Reason};

/// The most networks that an application watches, unless it sets another limit.
const NETWORKS: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();
/// Lines that wait to be written; a line beyond is lost and counted.
const WAITING: usize = 8_192;
/// Pauses between attempts to reach an agent: the first and the longest. Each failure doubles it.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// An address that no connection has.
const UNSPECIFIED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// How long the agent may take a line.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);

/// Advice for connections of this process. Clones share it; with the last one its threads end.
#[derive(Clone, Debug)]
pub struct Adviser {
    inner: Arc<Inner>,
    _keeper: Arc<Keeper>,
}

/// Ends the threads, once what was reported is written.
#[derive(Debug)]
struct Keeper {
    inner: Arc<Inner>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    socket: PathBuf,
    application: String,
    table: Mutex<Held>,
    /// Signalled whenever the table changes.
    changed: Condvar,
    lines: SyncSender<ToAgent>,
    lost: AtomicU64,
    /// The stream of now.
    stream: Mutex<Option<UnixStream>>,
    stopped: AtomicBool,
}

#[derive(Debug)]
struct Held {
    table: Table,
    /// The agent's clock at a moment of ours.
    clock: (Timestamp, Instant),
}

impl Held {
    fn now(&self) -> Timestamp {
        self.clock.0.after(Micros::from(self.clock.1.elapsed()))
    }
}

impl Adviser {
    /// Keeps a connection to the agent's socket for applications. Returns at once: where no agent is there, starts are plain
    /// until one is. `application` names the process in the agent's log.
    pub fn connect(socket: impl AsRef<Path>, application: &str) -> Self {
        Self::with_limit(socket, application, NETWORKS)
    }

    /// The same for at most `networks` networks; at the limit the one goes that was asked for longest ago.
    pub fn with_limit(socket: impl AsRef<Path>, application: &str, networks: NonZeroUsize) -> Self {
        let (lines, written) = sync_channel(WAITING);
        let held = Held { table: Table::new(networks), clock: (Timestamp::default(), Instant::now()) };
        let inner = Arc::new(Inner {
            socket: socket.as_ref().to_owned(),
            application: application.to_owned(),
            table: Mutex::new(held),
            changed: Condvar::new(),
            lines,
            lost: AtomicU64::new(0),
            stream: Mutex::new(None),
            stopped: AtomicBool::new(false),
        });
        let (reader, writer) = (Arc::clone(&inner), Arc::clone(&inner));
        // Without threads nothing arrives, and every start is plain.
        drop(thread::Builder::new().name("spand-advice".to_owned()).spawn(move || reader.keep()));
        let writer =
            thread::Builder::new().name("spand-advice-w".to_owned()).spawn(move || writer.write(&written)).ok();
        Self { _keeper: Arc::new(Keeper { inner: Arc::clone(&inner), writer }), inner }
    }

    /// How a connection starts. The answer takes microseconds: it waits for no socket, only for another thread's answer.
    pub fn start(&self, question: &Question) -> Connection {
        let answer = {
            let mut held = self.inner.held();
            let now = held.now();
            let answer = held.table.start(question, now);
            // In the order of the answers: another thread's request must not overtake this one's.
            self.inner.ask(&answer);
            answer
        };
        Connection { inner: Arc::clone(&self.inner), question: *question, answer, reported: false }
    }

    /// The same for an application that would rather wait than start plain, no longer than `patience`: for a network that is
    /// not known here yet, the agent's answer takes a fraction of a millisecond.
    pub fn start_within(&self, question: &Question, patience: Duration) -> Connection {
        let until = Instant::now() + patience;
        let mut held = self.inner.held();
        loop {
            let now = held.now();
            let answer = held.table.start(question, now);
            self.inner.ask(&answer);
            let left = until.saturating_duration_since(Instant::now());
            let may_come = matches!(answer.start, Err(Reason::NotKnownYet | Reason::AgentGone));
            if !may_come || left.is_zero() {
                drop(held);
                return Connection { inner: Arc::clone(&self.inner), question: *question, answer, reported: false };
            }
            held = self.inner.changed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether an agent is there.
    pub fn is_ready(&self) -> bool {
        self.inner.held().table.is_ready()
    }

    /// Networks with advice.
    pub fn networks(&self) -> usize {
        self.inner.held().table.len()
    }

    /// What became of questions.
    pub fn counts(&self) -> Counts {
        self.inner.held().table.counts()
    }

    /// Reports and requests that were lost, since the agent did not take them in time.
    pub fn lost(&self) -> u64 {
        self.inner.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.inner.stopped.store(true, Ordering::Relaxed);
        // Wakes the writer. A full queue wakes it as well.
        drop(self.inner.lines.try_send(ToAgent::Watch(UNSPECIFIED)));
        if let Some(writer) = self.writer.take() {
            // It waits no longer than an agent may take a line.
            drop(writer.join());
        }
        self.inner.hang_up();
    }
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, Held> {
        // No code that holds it panics half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, answer: &Answer) {
        if let Some(network) = answer.unwatch {
            self.send(ToAgent::Unwatch(network));
        }
        if let Some(address) = answer.watch {
            self.send(ToAgent::Watch(address));
        }
    }

    fn send(&self, line: ToAgent) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn hang_up(&self) {
        if let Some(stream) = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It may be closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// The reading thread: connects, reads until the agent is silent or gone, and begins again.
    fn keep(&self) {
        let [mut pause, longest] = PAUSES;
        while !self.stopped.load(Ordering::Relaxed) {
            if self.read_one().is_some() {
                pause = PAUSES[0];
            }
            self.hang_up();
            self.held().table.clear();
            self.changed.notify_all();
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(pause);
            pause = longest.min(pause * 2);
        }
    }

    /// One connection to the socket. `None` where the agent sent nothing.
    fn read_one(&self) -> Option<()> {
        let stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(SILENCE)).ok()?;
        stream.set_write_timeout(Some(WRITE_PATIENCE)).ok()?;
        let hello = ToAgent::Hello { version: VERSION, application: self.application.clone() };
        write_line(&stream, &hello)?;
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.try_clone().ok()?);
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        let mut heard = None;
        loop {
            line.clear();
            let read = reader.by_ref().take(MOST_LINE_BYTES as u64 + 1).read_line(&mut line);
            if self.stopped.load(Ordering::Relaxed) || !matches!(read, Ok(1..)) || !line.ends_with('\n') {
                return heard;
            }
            // A newer agent may send lines that this release does not have.
            let Ok(message) = serde_json::from_str(&line) else { continue };
            if let ToApplication::Error(_) = message {
                return heard;
            }
            heard = Some(());
            self.take(message);
        }
    }

    fn take(&self, message: ToApplication) {
        let mut held = self.held();
        match &message {
            ToApplication::Settings(settings) => held.clock = (settings.now, Instant::now()),
            ToApplication::Alive { now } => {
                held.clock = (*now, Instant::now());
                held.table.expire(*now);
            }
            _ => {}
        }
        held.table.take(message);
        drop(held);
        self.changed.notify_all();
    }

    /// The writing thread.
    fn write(&self, lines: &Receiver<ToAgent>) {
        while let Ok(line) = lines.recv() {
            let is_last = self.stopped.load(Ordering::Relaxed);
            if !self.write_one(&line) && is_last {
                return;
            }
            if is_last {
                // What waits is written, where the agent takes it.
                while lines.try_recv().is_ok_and(|line| self.write_one(&line)) {}
                return;
            }
        }
    }

    /// Whether the agent took the line.
    fn write_one(&self, line: &ToAgent) -> bool {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(UnixStream::try_clone);
        let written = stream.and_then(Result::ok).is_some_and(|stream| write_line(&stream, line).is_some());
        if !written {
            // Half a line would spoil the next one.
            self.hang_up();
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

fn write_line(mut stream: &UnixStream, line: &ToAgent) -> Option<()> {
    let mut bytes = serde_json::to_vec(line).ok()?;
    bytes.push(b'\n');
    stream.write_all(&bytes).ok()
}

/// One connection of the application: its start, and the way to report it. A connection that is dropped without a report is in neither arm
/// of the comparison, and its reservation of the network's budget is free again.
#[derive(Debug)]
pub struct Connection {
    inner: Arc<Inner>,
    question: Question,
    answer: Answer,
    reported: bool,
}

impl Connection {
    /// The start, or why it is plain.
    pub const fn start(&self) -> Result<&Start, Reason> {
        match &self.answer.start {
            Ok(start) => Ok(start),
            Err(reason) => Err(*reason),
        }
    }

    /// The first flight is over: all of it was acknowledged, or a packet of it was lost. With the segments that had left by then and
    /// those of them that were lost. One that was lost for the most part is reported at once.
    pub fn first_flight(&mut self, sent_segments: u32, lost_segments: u32) {
        let granted = self.answer.start.is_ok();
        self.over(Some((sent_segments, lost_segments)));
        if granted && lost_segments > sent_segments / 2 {
            let outcome = Outcome {
                first_flight_sent_segments: Some(sent_segments),
                first_flight_lost_segments: Some(lost_segments),
                ..Outcome::default()
            };
            self.send(&outcome, true);
        }
    }

    /// Whether the connection may jump now by Careful Resume (RFC 9959): one connection to a network at a time, while the advice holds.
    pub fn may_resume(&mut self) -> bool {
        let mut held = self.inner.held();
        let now = held.now();
        held.table.may_resume(&mut self.answer, self.question.destination.ip().to_canonical(), now)
    }

    /// Careful Resume is over (RFC 9959): the connection jumped and was validated, did not jump, or retreated.
    pub fn resumed(&mut self, has_retreated: bool) {
        self.inner.held().table.resumed(&mut self.answer, has_retreated);
    }

    /// The connection is over.
    pub fn report(mut self, outcome: &Outcome) {
        self.reported = true;
        self.over(outcome.first_flight_sent_segments.zip(outcome.first_flight_lost_segments));
        self.send(outcome, false);
    }

    fn over(&mut self, flight: Option<(u32, u32)>) {
        let mut held = self.inner.held();
        let now = held.now();
        held.table.over(&mut self.answer, self.question.destination.ip().to_canonical(), flight, now);
    }

    fn send(&self, outcome: &Outcome, goes_on: bool) {
        let ended: Ended = self.answer.report(&self.question, outcome, goes_on);
        self.inner.send(ToAgent::Ended(ended));
    }

    /// Its arm of the comparison, for a connection that asks again.
    pub const fn arm(&self) -> Option<Arm> {
        self.answer.arm
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.reported {
            self.over(None);
        }
    }
}
