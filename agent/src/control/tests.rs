//! The socket under requests that make no sense.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use tokio::sync::mpsc;

use super::*;

/// The status of an agent that applies starts by `apply` and counted `applied`.
pub(crate) fn made_up(method: &str, events: &[(&str, u64)]) -> Status {
    let events: BTreeMap<&str, u64> = events.iter().copied().collect();
    serde_json::from_value(serde_json::json!({
        "version": "", "pid": 1, "uptime_s": 1, "mode": "careful", "method": method, "host_name": "a", "addresses": [],
        "gateway": GatewayStatus::default(), "networks_held": 1, "in_force": [], "decisions": {}, "method_events": events,
        "advice": HoldingCounts::default(), "pushes": Pushes::default(), "comparison": [], "limitations": []
    }))
    .unwrap()
}

/// The reply to `request`, sent as it is.
async fn reply_to(request: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let (ask, mut asked) = mpsc::channel::<Pending>(1);
    let _server = Server::start(&path, ask).unwrap();
    tokio::spawn(async move {
        while let Some(pending) = asked.recv().await {
            _ = pending.reply.send(Reply::Error(format!("{:?}", pending.request)));
        }
    });
    let request = request.to_vec();
    tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        // A server that refuses early may close before all was written.
        _ = stream.write_all(&request);
        _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = String::new();
        _ = stream.read_to_string(&mut reply);
        reply
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_request_reaches_the_agent() {
    assert_eq!(reply_to(b"{\"ask\":\"status\"}\n").await, "{\"error\":\"Status\"}\n");
    let explain = reply_to(b"{\"ask\":\"explain\",\"destination\":\"192.0.2.1\",\"bytes\":5}\n").await;
    assert!(explain.contains("192.0.2.1") && explain.contains("Some(5)"), "{explain}");
}

#[tokio::test]
async fn nonsense_is_refused_and_does_not_reach_it() {
    for (request, expected) in [
        (&b"\n"[..], "this is no request"),
        (b"", "this is no request"),
        (b"{\"ask\":\"stop\"}\n", "unknown variant `stop`"),
        (b"{\"ask\":\"explain\",\"destination\":\"here\"}\n", "this is no request"),
        (b"{\"ask\":\"pause\",\"length_s\":-1}\n", "this is no request"),
        (b"{\"ask\":\"explain\",\"destination\":\"192.0.2.1\",\"run\":1}\n", "unknown field `run`"),
        (&[b'x'; 10_000], "at most 4096 bytes"),
    ] {
        let reply = reply_to(request).await;
        assert!(reply.contains(expected), "{reply}");
    }
}

#[tokio::test]
async fn a_dead_agents_socket_is_replaced_and_a_living_ones_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (ask, _asked) = mpsc::channel(1);
    let server = Server::start(&path, ask.clone()).unwrap();
    assert!(Server::start(&path, ask).unwrap_err().to_string().contains("already runs here"));
    drop(server);
    assert!(!path.exists());
}
