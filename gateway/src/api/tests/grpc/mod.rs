//! gRPC.

mod subscribe;

use std::time::Duration;

use parking_lot::Mutex;

use spand_core::event::{Event, StartImminent};
use spand_core::types::Trigger;
use spand_proto::v1;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event as Update;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::publisher::Part;

async fn client(rig: &Rig) -> SpandClient<Channel> {
    SpandClient::connect(format!("http://{}", rig.grpc)).await.unwrap()
}

fn question(address: &str) -> v1::Question {
    v1::Question { address: address.to_owned(), ..v1::Question::default() }
}

fn query(questions: Vec<v1::Question>) -> v1::QueryRequest {
    v1::QueryRequest { contract_version: 1, questions, ..v1::QueryRequest::default() }
}

fn wish(addresses: &[&str]) -> v1::SubscribeRequest {
    let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
    v1::SubscribeRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        addresses,
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    }
}

fn report(batch: u64, remotes: &[&str]) -> v1::ReportRequest {
    let connection = |remote: &&str| v1::ConnectionReport {
        host_address: "10.0.0.1".to_owned(),
        host_port: 443,
        remote_address: (*remote).to_owned(),
        remote_port: 50_000,
        ..v1::ConnectionReport::default()
    };
    v1::ReportRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        batch,
        agent_started_unix_ns: 1,
        connections: remotes.iter().map(connection).collect(),
        pushes: None,
        pause: None,
    }
}

#[tokio::test]
async fn reports_of_quic_go_to_the_engines_also_of_an_unknown_network() {
    let rig = Rig::new(ApiConfig::default()).await;
    let passed = Arc::new(Mutex::new(Vec::new()));
    let engines = Arc::clone(&passed);
    rig.published.pass_reports_to(move |reported| {
        let mut engines = engines.lock();
        engines.push(reported);
        engines.len() <= 2
    });
    let mut all = report(1, &["9.9.9.1", "9.9.9.2", "9.9.9.3", "9.9.9.4"]);
    for quic in &mut all.connections[1..] {
        quic.transport = v1::Transport::Quic.into();
        quic.loss_window_bytes = Some(40_000);
    }
    let receipt = client(&rig).await.report(all).await.unwrap().into_inner();
    assert_eq!(
        (receipt.accepted, receipt.ignored),
        (2, 2),
        "TCP of an unknown network is ignored, and what has no room"
    );
    let passed = passed.lock().clone();
    assert_eq!(
        passed.iter().map(|one| one.report.remote.ip().to_string()).collect::<Vec<_>>(),
        ["9.9.9.2", "9.9.9.3", "9.9.9.4"]
    );
    assert!(passed.iter().all(|one| one.reporter == passed[0].reporter && one.arrived == rig.published.now()));
    let metrics = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.1;
    assert!(metrics.contains("spand_report_samples_dropped_total 1\n"), "{metrics}");
    rig.end().await;
}

#[tokio::test]
async fn a_query_is_answered_in_its_order() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = client(&rig).await;
    let paper = v1::QueryRequest {
        mode: v1::Mode::Paper.into(),
        ..query(vec![question("192.0.2.7"), question("9.9.9.9"), question("2001:db8:7::1")])
    };
    let response = client.query(paper).await.unwrap().into_inner();
    let advice = response.answers.into_iter().map(|answer| match answer.advice.unwrap() {
        v1::answer::Advice::Start(start) => Ok(start.cwnd_segments),
        v1::answer::Advice::Refusal(refusal) => Err(refusal.reason()),
    });
    assert_eq!(advice.collect::<Vec<_>>(), [Ok(20), Err(v1::RefusalReason::NoEstimate), Ok(50)]);
    rig.end().await;
}

