//! Reports this host's connections to the gateway, and of announced starts (`docs/explain/definitions.md`, "Push").
//!
//! The ways that cannot see connections report none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use spand_proto::contract::HostName;
use spand_proto::report::{ConnectionReport, MAX_CONNECTIONS, PushCount, Report};
use spand_proto::units::{Micros, Timestamp};
use spand_proto::v1;
use spand_proto::v1::spand_client::SpandClient;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::Code;
use tonic::transport::Channel;
use tracing::{debug, warn};

use super::{Dialer, words};
use crate::apply::Ended;
use crate::clock::Clock;
use crate::pause::Pausing;

/// Time between two reports, at least, but for what is urgent.
const INTERVAL: Duration = Duration::from_secs(10);

/// Connections of the kernel, and of applications, that wait for a gateway that does not answer. Further ones stay in the queues before,
/// whose writer counts what finds no room.
const MOST_WAITING: usize = 16 * MAX_CONNECTIONS;

/// Reports counts as they grow and connections as they end.
#[derive(Debug)]
pub struct Reporter {
    dialer: Arc<Dialer>,
    /// The connection and where it leads, for as long as it works and this host is subscribed there.
    client: Option<(usize, SpandClient<Channel>)>,
    /// The gateway that pauses are reported to.
    pauses_to: usize,
    host_name: HostName,
    agent_started: Timestamp,
    batch: u64,
    /// What the gateway knows.
    reported: PushCount,
    /// A batch without an answer: it is sent again as it was, so that the gateway recognises it.
    unanswered: Option<(Report, PushCount)>,
    /// The kernel's connections, which are reported first, and those of applications: these may be as many as one likes to send.
    waiting: [VecDeque<Ended>; 2],
    unheard: Unheard,
    pause: Option<PauseWatch>,
}

/// Whether advice is paused, and what the gateway knows of it.
#[derive(Debug)]
struct PauseWatch {
    clock: Clock,
    now: watch::Receiver<Pausing>,
    reported: Option<Pausing>,
}

/// Whether the gateway refuses reports.
#[derive(Debug, Default)]
struct Unheard(bool);

impl Unheard {
    /// After a receipt; whether it is time to say so, which is once. A report that was sent before may be known already.
    fn is_news(&mut self, fresh: bool, reported: usize, accepted: u32) -> bool {
        if reported == 0 || (accepted == 0 && !fresh) {
            return false;
        }
        let before = std::mem::replace(&mut self.0, accepted == 0);
        self.0 && !before
    }
}

impl Reporter {
    /// A reporter of the agent that started at this moment.
    pub fn new(dialer: Arc<Dialer>, host_name: HostName, agent_started: Timestamp) -> Self {
        let reported = PushCount::default();
        let pauses_to = dialer.seat();
        Self {
            dialer,
            client: None,
            pauses_to,
            host_name,
            agent_started,
            batch: 0,
            reported,
            unanswered: None,
            waiting: Default::default(),
            unheard: Unheard::default(),
            pause: None,
        }
    }

    /// Reports pauses too, at once when they change. The subscription sends the current state.
    #[must_use]
    pub fn with_pause(self, clock: Clock, mut now: watch::Receiver<Pausing>) -> Self {
        let reported = Some(*now.borrow_and_update());
        Self { pause: Some(PauseWatch { clock, now, reported }), ..self }
    }

