//! What one peer's many requests cost: answers that are shared, turns that others have meanwhile, calls that count for several.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::num::{NonZeroU32, NonZeroUsize};
use std::task::Poll;

use spand_core::event::StartImminent;
use spand_core::types::Trigger;
use spand_proto::report::{ConnectionReport, PushCount, Report, Transport};
use spand_proto::units::{Micros, Segments};
use spand_proto::v1;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event as Update;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::Channel;

use super::*;
use crate::api::metrics::ApiLabel;
use crate::api::reports::Reports;
use crate::publisher::Client;

#[tokio::test]
async fn metrics_are_written_down_once_for_all_who_wait() {
    const CONNECTIONS: usize = 20;
    const EACH: usize = 5;
    let rig = Arc::new(Rig::new(ApiConfig::default()).await);
    let mut asked = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let rig = Arc::clone(&rig);
        asked.spawn(async move {
            let more = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(EACH - 1);
            let last = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            rig.send(more + last).await.1
        });
    }
    // The count of requests that were answered before is another in each that was written for one alone.
    let (mut answers, mut different) = (0, BTreeSet::new());
    for text in asked.join_all().await {
        let counts =
            text.lines().filter(|line| line.starts_with("spand_api_requests_total{api=\"http\",endpoint=\"metrics\""));
        different.extend(counts.map(str::to_owned));
        answers += text.matches("# TYPE spand_build_info ").count();
    }
    assert_eq!(answers, CONNECTIONS * EACH);
    // Each connection asks once more when it has an answer.
    assert!(different.len() <= 4 * EACH, "{} of {answers} answers were written for one alone", different.len());
    Arc::into_inner(rig).unwrap().end().await;
}

