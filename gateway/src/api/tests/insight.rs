//! What the dashboard asks: traffic, histories, agents, events.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::Value;
use spand_core::event::StartImminent;
use spand_core::networks::Withdrawal;
use spand_core::types::{ConnectionId, SampleReason, Trigger, WindowSample};
use spand_proto::push::{AgentDescription, ApplyMethod, Subscription as Wish};
use spand_proto::report::{Arm, ConnectionReport, PushCount, Report, Transport};
use spand_proto::start::{Mode, RefusalReason};
use spand_proto::units::{Micros, Segments};
use tokio::net::TcpSocket;

use super::*;
use crate::patience::PATIENCE;
use crate::publisher::{CaptureStatus, Client, EngineStatus, Trend, TrendPoint};

const HOST: [u8; 4] = [10, 0, 0, 1];

fn wish() -> Wish {
    let agent = AgentDescription {
        version: "0.1.0".to_owned(),
        mode: Some(Mode::Careful),
        method: Some(ApplyMethod::Bpf),
        pause: None,
    };
    let host_name = "web-1".to_owned().try_into().unwrap();
    Wish { host_name, addresses: vec![HOST.into()], agent: Some(agent), cluster: None, networks: Vec::new() }
}

fn sample(second: u64, reason: SampleReason) -> WindowSample {
    WindowSample {
        at: Timestamp(second * 1_000_000_000),
        network: GOOD.parse().unwrap(),
        remote: [192, 0, 2, 7].into(),
        connection: ConnectionId(second),
        window: Window::from_bytes(28_960.0).unwrap(),
        mss: Bytes(1_448),
        reason,
        reduced_before: false,
        transfer: Bytes(1_000_000),
        advised: true,
        rtt_min: Some(Micros(38_000)),
        rtt: None,
    }
}

fn trend() -> Trend {
    let point = |index, share, rtt_mean| TrendPoint { index, share, rtt_mean, samples: 2, losses: 1 };
    Trend {
        network: GOOD.parse().unwrap(),
        step: Micros::from_secs(10),
        points: vec![point(0, Some(30_000.0), Some(Micros(40_000))), point(1, None, Some(Micros(55_000)))],
        quartiles: Some([20_000.0, 40_000.0]),
    }
}

fn reported() -> Report {
    let connection = ConnectionReport {
        host: (HOST, 443).into(),
        remote: ([192, 0, 2, 7], 50_000).into(),
        ended_ago: Micros(0),
        duration: None,
        end_window: None,
        mss: None,
        srtt: None,
        rtt_min: None,
        acknowledged: Bytes(100_000),
        retransmitted: Segments(0),
        first_flight_loss: Some(true),
        first_flight: None,
        limited_by: None,
        arm: Some(Arm::Advised),
        advised: Some(Segments(20)),
        refusal: None,
        paused: false,
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: None,
    };
    let refusal = Some(RefusalReason::RttMismatch);
    let refused = ConnectionReport { advised: None, first_flight_loss: None, refusal, ..connection };
    let control = ConnectionReport { advised: None, first_flight_loss: None, arm: Some(Arm::Control), ..connection };
    Report {
        host_name: wish().host_name,
        batch: 1,
        agent_started: Timestamp(1),
        connections: vec![connection, refused, control],
        pushes: PushCount { received: 3, in_time: 2, late: 1, unmatched: 0 },
        pause: None,
    }
}

/// A gateway that has seen something of everything.
async fn busy() -> (Rig, crate::publisher::Subscription) {
    let rig = Rig::new(ApiConfig::default()).await;
    let subscription =
        rig.published.subscribe_host(&wish(), None, Some(Client::Address([127, 0, 0, 1].into()))).unwrap();
    let samples = vec![sample(8, SampleReason::Loss), sample(9, SampleReason::EndAppLimited)];
    rig.published.set_captures(vec![CaptureStatus { dropped_queue: 7, ..CaptureStatus::default() }]);
    for frames in [1_000, 2_500] {
        let mut engine = EngineStatus { newest: Some(Timestamp(9_500_000_000)), ..EngineStatus::default() };
        engine.counters.frames = frames;
        engine.counters.wire_bytes = frames * 1_000;
        (0..frames).for_each(|_| engine.counters.ignore(spand_core::counters::Ignored::NotTcp));
        rig.published.apply(Batch { engine: Some(engine), ..Batch::new() });
        rig.clock.0.fetch_add(1_000_000_000, Ordering::Relaxed);
    }
    let start = StartImminent {
        host: HOST.into(),
        remote: [192, 0, 2, 7].into(),
        network: GOOD.parse().unwrap(),
        trigger: Trigger::PassiveOpen,
        at: Timestamp(9_900_000_000),
    };
    let withdrawn = Event::Withdrawn { network: WIDE.parse().unwrap(), reason: Withdrawal::Expired };
    let events = vec![withdrawn, Event::StartImminent(start)];
    rig.published.apply(Batch { events, samples, trends: vec![trend()], ..Batch::new() });
    (rig, subscription)
}