#[tokio::test]
async fn each_bad_call_gets_its_own_status_and_harms_nothing() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = client(&rig).await;
    let absurd = v1::Question { mss_bytes: Some(1 << 40), ..question("192.0.2.7") };
    let window = v1::Question { snd_wnd_bytes: Some(u64::MAX), ..question("192.0.2.7") };
    let huge_text = question(&"1".repeat(1 << 20));
    let calls = [
        (
            v1::QueryRequest { contract_version: 0, ..query(vec![question("192.0.2.7")]) },
            Code::FailedPrecondition,
            "version",
        ),
        (query(vec![]), Code::InvalidArgument, "questions"),
        (query(vec![question("192.0.2.7"); 257]), Code::InvalidArgument, "257"),
        (query(vec![question("192.0.2.7"), question("192.0.2.0/24")]), Code::InvalidArgument, "questions[1]"),
        (query(vec![absurd]), Code::InvalidArgument, "segment size"),
        (query(vec![window]), Code::InvalidArgument, "receive window"),
        (v1::QueryRequest { mode: 99, ..query(vec![question("192.0.2.7")]) }, Code::InvalidArgument, "mode"),
        (
            v1::QueryRequest { initial_window_segments: Some(1 << 20), ..query(vec![question("192.0.2.7")]) },
            Code::InvalidArgument,
            "initial window",
        ),
        (query(vec![huge_text]), Code::OutOfRange, "too large"),
    ];
    for (request, code, word) in calls {
        let status = client.query(request).await.unwrap_err();
        check(&status, code, word);
    }
    // Zero is a question the start function answers.
    let zero = v1::Question { transfer_bytes: Some(0), ..question("192.0.2.7") };
    let none = v1::Question { mss_bytes: Some(0), ..question("192.0.2.7") };
    let answers = client.query(query(vec![zero, none])).await.unwrap().into_inner().answers;
    let reasons: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer.advice.unwrap() {
            v1::answer::Advice::Refusal(refusal) => refusal.reason(),
            v1::answer::Advice::Start(start) => panic!("{start:?}"),
        })
        .collect();
    assert_eq!(reasons, [v1::RefusalReason::EmptyTransfer, v1::RefusalReason::MssZero]);

    let hosts: Vec<_> = (0..1_025).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let subscriptions = [
        (wish(&[]), Code::InvalidArgument, "addresses"),
        (wish(&["10.0.0.0/8"]), Code::InvalidArgument, "10.0.0.0/8"),
        (wish(&hosts), Code::InvalidArgument, "1025"),
        (
            v1::SubscribeRequest { host_name: "a\nb".to_owned(), ..wish(&["10.0.0.1"]) },
            Code::InvalidArgument,
            "host_name",
        ),
        (v1::SubscribeRequest { contract_version: 9, ..wish(&["10.0.0.1"]) }, Code::FailedPrecondition, "version 9"),
    ];
    for (request, code, word) in subscriptions {
        check(&client.subscribe(request).await.unwrap_err(), code, word);
    }
    check(&client.report(report(0, &[])).await.unwrap_err(), Code::InvalidArgument, "batch");
    check(&client.report(report(1, &vec!["192.0.2.7"; 1_025])).await.unwrap_err(), Code::InvalidArgument, "1025");
    assert!(client.query(query(vec![question("192.0.2.7")])).await.is_ok());
    assert!(rig.unharmed().await);
    rig.end().await;
}

fn check(status: &Status, code: Code, word: &str) {
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(word), "{status}");
    assert!(status.message().len() < 300, "{status}");
}