#[tokio::test]
async fn a_full_report_leaves_others_their_turns() {
    let published = Published::new(PublisherConfig::default(), SetClock(Arc::new(AtomicU64::new(10_000_000_000))));
    published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 20.0))], ..Batch::new() });
    let connection = ConnectionReport {
        host: ([10, 0, 0, 1], 443).into(),
        remote: ([192, 0, 2, 7], 50_000).into(),
        ended_ago: Micros(0),
        duration: None,
        end_window: None,
        mss: None,
        srtt: None,
        rtt_min: None,
        acknowledged: Bytes(30_000),
        retransmitted: Segments(0),
        first_flight_loss: Some(true),
        first_flight: None,
        limited_by: None,
        arm: None,
        advised: Some(Segments(14)),
        refusal: None,
        paused: false,
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: None,
    };
    let report = Report {
        host_name: "web-1".to_owned().try_into().unwrap(),
        batch: 1,
        agent_started: Timestamp(1),
        connections: vec![connection; 1_024],
        pushes: PushCount::default(),
        pause: None,
    };
    let reports = Reports::new(ApiConfig::default().reporting_hosts, published.now());
    let turns = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&turns);
    // Always ready to run, unlike one that yields, which waits until nobody else is.
    let other = tokio::spawn(poll_fn(move |context| {
        counted.fetch_add(1, Ordering::Relaxed);
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    let receipt = reports.take(&Client::Address([192, 0, 2, 1].into()), &report, &published).await;
    assert_eq!((receipt.accepted, receipt.ignored), (1_024, 0));
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns >= 20, "{turns} turns of another task while 1,024 connections were taken");
    other.abort();
}

#[tokio::test]
async fn connections_that_come_at_once_leave_others_their_turns() {
    const AT_ONCE: u64 = 100;
    let published = Published::new(PublisherConfig::default(), SetClock(Arc::new(AtomicU64::new(10_000_000_000))));
    let config = ApiConfig { connections_per_peer: NonZeroUsize::new(1_000).unwrap(), ..ApiConfig::default() };
    let api = Api::new(config, published, None);
    let (stop, stopped) = watch::channel(false);
    let http = bind().await;
    let address = http.local_addr().unwrap();
    // The kernel takes them before the gateway does.
    let _held: Vec<_> = (0..AT_ONCE).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let also = api.clone();
    let accepted = move || also.shared.measures.connections.get_or_create(&ApiLabel { api: "http" }).get();
    let most = Arc::new(AtomicU64::new(0));
    let longest = Arc::clone(&most);
    let mut before = 0;
    let other = tokio::spawn(poll_fn(move |context| {
        let now = accepted();
        longest.fetch_max(now - before, Ordering::Relaxed);
        before = now;
        context.waker().wake_by_ref();
        if now < AT_ONCE { Poll::Pending } else { Poll::Ready(()) }
    }));
    let server = tokio::spawn(async move { api.serve_http(http, stopped).await });
    other.await.unwrap();
    let most = most.load(Ordering::Relaxed);
    assert!(most <= 8, "{most} connections were accepted before another task had its turn");
    stop.send(true).unwrap();
    server.await.unwrap();
}

async fn slow_client(requests_per_s: u32) -> (Rig, SpandClient<Channel>) {
    let requests_per_s = NonZeroU32::new(requests_per_s).unwrap();
    let rig = Rig::new(ApiConfig { requests_per_s, ..ApiConfig::default() }).await;
    let client = SpandClient::connect(format!("http://{}", rig.grpc)).await.unwrap();
    (rig, client)
}

fn query(questions: usize) -> v1::QueryRequest {
    let question = v1::Question { address: "192.0.2.7".to_owned(), ..v1::Question::default() };
    v1::QueryRequest { contract_version: 1, questions: vec![question; questions], ..v1::QueryRequest::default() }
}

#[tokio::test]
async fn a_query_of_many_questions_counts_as_several_requests() {
    let (rig, mut client) = slow_client(10).await;
    for _ in 0..3 {
        client.query(query(10)).await.unwrap();
    }
    // 1 + 256 / 16 of the seven that are left, and it is known only when it was read.
    client.query(query(256)).await.unwrap();
    let refused = client.query(query(1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    rig.end().await;
}

#[tokio::test]
async fn a_call_that_sends_much_counts_as_several_requests() {
    let (rig, mut client) = slow_client(10).await;
    // What is refused for what it says was read all the same.
    let much =
        v1::ReportRequest { contract_version: 1, host_name: "x".repeat(200 << 10), ..v1::ReportRequest::default() };
    assert_eq!(client.report(much).await.unwrap_err().code(), Code::InvalidArgument);
    let refused = client.query(query(1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    rig.end().await;
}

// Whether one subscriber's messages leave others their turns, the way that the transport asks for them.

/// Counts how often it is read, which is a few times for each message.
#[derive(Clone, Default)]
struct Readings(Arc<AtomicU64>);

impl PacketClock for Readings {
    fn now(&self) -> Timestamp {
        self.0.fetch_add(1, Ordering::Relaxed);
        Timestamp(10_000_000_000)
    }
}

/// The transport hands out what it has when a stream has nothing more, and asks again within the same poll of its task: a
/// stream that says "not now" only once goes on.
#[tokio::test]
async fn a_subscriber_with_much_to_read_leaves_others_their_turns() {
    let clock = Readings::default();
    let published = Published::new(PublisherConfig::default(), clock.clone());
    published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 20.0))], ..Batch::new() });
    let (stop, stopped) = watch::channel(false);
    let grpc = bind().await;
    let address = grpc.local_addr().unwrap();
    let api = Api::new(ApiConfig::default(), published.clone(), None);
    let server = tokio::spawn(async move { api.serve_grpc(grpc, stopped).await });
    let wish = v1::SubscribeRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    };
    let mut client = SpandClient::connect(format!("http://{address}")).await.unwrap();
    let mut updates = client.subscribe(wish).await.unwrap().into_inner();
    while !matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::SnapshotEnd(_)) {}

    let start = StartImminent {
        host: "10.0.0.1".parse().unwrap(),
        remote: "192.0.2.7".parse().unwrap(),
        network: GOOD.parse().unwrap(),
        trigger: Trigger::PassiveOpen,
        at: Timestamp(9_998_000_000),
    };
    for _ in 0..1_000 {
        assert!(published.push_start(start));
    }
    clock.0.store(0, Ordering::Relaxed);
    let (all, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, longest) = (Arc::clone(&all), Arc::clone(&most));
    // Always ready to run, unlike one that yields, which waits until nobody else is.
    let other = tokio::spawn(poll_fn(move |context| {
        let since_last_turn = clock.0.swap(0, Ordering::Relaxed);
        counted.fetch_add(since_last_turn, Ordering::Relaxed);
        longest.fetch_max(since_last_turn, Ordering::Relaxed);
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    for _ in 0..1_000 {
        assert!(matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::ImminentStart(_)));
    }
    other.abort();
    assert!(other.await.unwrap_err().is_cancelled());
    let messages = most.load(Ordering::Relaxed) * 1_000 / all.load(Ordering::Relaxed);
    assert!(messages <= 150, "{messages} messages before another task had its turn");
    stop.send(true).unwrap();
    server.await.unwrap();
}