#[tokio::test]
async fn a_network_shows_its_window_its_samples_and_its_distribution() {
    let (rig, _subscription) = busy().await;
    for path in ["/v1/history/192.0.2.0/24", "/v1/history/192.0.2.9"] {
        let (status, history) = rig.get(path).await;
        assert_eq!((status, &history["prefix"]), (200, &GOOD.into()));
        assert_eq!(history["trend"]["wc_quartiles_bytes"], serde_json::json!([20_000.0, 40_000.0]));
        assert_eq!(history["trend"]["rtt_range_ms"], serde_json::json!([40.0, 55.0]));
        assert_eq!(history["trend"]["points"][1]["at"], "1970-01-01T00:00:10.000Z");
        let reasons: Vec<_> = history["samples"].as_array().unwrap().iter().map(|sample| &sample["reason"]).collect();
        assert_eq!(reasons, ["loss", "end_app_limited"]);
        assert_eq!(history["samples"][1]["lower_bound"], true);
        let distribution = &history["distribution"];
        assert_eq!((&distribution["agents"], &distribution["leases"][0]["host_name"]), (&1.into(), &"web-1".into()));
        assert_eq!(distribution["leases"][0]["lease_segments"], 20, "the only host has all of the budget");
        assert_eq!(distribution["starts"][0]["trigger"], "passive_open");
    }
    let (_, poor) = rig.get("/v1/history/203.0.113.0/24").await;
    assert_eq!((&poor["trend"], &poor["distribution"]["agents"]), (&Value::Null, &0.into()));
    assert_eq!(rig.get("/v1/history/10.9.8.0/24").await.0, 404);
    assert_eq!(rig.get("/v1/history/nonsense").await.0, 400);
    rig.end().await;
}

