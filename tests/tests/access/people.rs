//! People and scripts at the HTTP listener: passwords, names, other sites.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::future::join_all;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use spand_gateway::api::password_line;
use spand_tests::access::{Log, Setup, Stage, Wanted};
use spand_tests::patience::awaited;
use tokio::net::TcpStream;
use tonic::transport::Uri;

use super::tls::{HOUR, ends, subscribed, wish};

/// Lines of a head with this name and password.
fn with(name: &str, password: &str) -> String {
    format!("Host: localhost\r\nAuthorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("{name}:{password}")))
}

/// A stage that asks for a password.
async fn asking(people: &[(&str, &str)]) -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passwords");
    write(&file, people);
    // Read once at the start, and not looked at again.
    Setup::with(&format!("[admin]\npasswords = \"{}\"\n", file.display())).unwrap().start().await.unwrap()
}

fn write(file: &std::path::Path, people: &[(&str, &str)]) {
    let lines: Vec<String> = people.iter().map(|(name, password)| password_line(name, password).unwrap()).collect();
    fs::write(file, format!("# people\n\n{}\n", lines.join("\n"))).unwrap();
}

#[tokio::test]
async fn without_the_right_password_only_health_is_answered() {
    let log = Log::of_this_thread();
    let stage = asking(&[("ann", "a long password"), ("prometheus", "another: one")]).await;
    for path in ["/", "/v1/networks", "/metrics", "/v1/live", "/dashboard/app.js", "/nowhere"] {
        let (status, head, body) = stage.get(path, "Host: localhost\r\n").await.unwrap();
        assert_eq!(status, 401, "{path}");
        assert!(head.to_lowercase().contains("www-authenticate: basic realm=\"spand\""), "{head}");
        assert!(body.contains("a name and a password are asked for"), "{body}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(stage.get(path, "Host: localhost\r\n").await.unwrap().0, 200, "{path}");
    }
    for (name, password) in [("ann", "a long password"), ("prometheus", "another: one")] {
        let (status, _, text) = stage.get("/metrics", &with(name, password)).await.unwrap();
        assert_eq!(status, 200);
        assert!(text.contains("spand_api_refused_total{api=\"http\",reason=\"no_password\"} 6"), "{text}");
    }
    for (name, password) in [("ann", "another: one"), ("ben", "a long password"), ("", ""), ("ann", "")] {
        let (status, _, body) = stage.get("/v1/networks", &with(name, password)).await.unwrap();
        assert_eq!(status, 401, "{name}:{password}");
        assert!(body.contains("wrong name or password"), "{body}");
    }
    let (_, _, text) = stage.get("/metrics", &with("ann", "a long password")).await.unwrap();
    assert!(text.contains("spand_api_refused_total{api=\"http\",reason=\"password\"} 4"), "{text}");
    assert_eq!(log.lines("wrong name or password").len(), 1);
    assert!(log.lines("long password").is_empty(), "a password in the log");
    stage.stop();
}

#[tokio::test]
async fn guessing_is_slow_and_who_was_right_lately_is_not_held_up() {
    let stage = asking(&[("ann", "a long password")]).await;
    assert_eq!(stage.get("/v1/networks", &with("ann", "a long password")).await.unwrap().0, 200);
    let mut answers = Vec::new();
    for guess in 0..12 {
        answers.push(stage.get("/v1/networks", &with("ann", &guess.to_string())).await.unwrap().0);
    }
    assert_eq!(answers[..5], [401; 5], "{answers:?}");
    assert_eq!(answers[11], 429, "{answers:?}");
    let (status, _, text) = stage.get("/metrics", &with("ann", "a long password")).await.unwrap();
    assert_eq!(status, 200, "the right one is held up");
    assert!(!text.contains("spand_api_refused_total{api=\"http\",reason=\"attempts\"} 0"), "{text}");
    stage.stop();
}

#[tokio::test]
async fn who_guesses_makes_nobody_else_wait() {
    let stage = asking(&[("ann", "a long password"), ("ben", "another")]).await;
    assert_eq!(stage.get("/v1/networks", &with("ann", "a long password")).await.unwrap().0, 200);
    let guesses: Vec<String> = (0..60).map(|guess| with("ann", &guess.to_string())).collect();
    let guesses = join_all(guesses.iter().map(|head| stage.get("/v1/networks", head)));
    let answers: Vec<u16> = guesses.await.into_iter().map(|answer| answer.unwrap().0).collect();
    let count = |status| answers.iter().filter(|answer| **answer == status).count();
    // Each that was looked at is one of six that waited; all others were refused without waiting.
    assert!((1..=10).contains(&count(401)), "{answers:?}");
    assert_eq!(count(401) + count(429) + count(503), 60, "{answers:?}");
    assert!(count(503) > 0, "the queue has no end: {answers:?}");
    let (status, _, text) = stage.get("/metrics", &with("ann", "a long password")).await.unwrap();
    assert_eq!(status, 200, "who was right lately is held up");
    assert!(!text.contains("spand_api_refused_total{api=\"http\",reason=\"busy\"} 0\n"), "{text}");
    stage.stop();
}

#[tokio::test]
async fn a_changed_password_is_in_force_and_a_broken_file_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passwords");
    write(&file, &[("ann", "old")]);
    let more = format!("[admin]\npasswords = \"{}\"\n", file.display());
    let stage = Setup::with(&more).unwrap().start().await.unwrap();
    let status = async |password: &str| stage.get("/v1/networks", &with("ann", password)).await.unwrap().0;
    assert_eq!(status("old").await, 200);
    for broken in ["", "ann:plain", "ann"] {
        fs::write(&file, broken).unwrap();
        stage.access.look();
        stage.access.look();
        assert_eq!(status("old").await, 200, "{broken:?}");
    }
    write(&file, &[("ann", "new")]);
    stage.access.look();
    assert_eq!((status("old").await, status("new").await), (401, 200));
    let (_, _, text) = stage.get("/metrics", &with("ann", "new")).await.unwrap();
    assert!(text.contains("spand_passwords_reload_failures_total 3"), "{text}");
    stage.stop();
}

