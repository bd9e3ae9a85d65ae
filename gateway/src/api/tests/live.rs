//! The live stream of the dashboard.

use std::num::NonZeroUsize;
use std::time::Duration;

use spand_core::event::Withdrawal;
use tokio::net::TcpSocket;

use super::*;
use crate::patience::PATIENCE;
use crate::publisher::CaptureStatus;

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
    assert!(refused["detail"].as_str().unwrap().contains("api.live_streams"), "{refused}");
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