    /// Reports until the sender of the kernel's connections goes away.
    pub async fn run(
        mut self,
        counts: watch::Receiver<PushCount>,
        mut ended: mpsc::Receiver<Ended>,
        mut of_applications: mpsc::Receiver<Ended>,
    ) {
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                connection = ended.recv(), if self.waiting[0].len() < MOST_WAITING => match connection {
                    Some(connection) if !self.wait(0, connection) => continue,
                    Some(_) => {}
                    None => return,
                },
                Some(connection) = of_applications.recv(), if self.waiting[1].len() < MOST_WAITING => {
                    if !self.wait(1, connection) {
                        continue;
                    }
                }
                () = changed(self.pause.as_mut()) => {}
                _ = tick.tick() => {}
            }
            let now = *counts.borrow();
            self.follow_the_seat();
            // An unanswered batch is sent before anything new; a full batch is followed by the next one.
            while self.unanswered.is_some()
                || self.waiting.iter().any(|waiting| !waiting.is_empty())
                || now != self.reported
                || self.has_news_of_pause()
            {
                if !self.send_batch(now).await {
                    break;
                }
                // However many batches of applications follow, the kernel's connections have room.
                while self.waiting[0].len() < MOST_WAITING
                    && let Ok(connection) = ended.try_recv()
                {
                    self.waiting[0].push_back(connection);
                }
            }
        }
    }

    /// Has a connection wait for the next batch; whether it is time to send one.
    fn wait(&mut self, queue: usize, connection: Ended) -> bool {
        let Some(waiting) = self.waiting.get_mut(queue) else { return false };
        // Once for a full batch: a gateway that does not answer is not asked for each connection.
        let now = connection.urgent || waiting.len() + 1 == MAX_CONNECTIONS;
        waiting.push_back(connection);
        now
    }

    fn has_news_of_pause(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| Some(*pause.now.borrow()) != pause.reported)
    }

    /// Reports go to the gateway that this host is subscribed to, else to the one that it prefers.
    fn follow_the_seat(&mut self) {
        let seat = self.dialer.seat();
        if self.client.as_ref().is_some_and(|(at, _)| *at != seat) {
            self.client = None;
        }
        if std::mem::replace(&mut self.pauses_to, seat) != seat
            && let Some(pause) = &mut self.pause
        {
            // It may have changed between the subscription and its taking effect.
            pause.reported = None;
        }
    }

    /// Whether the gateway answered.
    async fn send_batch(&mut self, now: PushCount) -> bool {
        let again = self.unanswered.take();
        let fresh = again.is_none();
        let (report, total) = again.unwrap_or_else(|| self.next_batch(now));
        match self.send(&report).await {
            Ok(accepted) => {
                if let Some(accepted) = accepted
                    && self.unheard.is_news(fresh, report.connections.len(), accepted)
                {
                    warn!(
                        connections = report.connections.len(),
                        "the gateway takes none of the connections that this host reports: it knows none of their networks, or \
                         takes their addresses for another host's; see `addresses` in the configuration"
                    );
                }
                self.reported = total;
                true
            }
            Err(error) => {
                debug!(%error, batch = report.batch, "report not sent");
                self.unanswered = Some((report, total));
                false
            }
        }
    }

    fn next_batch(&mut self, now: PushCount) -> (Report, PushCount) {
        self.batch += 1;
        let pushes = PushCount {
            received: now.received.saturating_sub(self.reported.received),
            in_time: now.in_time.saturating_sub(self.reported.in_time),
            late: now.late.saturating_sub(self.reported.late),
            unmatched: now.unmatched.saturating_sub(self.reported.unmatched),
        };
        let pause = self.pause.as_mut().map(|pause| {
            // A batch is sent until it is answered, so this arrives.
            let now = *pause.now.borrow();
            pause.reported = Some(now);
            now.state(pause.clock.now())
        });
        let [kernels, of_applications] = &mut self.waiting;
        let first = kernels.len().min(MAX_CONNECTIONS);
        let rest = of_applications.len().min(MAX_CONNECTIONS - first);
        let connections = kernels.drain(..first).chain(of_applications.drain(..rest)).map(aged).collect();
        let report = Report {
            host_name: self.host_name.clone(),
            batch: self.batch,
            agent_started: self.agent_started,
            connections,
            pushes,
            pause,
        };
        (report, now)
    }

    /// How many connections the gateway took; `None` where it refused the report.
    async fn send(&mut self, report: &Report) -> Result<Option<u32>, String> {
        let timeout = Duration::from_millis(self.dialer.gateway().timeout_ms.get());
        // Kept where it works: with TLS a connection costs both sides a handshake.
        let kept = self.client.take();
        let sent = tokio::time::timeout(timeout, async {
            let (at, mut client) = if let Some(kept) = kept {
                kept
            } else {
                let seat = self.dialer.seat();
                (seat, self.dialer.connect_to(seat).await?)
            };
            match client.report(v1::ReportRequest::from(report)).await {
                Ok(receipt) => Ok(((at, client), Some(receipt.into_inner().accepted))),
                // The same again would be refused again, and hold up all that follows.
                Err(status) if is_final(status.code()) => {
                    warn!(batch = report.batch, "the gateway refused a report: {}", status.message());
                    Ok(((at, client), None))
                }
                Err(status) => Err(words(&status)),
            }
        });
        let (client, accepted) = sent.await.map_err(|_| "no answer in time".to_owned())??;
        self.client = Some(client);
        Ok(accepted)
    }
}

