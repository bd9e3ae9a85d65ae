//! What one peer may take, and that others get theirs meanwhile.

use std::time::Duration;

use futures::FutureExt;
use spand_gateway::api::ApiConfig;
use spand_proto::v1;
use spand_tests::access::{Setup, question};
use spand_tests::patience::awaited;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use super::tls::closed_in_time;

/// Nothing has to be proven.
const PLAIN: &str = "[tls]\n";

fn wish(last: u8) -> v1::SubscribeRequest {
    let addresses = vec![format!("203.0.113.{last}")];
    v1::SubscribeRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        addresses,
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    }
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
    assert_eq!(stage.get("/healthz", "Host: localhost\r\n").await.unwrap().0, 200, "late, but answered");
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
async fn one_peer_reports_a_limited_number_of_connections() {
    let stage = Setup::with(PLAIN)
        .unwrap()
        .limited(|api| api.reported_connections_per_s = 1.try_into().unwrap())
        .start()
        .await
        .unwrap();
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
        pause: None,
    };
    assert_eq!(client.report(report(1, 1_024)).await.unwrap().into_inner().accepted, 1_024, "a full report always");
    let status = client.report(report(2, 1_024)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("10,000 connections a second"), "{status:?}");
    assert_eq!(client.report(report(2, 0)).await.unwrap().into_inner().accepted, 0, "counts alone cost nothing");
    assert_eq!(stage.refused("grpc", "reports").await.unwrap(), 1);
    stage.stop();
}

#[tokio::test]
async fn one_peer_has_a_limited_number_of_connections() {
    let more = format!("{PLAIN}[api]\nconnections_per_peer = 3\n");
    let stage = Setup::with(&more).unwrap().start().await.unwrap();
    let mut held = Vec::new();
    for last in 1..=3 {
        let mut client = stage.plain_client().await.unwrap();
        held.push(client.subscribe(wish(last)).await.unwrap());
    }
    let mut fourth = TcpStream::connect(stage.grpc).await.unwrap();
    let read = awaited("its end", fourth.read(&mut [0; 1])).await;
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
    awaited("a free place", freed).await;
    stage.stop();
}

#[tokio::test]
async fn one_peer_has_a_limited_number_of_subscriptions() {
    let stage =
        Setup::with(PLAIN).unwrap().limited(|api| api.streams_per_peer = 2.try_into().unwrap()).start().await.unwrap();
    let mut client = stage.plain_client().await.unwrap();
    let one = client.subscribe(wish(1)).await.unwrap();
    let _two = client.subscribe(wish(2)).await.unwrap();
    let status = client.subscribe(wish(3)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("as many subscriptions as one peer may have"), "{status:?}");
    assert_eq!(stage.refused("grpc", "streams").await.unwrap(), 1);
    drop(one);
    let freed = async { while client.subscribe(wish(3)).await.is_err() {} };
    awaited("a free place", freed).await;
    stage.stop();
}

#[tokio::test]
async fn a_request_is_no_larger_than_allowed() {
    let stage =
        Setup::with(PLAIN).unwrap().limited(|api| api.request_bytes = 1_024.try_into().unwrap()).start().await.unwrap();
    let mut client = stage.plain_client().await.unwrap();
    let question = v1::Question { address: "1".repeat(2_000), ..v1::Question::default() };
    let large = v1::QueryRequest { contract_version: 1, questions: vec![question], ..v1::QueryRequest::default() };
    assert_eq!(client.query(large).await.unwrap_err().code(), Code::OutOfRange);
    client.query(spand_tests::access::question()).await.unwrap();
    stage.stop();
}

#[tokio::test]
async fn who_connects_and_says_nothing_is_not_kept() {
    let stage =
        Setup::with(PLAIN).unwrap().limited(|api| api.request_timeout = Duration::from_secs(1)).start().await.unwrap();
    for (listener, some) in [(stage.grpc, ""), (stage.grpc, "PRI * HTTP"), (stage.http, ""), (stage.http, "GET / HT")] {
        let mut tcp = TcpStream::connect(listener).await.unwrap();
        tcp.write_all(some.as_bytes()).await.unwrap();
        closed_in_time(&mut tcp).await;
    }
    stage.stop();
}

/// A connection to `to` from this address of the machine.
async fn from(last: u8, to: std::net::SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn half_sent_heads_of_many_addresses_leave_health_an_answer() {
    // Nothing goes because it is slow.
    let stage = Setup::with(PLAIN)
        .unwrap()
        .limited(|api| api.request_timeout = Duration::from_secs(600))
        .start()
        .await
        .unwrap();
    let mut held = Vec::new();
    for n in 0..400_u16 {
        let mut tcp = from(2 + u8::try_from(n / 64).unwrap(), stage.http).await;
        tcp.write_all(b"GET /v1/networks HTTP/1.1\r\nHo").await.unwrap();
        held.push(tcp);
        if n % 40 == 0 {
            for path in ["/healthz", "/readyz", "/v1/networks"] {
                assert_eq!(stage.get(path, "Host: localhost\r\n").await.unwrap().0, 200, "{path} after {n}");
            }
        }
    }
    let displaced = stage.metric("spand_api_connections_displaced_total{api=\"http\"}").await.unwrap();
    assert!(displaced > 100, "{displaced}");
    // Those that lost their places are closed.
    let closed = async {
        let mut closed = 0;
        while closed < 100 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            held.retain_mut(|tcp| tcp.read(&mut [0; 1]).now_or_never().is_none());
            closed = 400 - held.len();
        }
    };
    awaited("their ends", closed).await;
    stage.stop();
}