#[tokio::test]
async fn networks_are_searched_and_bring_their_window() {
    let (rig, _subscription) = busy().await;
    let found = async |query: &str| {
        let (status, document) = rig.get(&format!("/v1/networks?{query}")).await;
        assert_eq!(status, 200, "{document}");
        let networks = document["networks"].as_array().unwrap().clone();
        networks.iter().map(|network| network["prefix"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("search=192.0.2.99").await, [GOOD]);
    assert_eq!(found("search=0.2").await, [GOOD]);
    assert_eq!(found("search=2001:DB8").await, [SIX]);
    assert_eq!(found("search=203.0.0.0%2F8").await, [POOR]);
    for name in ["branch", "Office%207", "AS64501", "two"] {
        assert_eq!(found(&format!("search={name}")).await, [WIDE], "{name}");
    }
    assert_eq!(found("search=zebra").await, Vec::<String>::new());
    assert_eq!(found("search=").await.len(), 4);
    assert_eq!(rig.get(&format!("/v1/networks?search={}", "1".repeat(65))).await.0, 400);
    let (_, with) = rig.get("/v1/networks?trend=yes").await;
    assert_eq!(with["networks"][0]["trend"]["step_s"], 10.0);
    assert!(with["networks"][1].get("trend").is_none(), "nothing is remembered of it");
    let (_, without) = rig.get("/v1/networks").await;
    assert!(without["networks"][0].get("trend").is_none());
    rig.end().await;
}

#[tokio::test]
async fn an_agent_shows_what_runs_there_and_what_it_reported() {
    let (rig, subscription) = busy().await;
    let (_, silent) = rig.get("/v1/agents").await;
    let agent = &silent["agents"][0];
    let shown = ["host_name", "version", "mode", "method"].map(|field| agent[field].as_str().unwrap());
    assert_eq!(shown, ["web-1", "0.1.0", "careful", "bpf"]);
    for (search, total) in [("EB-1", 1), ("192.0.2", 0), ("zebra", 0), ("", 1)] {
        let (_, found) = rig.get(&format!("/v1/agents?search={search}")).await;
        assert_eq!(found["total"], total, "{search}");
    }
    let address = agent["addresses"][0].as_str().unwrap();
    assert_eq!(rig.get(&format!("/v1/agents?search={address}")).await.1["total"], 1);
    assert_eq!((&agent["reported"], &silent["total"]), (&Value::Null, &1.into()));
    assert_eq!((&agent["paused"], &agent["paused_until"]), (&Value::Null, &Value::Null), "it does not say");

    let mut client = spand_proto::v1::spand_client::SpandClient::connect(format!("http://{}", rig.grpc)).await.unwrap();
    client.report(spand_proto::v1::ReportRequest::from(&reported())).await.unwrap();
    // The same batch again counts once.
    client.report(spand_proto::v1::ReportRequest::from(&reported())).await.unwrap();
    let (_, document) = rig.get("/v1/agents").await;
    let reported = &document["agents"][0]["reported"];
    let counts = ["transfers", "applied", "transfers_control", "first_flight_losses"].map(|field| &reported[field]);
    assert_eq!(counts.map(Value::as_u64), [3, 1, 1, 1].map(Some));
    assert_eq!(reported["refused_by_reason"], serde_json::json!({ "rtt_mismatch": 1 }));
    assert_eq!(reported["pushes"]["in_time"], 2);
    assert_eq!(reported["starts_unseen"], false);
    let pushes = PushCount { received: 12, in_time: 12, late: 0, unmatched: 11 };
    let unseen = Report { batch: 2, pushes, ..self::reported() };
    client.report(spand_proto::v1::ReportRequest::from(&unseen)).await.unwrap();
    let (_, document) = rig.get("/v1/agents").await;
    let reported = &document["agents"][0]["reported"];
    assert_eq!((&reported["starts_unseen"], &reported["pushes"]["unmatched"]), (&true.into(), &11.into()));
    drop(subscription);
    assert_eq!(rig.get("/v1/agents").await.1["total"], 0);
    assert_eq!(rig.get("/v1/agents?limit=0").await.0, 400);
    rig.end().await;
}

#[tokio::test]
async fn an_agent_shows_that_advice_is_paused_as_it_last_reported() {
    use spand_proto::v1;
    let rig = Rig::new(ApiConfig::default()).await;
    let mut client = v1::spand_client::SpandClient::connect(format!("http://{}", rig.grpc)).await.unwrap();
    let subscribe = |pause: Option<v1::PauseState>| {
        let mut request = v1::SubscribeRequest::from(&wish());
        request.agent.as_mut().unwrap().pause = pause;
        request
    };
    let paused = |remaining_ms| Some(v1::PauseState { paused: true, remaining_ms });
    let shown = async || {
        let (_, document) = rig.get("/v1/agents").await;
        let agent = document["agents"].as_array().unwrap().last().unwrap();
        (agent["paused"].clone(), agent["paused_until"].clone())
    };
    let _stream = client.subscribe(subscribe(paused(None))).await.unwrap();
    assert_eq!(shown().await, (true.into(), Value::Null));
    let (_, document) = rig.get("/v1/agents").await;
    assert_eq!(document["agents"][0]["reported"], Value::Null, "it reported nothing yet");

    // The gateway's own clock and what is left: the host's clock may show anything.
    let report = |batch, pause| v1::ReportRequest { batch, pause, ..v1::ReportRequest::from(&reported()) };
    client.report(report(1, paused(Some(90_000)))).await.unwrap();
    let until = rig.published.now().0 / 1_000_000_000 + 90;
    let until = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_secs(until));
    assert_eq!(shown().await, (true.into(), until.to_string().into()));
    client.report(report(2, Some(v1::PauseState { paused: false, remaining_ms: None }))).await.unwrap();
    assert_eq!(shown().await, (false.into(), Value::Null));
    // A batch that was seen before says nothing of now, and one of an older agent nothing at all.
    client.report(report(1, paused(None))).await.unwrap();
    client.report(report(3, None)).await.unwrap();
    assert_eq!(shown().await, (false.into(), Value::Null));
    let _older = client.subscribe(subscribe(None)).await.unwrap();
    assert_eq!(shown().await, (Value::Null, Value::Null));
    rig.end().await;
}

#[tokio::test]
async fn events_say_what_happened_once_each() {
    let (rig, subscription) = busy().await;
    drop(subscription);
    rig.published.readiness().ready(crate::publisher::Part::Capture);
    let (_, document) = rig.get("/v1/events").await;
    let all = document["events"].as_array().unwrap();
    let logged: Vec<_> = all.iter().map(|e| ["kind", "what", "subject"].map(|f| e[f].as_str().unwrap())).collect();
    for expected in [
        ["agent", "subscribed", "web-1"],
        ["limit", "capture_dropped_queue", ""],
        ["withdrawal", "expired", WIDE],
        ["agent", "left", "web-1"],
    ] {
        assert_eq!(logged.iter().filter(|entry| **entry == expected).count(), 1, "{expected:?} in {logged:?}");
    }
    let next = document["next"].as_u64().unwrap();
    assert_eq!(next, all.len() as u64 + 1);
    let (_, rest) = rig.get(&format!("/v1/events?from={next}")).await;
    assert_eq!(rest, serde_json::json!({ "events": [], "next": next, "missing": 0 }));
    let (_, newest) = rig.get("/v1/events?limit=1").await;
    assert_eq!((&newest["events"][0]["what"], &newest["missing"]), (&"left".into(), &(next - 2).into()));
    assert_eq!(rig.get("/v1/events?from=0").await.0, 400);
    rig.end().await;
}

#[tokio::test]
async fn traffic_says_what_comes_in_and_what_is_lost() {
    let (rig, _subscription) = busy().await;
    let (status, traffic) = rig.get("/v1/traffic").await;
    assert_eq!((status, &traffic["ready"]), (200, &false.into()));
    assert_eq!(traffic["last"]["packets_per_s"], 1_500.0);
    assert_eq!(traffic["last"]["bits_per_s"], 12e6);
    assert_eq!(traffic["newest_packet_age_s"], 2.5);
    assert_eq!(traffic["ignored"], serde_json::json!([{ "reason": "not_tcp", "lately": 1_500, "all": 2_500 }]));
    assert_eq!(traffic["points"].as_array().unwrap().len(), 1);
    rig.clock.0.fetch_add(20_000_000_000, Ordering::Relaxed);
    assert_eq!(rig.get("/v1/traffic").await.1["last"], Value::Null, "an engine that is silent says nothing of now");
    rig.end().await;
}

#[tokio::test]
async fn the_dashboard_is_served_with_a_policy_that_allows_nothing_from_elsewhere() {
    let rig = Rig::new(ApiConfig::default()).await;
    let ask = async |path: &str, head: &str| {
        let mut tcp = TcpStream::connect(rig.http).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}Connection: close\r\n\r\n");
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let page = ask("/", "").await;
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<!doctype html>"), "{page}");
    for (path, kind) in
        [("/", "text/html"), ("/dashboard/app.js", "text/javascript"), ("/dashboard/style.css", "text/css")]
    {
        let answer = ask(path, "").await.to_lowercase();
        let policy = answer.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let kinds: Vec<_> = answer.lines().filter_map(|line| line.strip_prefix("content-type: ")).collect();
        assert_eq!(kinds, [format!("{kind}; charset=utf-8")], "{path}");
        assert!(answer.contains("nosniff"), "{path}");
        let tag = answer.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
        let again = ask(path, &format!("If-None-Match: {tag}\r\n")).await;
        assert!(again.starts_with("HTTP/1.1 304"), "{again}");
    }
    let missing = ask("/dashboard/../Cargo.toml", "").await;
    assert!(missing.starts_with("HTTP/1.1 404") && missing.contains("begin at /"), "{missing}");
    rig.end().await;
}

/// Names of all fields in a document.
pub(super) fn fields(document: &Value, into: &mut BTreeSet<String>) {
    match document {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            into.insert(name.clone());
            fields(value, into);
        }),
        Value::Array(list) => list.iter().for_each(|value| fields(value, into)),
        _ => {}
    }
}

