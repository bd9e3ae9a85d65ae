//! A gateway that sends what a test sets.

use std::net::SocketAddr;
use std::time::Duration;

use spand_proto::contract::ContractVersion;
use spand_proto::convert::answers_to_wire;
use spand_proto::estimate::{Confidence, Estimate, RuleKind};
use spand_proto::push::{Endpoint, EstimateUpdate, ImminentStart, Trigger, Update, UpdateEvent, WithdrawalReason};
use spand_proto::query::{Advice, Answer, Query, Question};
use spand_proto::report::{Report, ReportReceipt};
use spand_proto::start::{RefusalReason, StartPolicy, StartRequest, start};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp, Window};
use spand_proto::v1;
use spand_proto::v1::spand_server::{Spand, SpandServer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};

use super::agent::Agent;
use super::namespace::{awaited, eventually};

/// The reason that it gives where it has no estimate: none of the agent's own.
pub(crate) const NO_ESTIMATE: &str = "39 transfers seen, 34 losses in slow start: no sample";

/// The moment that all estimates here are about.
pub(crate) const NOW: Timestamp = Timestamp(1_000_000_000_000_000_000);

/// A gateway; it is gone when this is dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    reports: mpsc::Receiver<Report>,
    streams: mpsc::Receiver<Stream>,
    server: JoinHandle<()>,
}

/// A subscription as the gateway sees it.
pub(crate) struct Stream {
    pub(crate) request: v1::SubscribeRequest,
    updates: mpsc::Sender<Result<v1::Update, Status>>,
    sequence: u64,
}

struct Service {
    streams: mpsc::Sender<Stream>,
    reports: mpsc::Sender<Report>,
}

#[tonic::async_trait]
impl Spand for Service {
    type SubscribeStream = ReceiverStream<Result<v1::Update, Status>>;

    async fn query(&self, request: Request<v1::QueryRequest>) -> Result<Response<v1::QueryResponse>, Status> {
        let query = Query::try_from(request.into_inner()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let answers: Vec<Answer> = query.questions.iter().map(|question| answer(&query, question)).collect();
        Ok(Response::new(answers_to_wire(&answers, NOW)))
    }

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        // Small, so that a slow reader is noticed.
        let (updates, outgoing) = mpsc::channel(4);
        let stream = Stream { request: request.into_inner(), updates, sequence: 0 };
        self.streams.send(stream).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let report = Report::try_from(request.into_inner()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let receipt = ReportReceipt { accepted: 0, ignored: 0 };
        self.reports.send(report).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(receipt.into()))
    }
}

