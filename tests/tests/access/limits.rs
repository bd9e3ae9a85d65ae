//! What one peer may take, and that others get theirs meanwhile.

use std::time::Duration;

use spand_proto::v1;
use spand_tests::access::{Setup, question};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

const SOON: Duration = Duration::from_secs(10);
/// Nothing has to be proven.
const PLAIN: &str = "[tls]\n";

fn wish(last: u8) -> v1::SubscribeRequest {
    let addresses = vec![format!("203.0.113.{last}")];
    v1::SubscribeRequest { contract_version: 1, host_name: "web-1".to_owned(), addresses, agent: None }
}

#[tokio::test]
async fn one_peer_asks_so_often_and_no_oftener() {
    let stage = Setup::with(&format!("{PLAIN}[api]\nrequests_per_s = 5\n")).unwrap().start().await.unwrap();
    let mut client = stage.plain_client().await.unwrap();
    let mut codes = Vec::new();
    for _ in 0..8 {
        codes.push(client.query(question()).await.map_or_else(|status| status.code(), |_| Code::Ok));
    }
    assert_eq!(codes[..5], [Code::Ok; 5], "{codes:?}");
    assert!(codes.contains(&Code::ResourceExhausted), "{codes:?}");
    let mut statuses = Vec::new();
    for _ in 0..8 {
        statuses.push(stage.get("/v1/services", "Host: localhost\r\n").await.unwrap().0);
    }
    assert_eq!(statuses[..5], [200; 5], "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
    // Another peer is not asked for what this one took.
    let from_elsewhere = async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind("127.0.0.2:0".parse().unwrap())?;
        let mut tcp = socket.connect(stage.http).await?;
        tcp.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        tcp.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    let text = from_elsewhere.await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    for api in ["grpc", "http"] {
        assert!(!text.contains(&format!("spand_api_refused_total{{api=\"{api}\",reason=\"rate\"}} 0\n")), "{text}");
    }
    stage.stop();
}

#[tokio::test]
async fn one_peer_reports_so_many_connections_and_no_more() {
    let more = format!("{PLAIN}[api]\nreported_connections_per_s = 1\n");
    let stage = Setup::with(&more).unwrap().start().await.unwrap();
    let mut client = stage.plain_client().await.unwrap();
    let report = |batch, count| v1::ReportRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        batch,
        agent_started_unix_ns: 1,
        connections: vec![
            v1::ConnectionReport {
                host_address: "203.0.113.1".to_owned(),
                host_port: 443,
                remote_address: "192.0.2.7".to_owned(),
                remote_port: 50_000,
                ..v1::ConnectionReport::default()
            };
            count
        ],
        pushes: None,
    };
    assert_eq!(client.report(report(1, 1_024)).await.unwrap().into_inner().accepted, 1_024, "a full report always");
    let status = client.report(report(2, 1_024)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("api.reported_connections_per_s"), "{status:?}");
    assert_eq!(client.report(report(2, 0)).await.unwrap().into_inner().accepted, 0, "counts alone cost nothing");
    assert_eq!(stage.refused("grpc", "reports").await.unwrap(), 1);
    stage.stop();
}

#[tokio::test]
async fn one_peer_has_so_many_connections() {
    let more = format!("{PLAIN}[api]\nconnections_per_peer = 3\n");
    let stage = Setup::with(&more).unwrap().start().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(TcpStream::connect(stage.grpc).await.unwrap());
    }
    let mut fourth = TcpStream::connect(stage.grpc).await.unwrap();
    let read = tokio::time::timeout(SOON, fourth.read(&mut [0; 1])).await.expect("it stays connected");
    assert_eq!(read.unwrap_or(0), 0);
    assert_eq!(stage.refused("grpc", "connections").await.unwrap(), 1, "and HTTP has places of its own");
    drop(held);
    // The places are free once the gateway has seen the ends.
    let freed = async {
        loop {
            let Ok(mut client) = stage.plain_client().await else { continue };
            if client.query(question()).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, freed).await.unwrap();
    stage.stop();
}

#[tokio::test]
async fn one_peer_has_so_many_subscriptions() {
    let stage = Setup::with(&format!("{PLAIN}[api]\nstreams_per_peer = 2\n")).unwrap().start().await.unwrap();
    let mut client = stage.plain_client().await.unwrap();
    let one = client.subscribe(wish(1)).await.unwrap();
    let _two = client.subscribe(wish(2)).await.unwrap();
    let status = client.subscribe(wish(3)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("api.streams_per_peer"), "{status:?}");
    assert_eq!(stage.refused("grpc", "streams").await.unwrap(), 1);
    drop(one);
    let freed = async { while client.subscribe(wish(3)).await.is_err() {} };
    tokio::time::timeout(SOON, freed).await.unwrap();
    stage.stop();
}

#[tokio::test]
async fn a_request_is_no_larger_than_allowed() {
    let stage = Setup::with(&format!("{PLAIN}[api]\nrequest_kib = 1\n")).unwrap().start().await.unwrap();
    let mut client = stage.plain_client().await.unwrap();
    let question = v1::Question { address: "1".repeat(2_000), ..v1::Question::default() };
    let large = v1::QueryRequest { contract_version: 1, questions: vec![question], ..v1::QueryRequest::default() };
    assert_eq!(client.query(large).await.unwrap_err().code(), Code::OutOfRange);
    client.query(spand_tests::access::question()).await.unwrap();
    stage.stop();
}

#[tokio::test]
async fn who_connects_and_says_nothing_is_not_kept() {
    let stage = Setup::with(&format!("{PLAIN}[api]\nrequest_timeout_s = 1\n")).unwrap().start().await.unwrap();
    for (listener, some) in [(stage.grpc, ""), (stage.grpc, "PRI * HTTP"), (stage.http, ""), (stage.http, "GET / HT")] {
        let mut tcp = TcpStream::connect(listener).await.unwrap();
        tcp.write_all(some.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(SOON, tcp.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{some:?} stays connected");
    }
    stage.stop();
}