#[tokio::test]
async fn pages_of_others_get_nothing() {
    let stage = Setup::with("[admin]\nhosts = [\"gateway.example.org\"]\n").unwrap().start().await.unwrap();
    let status = async |head: &str| stage.get("/v1/networks", head).await.unwrap().0;
    // By rebinding: a name of the attacker's leads here.
    assert_eq!(status("Host: evil.example:7480\r\n").await, 421);
    let (status_of_one_label, _, body) = stage.get("/v1/networks", "Host: evil\r\n").await.unwrap();
    assert_eq!(status_of_one_label, 421, "a name without a dot");
    assert!(body.contains("`evil`") && body.contains("admin.hosts"), "{body}");
    let own = nix::unistd::gethostname().unwrap().into_string().unwrap();
    assert_eq!(status(&format!("Host: {own}:7480\r\n")).await, 200);
    assert_eq!(status("Host: gateway.example.org:7480\r\n").await, 200);
    assert_eq!(status("Host: 127.0.0.1\r\n").await, 200);
    // By a request that a page elsewhere has the browser send.
    assert_eq!(status("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n").await, 403);
    assert_eq!(status("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n").await, 200);
    assert_eq!(status("Host: localhost\r\nSec-Fetch-Site: same-origin\r\nOrigin: http://localhost\r\n").await, 200);
    assert_eq!(status("Host: localhost\r\nOrigin: http://evil.example\r\n").await, 403);
    assert_eq!(status("Host: localhost\r\nOrigin: null\r\n").await, 403);
    assert_eq!(stage.refused("http", "host").await.unwrap(), 2);
    assert_eq!(stage.refused("http", "site").await.unwrap(), 3);
    // What is answered goes into nobody's frame, cache or page.
    for path in ["/", "/v1/networks", "/metrics", "/dashboard/app.js", "/nowhere"] {
        let head = stage.get(path, "Host: localhost\r\n").await.unwrap().1.to_lowercase();
        for wanted in ["frame-ancestors 'none'", "x-content-type-options: nosniff", "referrer-policy: no-referrer"] {
            assert!(head.contains(wanted), "{path}: {head}");
        }
    }
    stage.stop();
}

#[tokio::test]
async fn https_is_spoken_with_the_gateways_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passwords");
    write(&file, &[("ann", "secret")]);
    let more = format!("[admin]\ntls = true\npasswords = \"{}\"\n", file.display());
    let stage = Setup::with(&more).unwrap().start().await.unwrap();
    assert!(stage.get("/healthz", "Host: localhost\r\n").await.is_err(), "plain HTTP is answered");
    let mut roots = rustls::RootCertStore::empty();
    let pem = stage.authority.certificate();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let tcp = TcpStream::connect(stage.http).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let tls = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
    let (mut send, connection) = http1::handshake(TokioIo::new(tls)).await.unwrap();
    tokio::spawn(connection);
    let uri: Uri = "/v1/networks".parse().unwrap();
    let credentials = format!("Basic {}", BASE64_STANDARD.encode("ann:secret"));
    let request = hyper::Request::get(uri).header("Host", "localhost").header("Authorization", credentials);
    let answer = send.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("192.0.2.0/24"));
    stage.stop();
}

// What the log says of agents that come and leave.

/// The one line of an end, once it is there.
async fn end_line(log: Log, before: usize) -> String {
    let found = async {
        loop {
            let lines = log.lines("unsubscribed: ");
            if lines.len() > before {
                assert_eq!(lines.len(), before + 1, "{lines:?}");
                break lines[before].clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    awaited("the line of an end", found).await
}

#[tokio::test]
async fn the_log_says_who_came_who_left_and_why() {
    let log = Log::of_this_thread();
    let stage = Setup::new().unwrap().start().await.unwrap();
    let made = stage.authority.make(&["web-1.example.org", "127.0.0.1"]).unwrap();

    // The stream alone: its connection stays.
    let mut client = stage.client(Some(&made)).await.unwrap();
    let stream = client.subscribe(wish()).await.unwrap().into_inner();
    assert_eq!(log.lines(" subscribed").len(), 1);
    drop(stream);
    let line = end_line(log, 0).await;
    assert!(line.contains("it ended the stream") && line.contains("host_name=web-1"), "{line}");
    assert!(line.contains("web-1.example.org at 127.0.0.1") && line.contains("after_s=0"), "{line}");

    // A certificate that ends takes the stream with it.
    let wanted = Wanted { age: HOUR, life: HOUR + Duration::from_secs(2), ..Wanted::default() };
    let short = stage.authority.make_wanted(&wanted).unwrap();
    assert!(ends(subscribed(&stage, &short).await).await, "still sent estimates after the end");
    let line = end_line(log, 1).await;
    assert!(line.contains("its certificate holds no more"), "{line}");

    // The gateway's own end.
    let stream = subscribed(&stage, &made).await;
    stage.stop();
    assert!(ends(stream).await);
    let line = end_line(log, 2).await;
    assert!(line.contains("the gateway stops"), "{line}");
}