/// Waits for a change of whether advice is paused.
async fn changed(pause: Option<&mut PauseWatch>) {
    let changed = match pause {
        Some(pause) => pause.now.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// Whether a refusal is about what was sent, not about when.
const fn is_final(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange)
}

/// With its age now.
fn aged(ended: Ended) -> ConnectionReport {
    let age = Instant::now().saturating_duration_since(ended.at).as_micros();
    ConnectionReport { ended_ago: Micros(u64::try_from(age).unwrap_or(u64::MAX)), ..ended.report }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use spand_proto::report::Transport;
    use spand_proto::units::{Bytes, Segments};

    use super::*;
    use crate::config::Config;

    fn ended(transport: Transport) -> Ended {
        let report = ConnectionReport {
            host: "203.0.113.10:443".parse().unwrap(),
            remote: "192.0.2.1:443".parse().unwrap(),
            ended_ago: Micros(0),
            duration: None,
            end_window: None,
            mss: None,
            srtt: None,
            rtt_min: None,
            acknowledged: Bytes(1),
            retransmitted: Segments(0),
            first_flight_loss: None,
            first_flight: None,
            limited_by: None,
            arm: None,
            advised: None,
            refusal: None,
            paused: false,
            transport,
            loss_window: None,
            congestion_events: 0,
            ended_in_slow_start: None,
            careful_resume: None,
        };
        Ended { report, at: Instant::now(), urgent: false }
    }

    #[tokio::test]
    async fn the_kernels_connections_have_room_and_come_first_however_many_applications_report() {
        let text = "[gateway]\nurl = \"http://127.0.0.1:1\"";
        let dialer = Arc::new(Dialer::new(&Config::parse(text, Path::new("agent.toml")).unwrap()).unwrap());
        let name = HostName::try_from("web-1".to_owned()).unwrap();
        let mut reporter = Reporter::new(Arc::clone(&dialer), name.clone(), Timestamp::default());
        let quic = || ended(Transport::Quic);
        while reporter.waiting[1].len() < MOST_WAITING {
            reporter.wait(1, quic());
        }
        assert!((0..3).all(|_| !reporter.wait(0, ended(Transport::Tcp))));
        let first = reporter.next_batch(PushCount::default()).0.connections;
        let of_kernel = first.iter().map(|report| report.transport == Transport::Tcp);
        assert_eq!(of_kernel.collect::<Vec<_>>(), (0..MAX_CONNECTIONS).map(|n| n < 3).collect::<Vec<_>>());

        // No gateway answers.
        let reporter = Reporter::new(dialer, name, Timestamp::default());
        let (count, counts) = watch::channel(PushCount::default());
        let (kernel, kernels) = mpsc::channel(64);
        let (application, of_applications) = mpsc::channel(64);
        let run = tokio::spawn(reporter.run(counts, kernels, of_applications));
        let (mut lost, mut flooded) = (0, 0);
        for _ in 0..1_000 {
            while application.try_send(quic()).is_ok() {
                flooded += 1;
            }
            let sent = tokio::time::timeout(Duration::from_secs(20), kernel.send(ended(Transport::Tcp))).await;
            lost += u32::from(!sent.is_ok_and(|sent| sent.is_ok()));
            tokio::task::yield_now().await;
        }
        assert_eq!(lost, 0);
        assert!(flooded >= 64);
        drop((kernel, count));
        run.await.unwrap();
    }

    #[test]
    fn a_gateway_that_takes_nothing_is_named_once_until_it_takes_something() {
        let mut unheard = Unheard::default();
        let receipts = [
            ((true, 0, 0), false, "counts alone"),
            ((false, 3, 0), false, "known already"),
            ((true, 3, 0), true, "none of three"),
            ((true, 3, 0), false, "reported"),
            ((true, 3, 1), false, "one of three"),
            ((true, 3, 0), true, "none again"),
        ];
        for ((fresh, reported, accepted), news, what) in receipts {
            assert_eq!(unheard.is_news(fresh, reported, accepted), news, "{what}");
        }
    }
}