impl Gateway {
    /// A gateway at a free port.
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    /// A gateway at this address.
    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        // Tests run side by side: another may hold the port of a gateway that was stopped for a moment.
        let listener = awaited("the port", async {
            loop {
                match TcpListener::bind(address).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        })
        .await;
        let address = listener.local_addr().unwrap();
        let (sender, streams) = mpsc::channel(16);
        let (reporter, reports) = mpsc::channel(16);
        let server = tokio::spawn(async move {
            tonic::transport::Server::builder()
                .add_service(SpandServer::new(Service { streams: sender, reports: reporter }))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        Self { address, reports, streams, server }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it, with every stream.
    pub(crate) fn stop(&self) {
        self.server.abort();
    }

    /// The next subscription.
    pub(crate) async fn subscribed(&mut self) -> Stream {
        awaited("the agent subscribes", self.streams.recv()).await.expect("the gateway runs")
    }

    /// The next report.
    pub(crate) async fn reported(&mut self) -> Report {
        awaited("the agent reports", self.reports.recv()).await.expect("the gateway runs")
    }

    /// The next subscription, after a snapshot of these.
    pub(crate) async fn snapshot(&mut self, estimates: &[EstimateUpdate]) -> Stream {
        let mut stream = self.subscribed().await;
        stream.snapshot(estimates).await;
        stream
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Stream {
    pub(crate) async fn send(&mut self, event: UpdateEvent) {
        self.send_changed(event, |_| ()).await;
    }

    /// An estimate of N segments for a network.
    pub(crate) async fn advise(&mut self, network: &str, share: u32, lifetime_s: u64) {
        self.send(UpdateEvent::Estimate(estimate(network, share, lifetime_s))).await;
    }

    pub(crate) async fn withdraw(&mut self, network: &str) {
        let reason = WithdrawalReason::Retreat;
        self.send(UpdateEvent::Withdrawal { network: network.parse().unwrap(), reason }).await;
    }

    /// Until the agent has ended it.
    pub(crate) async fn closed(&self) {
        awaited("the agent ends the stream", self.updates.closed()).await;
    }

    /// An estimate by a rule that only a newer release knows.
    pub(crate) async fn send_newer_rule(&mut self, network: &str) {
        self.send_changed(UpdateEvent::Estimate(estimate(network, 40, 60)), |event| {
            let v1::update::Event::Estimate(update) = event else { unreachable!() };
            update.estimate.as_mut().unwrap().rule = "oracle".to_owned();
        })
        .await;
    }

    /// An estimate of 40 segments for a network that is written like this, or its withdrawal.
    pub(crate) async fn send_written(&mut self, network: &str, is_withdrawn: bool) {
        let (any, reason) = ("192.0.2.0/24", WithdrawalReason::Retreat);
        let event = if is_withdrawn {
            UpdateEvent::Withdrawal { network: any.parse().unwrap(), reason }
        } else {
            UpdateEvent::Estimate(estimate(any, 40, 60))
        };
        self.send_changed(event, |event| match event {
            v1::update::Event::Estimate(update) => update.estimate.as_mut().unwrap().network = network.to_owned(),
            v1::update::Event::Withdrawal(withdrawal) => withdrawal.network = network.to_owned(),
            other => panic!("no network in {other:?}"),
        })
        .await;
    }

    async fn send_changed(&mut self, event: UpdateEvent, change: impl FnOnce(&mut v1::update::Event)) {
        self.sequence += 1;
        let mut message = Update { sequence: self.sequence, event }.to_wire(NOW);
        change(message.event.as_mut().unwrap());
        self.updates.send(Ok(message)).await.expect("the agent listens");
    }

    /// Skips numbers, as a gateway that dropped updates.
    pub(crate) fn skip(&mut self, updates: u64) {
        self.sequence += updates;
    }

    pub(crate) async fn snapshot(&mut self, estimates: &[EstimateUpdate]) {
        let networks = u32::try_from(estimates.len()).unwrap();
        self.send(UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks, cluster: None }).await;
        for estimate in estimates {
            self.send(UpdateEvent::Estimate(estimate.clone())).await;
        }
        self.send(UpdateEvent::SnapshotEnd { networks }).await;
    }
}

/// An estimate of `share` segments for `network` that lives for `lifetime_s`.
pub(crate) fn estimate(network: &str, share: u32, lifetime_s: u64) -> EstimateUpdate {
    let share = Window::from_segments(Segments(share), Bytes(1_448));
    EstimateUpdate {
        estimate: Estimate {
            rtt_min: Some(Micros::from_millis(80)),
            rtt_mean: Some(Micros::from_millis(100)),
            loss_window: None,
            confidence: Confidence::new(0.5),
            rule: RuleKind::Probe,
            ..spand_proto::made_up::estimate(network.parse().unwrap(), share, NOW)
        },
        lifetime: Micros::from_secs(lifetime_s),
        lease: None,
    }
}

/// What this gateway knows of 192.0.2.0/24, and of nothing else.
fn answer(query: &Query, question: &Question) -> Answer {
    let known = estimate("192.0.2.0/24", 40, 60).estimate;
    let known = Some(known).filter(|estimate| estimate.network.contains(question.address));
    let request = StartRequest {
        estimate: known.as_ref(),
        now: NOW,
        size: question.size,
        mss: question.mss.unwrap_or(Bytes(1_448)),
        snd_wnd: question.snd_wnd,
        handshake_rtt: question.handshake_rtt,
        initial_window: query.initial_window,
        budget: None,
    };
    let mut advice = start(&request, &StartPolicy::of(query.mode.unwrap_or_default())).into();
    if let Advice::Refused { reason: RefusalReason::NoEstimate, message } = &mut advice {
        NO_ESTIMATE.clone_into(message);
    }
    Answer { address: question.address, estimate: known, lifetime: Micros::from_secs(60), advice }
}

/// A SYN from `remote` in `network`, whose estimate is 44 segments now.
pub(crate) fn announced(network: &str, remote: &str) -> UpdateEvent {
    announced_after(Micros(300), network, remote)
}

/// The same, sent later than the network's smallest round trip after the SYN.
pub(crate) fn announced_late(network: &str, remote: &str) -> UpdateEvent {
    announced_after(Micros::from_millis(90), network, remote)
}

fn announced_after(delay: Micros, network: &str, remote: &str) -> UpdateEvent {
    UpdateEvent::ImminentStart(ImminentStart {
        host: Endpoint { address: "10.1.0.2".parse().unwrap(), port: Some(443) },
        remote: Endpoint { address: remote.parse().unwrap(), port: Some(50_000) },
        trigger: Trigger::PassiveOpen,
        observed: NOW,
        delay,
        estimate: estimate(network, 44, 60),
    })
}

/// How a gateway writes a network, the addresses that it covers, and whether it shares one with a prefix of `[destinations]`.
pub(crate) type Written = (&'static str, &'static [&'static str], bool);

/// Holds the kernel's windows and `explain` against the policy, for each network as it is written and each of three addresses.
/// `named`: the window in the prefix of `[destinations]`, if there is one; `granted`: the window elsewhere, and the MSS.
pub(crate) async fn hold(
    mode: &str,
    (agent, stream): (&Agent, &mut Stream),
    written: &[Written],
    addresses: [&str; 3],
    named: Option<u32>,
    granted: impl Fn(&str) -> (u32, &'static str),
    windows: impl Fn(&str) -> Vec<u32>,
) {
    for (index, (written, covered, overlaps)) in written.iter().enumerate() {
        stream.send_written(written, false).await;
        // The network after it shows when it is known.
        let marker = format!("198.51.{index}.0/24");
        stream.advise(&marker, 40, 60).await;
        let is_marker = |one: &serde_json::Value| one["prefix"] == marker;
        eventually(written, || agent.status()["in_force"].as_array().unwrap().iter().any(is_marker)).await;
        for address in addresses {
            let (granted, mss) = granted(address);
            let start = if *overlaps { named } else { Some(granted) }.filter(|_| covered.contains(&address));
            let window = start.unwrap_or(10);
            let found = windows(address);
            assert!(
                found.iter().all(|found| *found == window),
                "{mode}: {address} with {written}: {found:?}, not {window} ({named:?})"
            );
            let explained = agent.json(&["explain", "--json", address, "--mss", mss]);
            let found = (explained["on_advice"].as_bool(), explained["cwnd_segments"].as_u64());
            let expected = (Some(start.is_some()), Some(u64::from(window)));
            assert_eq!(found, expected, "{mode}: explain {address} with {written}: {explained}");
        }
        stream.send_written(written, true).await;
    }
}

/// A gateway, an agent of it, and its subscription after a snapshot of these.
pub(crate) async fn advised(top: &str, sections: &str, estimates: &[EstimateUpdate]) -> (Gateway, Agent, Stream) {
    let mut gateway = Gateway::start().await;
    let agent = Agent::start(&gateway, top, sections);
    let stream = gateway.snapshot(estimates).await;
    (gateway, agent, stream)
}