#[tokio::test]
async fn who_does_not_read_loses_its_connection() {
    let stage =
        Setup::with(PLAIN).unwrap().limited(|api| api.request_timeout = Duration::from_secs(1)).start().await.unwrap();
    let mut slow = from(2, stage.http).await;
    // More answers than all buffers on the way hold.
    let asked = async {
        for _ in 0..100_000 {
            slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        }
        std::io::Result::Ok(())
    };
    let ended = awaited("its end", asked).await;
    assert!(ended.is_err());
    assert_eq!(stage.refused("http", "unread").await.unwrap(), 1);
    stage.stop();
}

#[tokio::test]
async fn live_streams_of_one_peer_are_bounded() {
    let few = |api: &mut ApiConfig| {
        api.live_streams = 3.try_into().unwrap();
        api.live_streams_per_peer = 2.try_into().unwrap();
    };
    let stage = Setup::with(PLAIN).unwrap().limited(few).start().await.unwrap();
    let open = async |last| {
        let mut tcp = from(last, stage.http).await;
        tcp.write_all(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut head = [0; 64];
        let read = awaited("a head", tcp.read(&mut head)).await.unwrap();
        (tcp, String::from_utf8_lossy(&head[..read]).into_owned())
    };
    let (mut held, mut answers) = (Vec::new(), Vec::new());
    for last in [2, 2, 2, 3, 4] {
        let (tcp, head) = open(last).await;
        held.push(tcp);
        answers.push(head.split(' ').nth(1).unwrap_or_default().to_owned());
    }
    assert_eq!(answers, ["200", "200", "429", "200", "200"], "the last one's place was the first peer's");
    assert_eq!(stage.refused("http", "live_streams").await.unwrap(), 1);
    stage.stop();
}

#[tokio::test]
async fn unfinished_requests_of_a_connection_take_little_and_are_counted() {
    let stage =
        Setup::with(PLAIN).unwrap().limited(|api| api.request_timeout = Duration::from_secs(2)).start().await.unwrap();
    let mut tcp = from(2, stage.grpc).await;
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    // POST, http, the path, and no more: literal fields without indexing (RFC 7541 section 6.2.2).
    let path = b"/spand.v1.Spand/Report";
    let head = [&[0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()], &path[..], &[0x01, 1, b'x']].concat();
    let (streams, body) = (64_u32, 200_usize << 10);
    for n in 0..streams {
        bytes.extend(frame(1, 4, 2 * n + 1, &head));
        let message = [&[0][..], &u32::try_from(body + 100).unwrap().to_be_bytes()].concat();
        bytes.extend(frame(0, 0, 2 * n + 1, &message));
    }
    tcp.write_all(&bytes).await.unwrap();
    let (mut read, mut write) = tcp.into_split();
    // What the gateway lets it send: the windows of all streams, and what is added to them for as long as it adds.
    let heads = 5 * i64::from(streams);
    let (mut connection, mut of) = (65_535 - heads, vec![65_535_i64 - 5; streams as usize]);
    let (mut sent, mut left) = (0_i64, vec![i64::try_from(body).unwrap(); streams as usize]);
    let mut text = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let until = tokio::time::Instant::now() + Duration::from_secs(1);
    loop {
        for n in 0..streams as usize {
            while left[n].min(of[n]).min(connection) > 0 {
                let count = left[n].min(of[n]).min(connection).min(16_384);
                let some = vec![0; usize::try_from(count).unwrap()];
                let stream = 2 * u32::try_from(n).unwrap() + 1;
                if write.write_all(&frame(0, 0, stream, &some)).await.is_err() {
                    break;
                }
                (left[n], of[n], connection, sent) = (left[n] - count, of[n] - count, connection - count, sent + count);
            }
        }
        let Ok(Ok(count)) = tokio::time::timeout_at(until, read.read(&mut buffer)).await else { break };
        if count == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..count]);
        while text.len() >= 9 {
            let length = u32::from_be_bytes([0, text[0], text[1], text[2]]) as usize;
            if text.len() < 9 + length {
                break;
            }
            let number = |at: usize| u32::from_be_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]);
            let (kind, stream) = (text[3], number(5) as usize);
            match kind {
                3 if stream > 0 => left[(stream - 1) / 2] = 0,
                4 => {
                    for at in (9..9 + length).step_by(6) {
                        if u16::from_be_bytes([text[at], text[at + 1]]) == 4 {
                            let window = i64::from(number(at + 2)) - 65_535;
                            for own in &mut of {
                                *own += window;
                            }
                        }
                    }
                }
                8 if stream == 0 => connection += i64::from(number(9)),
                8 => of[(stream - 1) / 2] += i64::from(number(9)),
                _ => {}
            }
            text.drain(..9 + length);
        }
    }
    assert!(sent > 100 << 10, "{sent}: nothing was tried");
    assert!(sent < 1 << 20, "{sent} bytes of unfinished requests are kept for one connection");
    println!("{sent} bytes of unfinished requests on one connection");
    drop((read, write));
    let counted = async { while stage.refused("grpc", "body").await.unwrap() == 0 {} };
    awaited("it is counted", counted).await;
    stage.stop();
}