#[tokio::test]
async fn the_page_names_every_field() {
    let (rig, _subscription) = busy().await;
    let mut client = spand_proto::v1::spand_client::SpandClient::connect(format!("http://{}", rig.grpc)).await.unwrap();
    client.report(spand_proto::v1::ReportRequest::from(&reported())).await.unwrap();
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/api.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut checked = 0;
    for path in ["/v1/traffic", "/v1/history/192.0.2.0/24", "/v1/agents", "/v1/events", "/v1/networks?trend=yes"] {
        let mut names = BTreeSet::new();
        fields(&rig.get(path).await.1, &mut names);
        names.remove("rtt_mismatch");
        for name in names {
            let is_documented = [format!("`{name}`"), format!("\"{name}\"")].iter().any(|word| page.contains(word));
            assert!(is_documented, "{path} has `{name}`, which docs/reference/api.md does not describe");
            checked += 1;
        }
    }
    assert!(checked > 80, "only {checked} fields found");
    rig.end().await;
}

// The live stream of the dashboard.

/// Opens a live stream with a small buffer on our side.
async fn open(rig: &Rig) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut tcp = socket.connect(rig.http).await.unwrap();
    tcp.write_all(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    tcp
}

/// Reads until there are `count` messages; what came.
async fn read(tcp: &mut TcpStream, count: usize) -> String {
    let mut text = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let messages = |text: &[u8]| String::from_utf8_lossy(text).matches("event: now\n").count();
    while messages(&text) < count {
        let read = tokio::time::timeout(PATIENCE, tcp.read(&mut buffer)).await.unwrap().unwrap();
        assert!(read > 0, "the stream ended");
        text.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_live_stream_has_changes_and_a_bounded_number_is_open() {
    let config = ApiConfig {
        live_interval: Duration::from_millis(20),
        live_streams: NonZeroUsize::new(1).unwrap(),
        ..ApiConfig::default()
    };
    let rig = Rig::new(config).await;
    let mut tcp = open(&rig).await;
    let first = read(&mut tcp, 1).await;
    assert!(first.contains("content-type: text/event-stream") && first.contains("\"networks\":4"), "{first}");
    assert!(first.contains("\"resync\":false"), "nothing was missed yet: {first}");
    let withdrawn = Event::Withdrawn { network: GOOD.parse().unwrap(), reason: Withdrawal::TooFew };
    rig.published.apply(Batch { events: vec![withdrawn], ..Batch::new() });
    let mut news = String::new();
    let times = |news: &str| news.matches("\"what\":\"too_few\",\"subject\":\"192.0.2.0/24\"").count();
    while times(&news) == 0 {
        news += &read(&mut tcp, 1).await;
    }
    news += &read(&mut tcp, 2).await;
    assert_eq!(times(&news), 1, "once: {news}");
    let (status, refused) = rig.get("/v1/live").await;
    assert_eq!(status, 503);
    assert!(refused["detail"].as_str().unwrap().contains("live streams"), "{refused}");
    rig.end().await;
}

#[tokio::test]
async fn a_slow_reader_misses_messages_and_gets_a_resync() {
    let rig = Rig::new(ApiConfig { live_interval: Duration::from_millis(2), ..ApiConfig::default() }).await;
    // Messages of about 100 KB fill every buffer on the way in no time.
    let many = |n| CaptureStatus { interface: format!("mirror{n}"), ..CaptureStatus::default() };
    rig.published.set_captures((0..1_000).map(many).collect());
    let mut tcp = open(&rig).await;
    read(&mut tcp, 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut resynced = false;
    for _ in 0..300 {
        resynced = resynced || read(&mut tcp, 1).await.contains("\"resync\":true");
    }
    assert!(resynced, "no message signals that some were missed");
    let (_, metrics) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let count = metrics.lines().find_map(|line| line.strip_prefix("spand_api_live_resyncs_total ")).unwrap();
    assert!(count.parse::<u64>().unwrap() >= 1, "{count}");
    rig.end().await;
}