#[tokio::test]
async fn a_report_counts_once() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = client(&rig).await;
    let mut send = async |request| {
        let receipt = client.report(request).await.unwrap().into_inner();
        (receipt.accepted, receipt.ignored)
    };
    assert_eq!(send(report(1, &["192.0.2.7", "192.0.2.8", "9.9.9.9"])).await, (2, 1));
    assert_eq!(send(report(1, &["192.0.2.7"])).await, (0, 1), "seen before");
    assert_eq!(send(report(2, &["192.0.2.7"])).await, (1, 0));
    let reborn = v1::ReportRequest { agent_started_unix_ns: 2, ..report(1, &["192.0.2.7"]) };
    assert_eq!(send(reborn).await, (1, 0), "a restarted agent counts from the start");
    assert_eq!(
        send(report(3, &["192.0.2.7"])).await,
        (1, 0),
        "so does one that started before: two on a host, or a stepped clock"
    );
    assert_eq!(send(report(3, &["192.0.2.7"])).await, (0, 1), "once");
    let again = report(2, &["192.0.2.7", "9.9.9.9"]);
    let mut compared = v1::ReportRequest { agent_started_unix_ns: 2, ..again };
    for connection in &mut compared.connections {
        connection.set_arm(v1::Arm::Control);
        (connection.duration_us, connection.acknowledged_bytes) = (Some(300_000), 20_000);
    }
    assert_eq!(send(compared).await, (1, 1));
    let (status, benefit) = rig.get("/v1/benefit").await;
    let control = &benefit["classes"][1]["control"];
    assert_eq!((status, &control["transfers"], &control["completion_mean_ms"]), (200, &1.into(), &300.0.into()));
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(text.contains("spand_report_batches_repeated_total 2"), "{text}");
    let compared = r#"spand_report_completion_seconds_count{arm="control",size="30kB"} 1"#;
    assert!(text.contains(compared), "{text}");
    rig.end().await;
}

#[tokio::test]
async fn a_peer_is_one_host_however_many_names_it_gives_itself() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = client(&rig).await;
    for n in 0..10 {
        let mut report = v1::ReportRequest { host_name: format!("made-up-{n}"), ..report(1, &["192.0.2.7"]) };
        for connection in &mut report.connections {
            connection.set_arm(v1::Arm::Control);
            (connection.duration_us, connection.acknowledged_bytes) = (Some(300_000), 20_000);
        }
        let receipts = [client.report(report.clone()).await, client.report(report).await];
        assert_eq!(receipts.map(|receipt| receipt.unwrap().into_inner().accepted), [1, 0]);
    }
    let (_, benefit) = rig.get("/v1/benefit").await;
    let control = &benefit["classes"][1]["control"];
    assert_eq!((&control["hosts"], &control["largest_host_part"]), (&1.into(), &1.0.into()), "{control}");
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    for line in ["spand_report_hosts_forgotten_total 0", "spand_report_host_names_forgotten_total 2"] {
        assert!(text.contains(line), "{text}");
    }
    rig.end().await;
}

#[tokio::test]
async fn losses_in_first_flights_take_advice_back_for_all_hosts() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = client(&rig).await;
    let mut updates = client.subscribe(wish(&["10.0.0.2"])).await.unwrap().into_inner();
    while !matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::SnapshotEnd(_)) {}
    // Halved, it is still more than any host starts with.
    rig.published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 60.0))], ..Batch::new() });
    let mut batch = 0;
    let mut lost = |advised: Option<u32>, port: u32, counted: Option<(u32, u32)>| {
        batch += 1;
        let mut report = report(batch, &["192.0.2.7"]);
        report.connections[0].first_flight_loss = Some(true);
        report.connections[0].advised_segments = advised;
        report.connections[0].remote_port = port;
        report.connections[0].first_flight =
            counted.map(|(lost_segments, sent_segments)| v1::FirstFlightLoss { sent_segments, lost_segments });
        report
    };
    let share = async || rig.get("/v1/networks/192.0.2.0/24").await.1["wc_segments"].as_u64();
    client.report(lost(None, 1, None)).await.unwrap();
    assert_eq!(share().await, Some(60), "it was not our advice");
    for port in 21..31 {
        client.report(lost(Some(60), port, Some((30, 60)))).await.unwrap();
    }
    assert_eq!(share().await, Some(60), "no more than half of each was lost");
    // The first three are of a host that does not count.
    for port in 2..7 {
        client.report(lost(Some(60), port, (port > 4).then_some((31, 60)))).await.unwrap();
    }
    assert_eq!(share().await, Some(60), "five may be chance");
    client.report(lost(Some(60), 7, Some((9, 17)))).await.unwrap();
    assert_eq!(share().await, Some(10));
    // The rig's own estimates may come before it.
    let is_half =
        |update: &Update| matches!(update, Update::Estimate(e) if e.estimate.as_ref().unwrap().share_bytes < 43_441.0);
    while !is_half(&updates.message().await.unwrap().unwrap().event.unwrap()) {}

    // What the engine says meanwhile does not lift it.
    rig.published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 90.0))], ..Batch::new() });
    assert_eq!(share().await, Some(10));
    rig.clock.0.store(14_000_000_000, Ordering::Relaxed);
    for port in 8..14 {
        let mut report = lost(Some(27), port, None);
        report.connections[0].duration_us = Some(1_000);
        client.report(report).await.unwrap();
    }
    assert_eq!(rig.published.retreats(), 1);
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(text.contains(r#"spand_publisher_first_flights_total{verdict="withdrawn"} 1"#), "{text}");

    // It survives reading the state again.
    let views = rig.published.page(None, 10).iter().map(|view| NetworkView::clone(view)).collect();
    rig.published.replace(views, |_| true, None);
    rig.published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 90.0))], ..Batch::new() });
    assert_eq!(share().await, Some(10));
    rig.end().await;
}

#[tokio::test]
async fn transfers_that_are_slower_than_the_control_groups_take_advice_back() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = client(&rig).await;
    rig.published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 60.0))], ..Batch::new() });
    let mut slow = report(1, &["192.0.2.1", "192.0.2.3"].repeat(80));
    for (n, connection) in (0..).zip(&mut slow.connections) {
        let is_control = n % 4 < 2;
        connection.arm = if is_control { v1::Arm::Control } else { v1::Arm::Advised }.into();
        (connection.remote_port, connection.acknowledged_bytes) = (40_000 + n, 100_000);
        connection.duration_us = Some(if is_control { 200_000 } else { 300_000 } + u64::from(n) * 10);
    }
    let share = async || rig.get("/v1/networks/192.0.2.0/24").await.1["wc_segments"].as_u64();
    let mut of_application = slow.clone();
    of_application.batch = 2;
    for quic in &mut of_application.connections {
        quic.transport = v1::Transport::Quic.into();
    }
    assert_eq!(client.report(of_application).await.unwrap().into_inner().accepted, 160);
    assert_eq!(share().await, Some(60), "what an application reports is not compared");
    client.report(v1::ReportRequest { batch: 3, ..slow }).await.unwrap();
    assert_eq!(share().await, Some(10));
    let (_, events) = rig.get("/v1/events").await;
    let what = events["events"].as_array().unwrap().iter().map(|event| event["what"].as_str().unwrap());
    assert!(what.clone().any(|what| what == "slower"), "{events}");
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(text.contains("spand_publisher_retreats_slower_total 1"), "{text}");
    rig.end().await;
}

#[tokio::test]
async fn lines_of_one_application_move_no_other_hosts_advice() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = client(&rig).await;
    rig.published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 60.0))], ..Batch::new() });
    let mut report = report(1, &["192.0.2.7", "192.0.2.8"].repeat(4));
    for (port, connection) in (1..).zip(&mut report.connections) {
        connection.transport = v1::Transport::Quic.into();
        (connection.first_flight_loss, connection.advised_segments) = (Some(true), Some(60));
        connection.remote_port = port;
    }
    assert_eq!(client.report(report.clone()).await.unwrap().into_inner().accepted, 8);
    let network = async || rig.get("/v1/networks/192.0.2.0%2F24").await.1["wc_segments"].as_u64();
    assert_eq!(network().await, Some(60));
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    for line in [
        r#"spand_publisher_first_flights_total{verdict="one_host"} 5"#,
        "spand_publisher_address_retreats 0",
        "spand_publisher_retreats 0",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    report.batch = 2;
    for (port, connection) in (20..).zip(&mut report.connections) {
        connection.transport = v1::Transport::Tcp.into();
        connection.remote_port = port;
    }
    client.report(report).await.unwrap();
    assert_eq!(network().await, Some(10), "the same of a kernel");
    rig.end().await;
}

#[tokio::test]
async fn losses_of_one_address_are_advertised_as_a_separate_network() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = client(&rig).await;
    rig.published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 60.0))], ..Batch::new() });
    let mut updates = client.subscribe(wish(&["10.0.0.2"])).await.unwrap().into_inner();
    while !matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::SnapshotEnd(_)) {}
    for batch in 1..=7 {
        let mut report = report(batch, &[if batch == 1 { "192.0.2.8" } else { "192.0.2.7" }]);
        let connection = &mut report.connections[0];
        (connection.first_flight_loss, connection.advised_segments) = (Some(batch > 1), Some(60));
        (connection.remote_port, connection.acknowledged_bytes) = (u32::try_from(batch).unwrap(), 100_000);
        assert_eq!(client.report(report).await.unwrap().into_inner().accepted, 1);
    }
    let network = async |name: &str| {
        let document = rig.get(&format!("/v1/networks/{name}")).await.1;
        (document["prefix"].as_str().unwrap().to_owned(), document["wc_segments"].as_u64())
    };
    let own = ("192.0.2.7/32".to_owned(), Some(10));
    assert_eq!([network("192.0.2.7").await, network("192.0.2.7/32").await], [own.clone(), own]);
    let around = ("192.0.2.0/24".to_owned(), Some(60));
    assert_eq!([network("192.0.2.8").await, network("192.0.2.0/24").await], [around.clone(), around]);
    let listed = rig.get("/v1/networks?within=192.0.2.0/24").await.1;
    assert_eq!(listed["total"], 2);
    let (_, advice) = rig.get("/v1/advice?destination=192.0.2.7").await;
    assert_eq!(advice["estimate"]["prefix"], "192.0.2.7/32", "{advice}");
    let answers = client.query(query(vec![question("192.0.2.7"), question("192.0.2.8")])).await.unwrap().into_inner();
    let networks = answers.answers.iter().map(|answer| answer.estimate.as_ref().unwrap().network.as_str());
    assert_eq!(networks.collect::<Vec<_>>(), ["192.0.2.7/32", "192.0.2.0/24"]);
    let is_own = |update: &Update| matches!(update, Update::Estimate(e) if e.estimate.as_ref().unwrap().network == "192.0.2.7/32");
    while !is_own(&updates.message().await.unwrap().unwrap().event.unwrap()) {}
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    for line in [
        r#"spand_publisher_first_flights_total{verdict="address_halved"} 1"#,
        "spand_publisher_address_retreats 1",
        "spand_publisher_retreats 0",
        "spand_publisher_addresses_displaced_total 0",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    rig.end().await;
}

#[tokio::test]
async fn a_health_check_follows_readiness() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client =
        HealthClient::new(Channel::from_shared(format!("http://{}", rig.grpc)).unwrap().connect().await.unwrap());
    let mut check = async |service: &str| {
        let answer = client.check(HealthCheckRequest { service: service.to_owned() }).await;
        answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
    };
    let readiness = rig.published.readiness();
    for part in [Part::Capture, Part::Engine, Part::Store] {
        readiness.ready(part);
    }
    assert_eq!(check("").await, Ok(ServingStatus::Serving));
    readiness.not_ready(Part::Store, "the disk is full");
    assert_eq!(check("spand.v1.Spand").await, Ok(ServingStatus::NotServing));
    assert_eq!(check("another").await, Err(Code::NotFound));
}
