//! mTLS between agents and gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use spand_agent::Clock;
use spand_agent::config::{Config as AgentConfig, Gateway, Tls as AgentTls};
use spand_agent::subscriber::{Dialer, QUEUE, Signal, Subscriber};
use spand_gateway::api::ApiConfig;
use spand_proto::contract::HostName;
use spand_proto::push::{AgentDescription, UpdateEvent};
use spand_proto::v1;
use spand_tests::access::{Authority, Log, Made, Setup, Stage, Wanted};
use spand_tests::patience::{PATIENCE, awaited};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn wish() -> v1::SubscribeRequest {
    let addresses = vec!["127.0.0.1".to_owned()];
    v1::SubscribeRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        addresses,
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    }
}

/// The configuration of an agent of `stage` that shows this.
fn agent(stage: &Stage, made: &Made) -> AgentConfig {
    made.write(stage.path(), "agent").unwrap();
    agent_of(stage)
}

/// The configuration of an agent of `stage` that shows what is in `agent.pem`.
pub(super) fn agent_of(stage: &Stage) -> AgentConfig {
    let file = |name: &str| Some(stage.path().join(name));
    let tls = AgentTls { certificate: file("agent.pem"), key: file("agent.key"), ca: file("ca.pem"), name: None };
    let gateway = Gateway { url: Some(format!("https://{}", stage.grpc)), ..Gateway::default() };
    AgentConfig { gateway, tls, ..AgentConfig::default() }
}

/// Subscribes as an agent with this configuration does, until it was sent an estimate.
pub(super) async fn receives_estimates(config: &AgentConfig) {
    let dialer = Arc::new(Dialer::new(config).unwrap());
    assert!(dialer.status().ends_unix_s.is_some());
    let (signals, mut heard) = mpsc::channel(QUEUE);
    let (_tell, own) = watch::channel(vec!["127.0.0.1".parse().unwrap()]);
    let name = HostName::try_from("web-1".to_owned()).unwrap();
    let description = AgentDescription { version: "1".to_owned(), mode: None, method: None, pause: None };
    tokio::spawn(Subscriber::new(dialer, Clock::start(), (name, description), signals).run(own));
    loop {
        match awaited("a signal", heard.recv()).await.unwrap() {
            Signal::Event(event, _) if matches!(*event, UpdateEvent::Estimate(_)) => return,
            Signal::Lost { why, .. } => panic!("{why}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn an_agent_that_is_proven_is_answered_and_sent_estimates() {
    let stage = Setup::new().unwrap().start().await.unwrap();
    let made = stage.authority.make(&["web-1.example.org", "127.0.0.1"]).unwrap();
    stage.answers(Some(&made)).await.unwrap();
    receives_estimates(&agent(&stage, &made)).await;
    let (ends, ca_ends) = (
        stage.metric("spand_tls_not_after_seconds{file=\"certificate\"}").await.unwrap(),
        stage.metric("spand_tls_not_after_seconds{file=\"ca\"}").await.unwrap(),
    );
    assert!(ends > 1_700_000_000 && ca_ends > ends, "{ends} {ca_ends}");
    stage.stop();
}

#[tokio::test]
async fn who_proves_nothing_is_refused_logged_once_and_counted() {
    let log = Log::of_this_thread();
    let stage = Setup::new().unwrap().start().await.unwrap();
    let good = stage.authority.make(&["127.0.0.1"]).unwrap();
    let names = &["127.0.0.1"];
    let other = Authority::new("agents").unwrap().make(names).unwrap();
    let wanted = |age: u32, life: u32| Wanted { names, age: age * HOUR, life: life * HOUR, ..Wanted::default() };
    let ended = stage.authority.make_wanted(&wanted(3, 1)).unwrap();
    let of_a_server = Wanted { usages: &[ExtendedKeyUsagePurpose::ServerAuth], ..wanted(1, 2) };
    let of_a_server = stage.authority.make_wanted(&of_a_server).unwrap();
    let revoked = stage.authority.make(names).unwrap();
    stage.answers(Some(&revoked)).await.unwrap();
    stage.replace("revoked.pem", &stage.authority.revoke(&[&revoked]).unwrap()).unwrap();

    let cases = [
        (None, "no_certificate", "it showed no certificate"),
        (Some(&other), "unknown_ca", "the authority in tls.ca did not make its certificate"),
        (Some(&ended), "expired", "its certificate has expired"),
        (Some(&of_a_server), "certificate", "its certificate does not hold"),
        (Some(&revoked), "revoked", "its certificate was revoked"),
    ];
    for (shows, reason, words) in cases {
        for _ in 0..3 {
            assert!(stage.answers(shows).await.is_err(), "{reason} is let in");
        }
        assert_eq!(stage.refused("grpc", reason).await.unwrap(), 3, "{reason}");
        let lines = log.lines(words);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("127.0.0.1") && lines[0].contains(reason), "{lines:?}");
        stage.answers(Some(&good)).await.unwrap();
    }
    let plain =
        async { stage.plain_client().await?.query(spand_tests::access::question()).await.map_err(anyhow::Error::from) };
    assert!(plain.await.is_err(), "who speaks no TLS is let in");
    assert_eq!(stage.refused("grpc", "tls").await.unwrap(), 1);
    stage.answers(Some(&good)).await.unwrap();
    stage.stop();
}

#[tokio::test]
async fn who_says_nothing_loses_its_place_in_time() {
    let setup = Setup::new().unwrap().limited(|api| api.request_timeout = Duration::from_secs(1));
    let stage = setup.start().await.unwrap();
    let mut silent = TcpStream::connect(stage.grpc).await.unwrap();
    assert!(closed_in_time(&mut silent).await.is_empty());
    assert_eq!(stage.refused("grpc", "timeout").await.unwrap(), 1);
    stage.stop();
}

#[tokio::test]
async fn who_is_proven_and_does_not_begin_to_speak_loses_its_place_in_time() {
    let stage =
        Setup::new().unwrap().limited(|api| api.request_timeout = Duration::from_secs(1)).start().await.unwrap();
    let made = stage.authority.make(&["127.0.0.1"]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let pem = stage.authority.certificate();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let own = vec![CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
    let mut config = config.with_root_certificates(roots).with_client_auth_cert(own, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    for some in ["", "PRI * HTTP"] {
        let tcp = TcpStream::connect(stage.grpc).await.unwrap();
        let mut tls = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
        tls.write_all(some.as_bytes()).await.unwrap();
        closed_in_time(&mut tls).await;
    }
    assert_eq!(stage.refused("grpc", "timeout").await.unwrap(), 2);
    stage.stop();
}

#[tokio::test]
async fn an_agent_refuses_a_gateway_of_another_name_or_authority() {
    let stage = Setup::new().unwrap().start().await.unwrap();
    let made = stage.authority.make(&["127.0.0.1"]).unwrap();
    let config = agent(&stage, &made);
    Dialer::new(&config).unwrap().connect().await.unwrap();
    // Refused by the gateway: the words are not "transport error".
    let other = Authority::new("agents").unwrap().make(&["127.0.0.1"]).unwrap();
    let (signals, mut heard) = mpsc::channel(QUEUE);
    let (_tell, own) = watch::channel(vec!["127.0.0.1".parse().unwrap()]);
    let name = HostName::try_from("web-1".to_owned()).unwrap();
    let description = AgentDescription { version: "1".to_owned(), mode: None, method: None, pause: None };
    let refused = Arc::new(Dialer::new(&agent(&stage, &other)).unwrap());
    tokio::spawn(Subscriber::new(refused, Clock::start(), (name, description), signals).run(own));
    let why = loop {
        if let Signal::Lost { why, .. } = awaited("a signal", heard.recv()).await.unwrap() {
            break why;
        }
    };
    assert!(why.contains("alert"), "{why}");
    made.write(stage.path(), "agent").unwrap();
    let renamed = AgentTls { name: Some("gateway.example.org".to_owned()), ..config.tls.clone() };
    let why = Dialer::new(&AgentConfig { tls: renamed, ..config.clone() }).unwrap().connect().await.unwrap_err();
    assert!(why.contains("gateway.example.org"), "{why}");
    std::fs::write(stage.path().join("other.pem"), Authority::new("agents").unwrap().certificate()).unwrap();
    let other = AgentTls { ca: Some(stage.path().join("other.pem")), ..config.tls.clone() };
    let why = Dialer::new(&AgentConfig { tls: other, ..config }).unwrap().connect().await.unwrap_err();
    assert!(why.contains("certificate"), "{why}");
    stage.stop();
}

/// A stream of updates, and its end.
pub(super) async fn subscribed(stage: &Stage, made: &Made) -> tonic::Streaming<v1::Update> {
    let mut client = stage.client(Some(made)).await.unwrap();
    let mut stream = client.subscribe(wish()).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    stream
}

/// What comes until a gateway that allows a second closes this connection.
pub(super) async fn closed_in_time(connection: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let (began, mut rest) = (Instant::now(), Vec::new());
    // Also where it is reset.
    _ = awaited("its end", connection.read_to_end(&mut rest)).await;
    assert!(began.elapsed() < ApiConfig::default().request_timeout, "the default holds: {:?}", began.elapsed());
    rest
}

pub(super) async fn ends(mut stream: tonic::Streaming<v1::Update>) -> bool {
    tokio::time::timeout(PATIENCE, async { while let Ok(Some(_)) = stream.message().await {} }).await.is_ok()
}

#[tokio::test]
async fn a_connection_ends_with_its_certificate() {
    let stage = Setup::new().unwrap().start().await.unwrap();
    let wanted = Wanted { age: HOUR, life: HOUR + Duration::from_secs(2), ..Wanted::default() };
    let made = stage.authority.make_wanted(&wanted).unwrap();
    assert!(ends(subscribed(&stage, &made).await).await, "still sent estimates after the end");
    assert!(stage.answers(Some(&made)).await.is_err());
    stage.stop();
}

fn report(batch: u64) -> v1::ReportRequest {
    let connection = v1::ConnectionReport {
        host_address: "203.0.113.9".to_owned(),
        host_port: 443,
        remote_address: "192.0.2.7".to_owned(),
        remote_port: 50_000,
        ..v1::ConnectionReport::default()
    };
    v1::ReportRequest {
        contract_version: 1,
        host_name: "web".to_owned(),
        batch,
        agent_started_unix_ns: 1,
        connections: vec![connection],
        pushes: None,
        pause: None,
    }
}

#[tokio::test]
async fn certificates_that_share_a_name_are_of_different_hosts_and_a_renewed_one_is_of_the_same() {
    let stage = Setup::with("[agents.addresses]\n\"*\" = [\"203.0.113.0/24\"]\n").unwrap().start().await.unwrap();
    let accepted = async |names: &[&str]| {
        let made = stage.authority.make(names).unwrap();
        stage.client(Some(&made)).await.unwrap().report(report(1)).await.unwrap().into_inner().accepted
    };
    assert_eq!(accepted(&["cluster.example.org", "web-1.example.org"]).await, 1);
    assert_eq!(accepted(&["cluster.example.org", "web-2.example.org"]).await, 1, "another host's first batch");
    assert_eq!(accepted(&["web-1.example.org", "cluster.example.org"]).await, 0, "the first host's, again");
    stage.stop();
}

#[tokio::test]
async fn new_files_come_into_force_and_broken_ones_do_not() {
    let log = Log::of_this_thread();
    let mut stage = Setup::new().unwrap().start().await.unwrap();
    let old = stage.authority.make(&["127.0.0.1"]).unwrap();
    let stream = subscribed(&stage, &old).await;

    // Broken in each way: what was there stays, logged and counted once however often it is looked at.
    let key = stage.authority.make(&["localhost"]).unwrap().key;
    let good = std::fs::read_to_string(stage.path().join("gateway.key")).unwrap();
    for (attempt, text) in ["", "nonsense", &key].into_iter().enumerate() {
        stage.replace("gateway.key", text).unwrap();
        stage.replace("gateway.key", text).unwrap();
        let failures = stage.metric("spand_tls_reload_failures_total").await.unwrap();
        assert_eq!(failures, attempt as u64 + 1, "after {text:?}");
        assert_eq!(log.lines("the previous ones stay in force").len(), attempt + 1);
        stage.answers(Some(&old)).await.unwrap();
    }
    stage.replace("gateway.key", &good).unwrap();

    // Another certificate of the same authority: connections stay.
    let renewed = stage.authority.make(&["localhost"]).unwrap();
    let (certificate, key) = renewed.write(stage.path(), "renewed").unwrap();
    std::fs::rename(key, stage.path().join("gateway.key")).unwrap();
    std::fs::rename(certificate, stage.path().join("gateway.pem")).unwrap();
    stage.access.look();
    stage.answers(Some(&old)).await.unwrap();

    // Another authority: who was proven by the old one has to go.
    let other = Authority::new("others").unwrap();
    let new = other.make(&["127.0.0.1"]).unwrap();
    let gateway = other.make(&["localhost"]).unwrap();
    gateway.write(stage.path(), "gateway").unwrap();
    std::fs::write(stage.path().join("revoked.pem"), other.revoke(&[]).unwrap()).unwrap();
    stage.replace("ca.pem", &other.certificate()).unwrap();
    stage.authority = other;
    assert!(ends(stream).await, "proven by nobody, and still sent estimates");
    assert!(stage.answers(Some(&old)).await.is_err());
    stage.answers(Some(&new)).await.unwrap();
    stage.stop();
}

#[tokio::test]
async fn what_is_revoked_does_not_stay_connected() {
    let stage = Setup::new().unwrap().start().await.unwrap();
    let made = stage.authority.make(&["127.0.0.1"]).unwrap();
    let stream = subscribed(&stage, &made).await;
    stage.replace("revoked.pem", &stage.authority.revoke(&[&made]).unwrap()).unwrap();
    assert!(ends(stream).await, "revoked, and still sent estimates");
    stage.stop();
}

#[tokio::test]
async fn an_agent_takes_new_files_and_keeps_the_old_ones_over_broken_ones() {
    let stage = Setup::new().unwrap().start().await.unwrap();
    let made = stage.authority.make(&["127.0.0.1"]).unwrap();
    let dialer = Dialer::new(&agent(&stage, &made)).unwrap();
    dialer.connect().await.unwrap();
    let first = dialer.status().ends_unix_s;
    std::fs::write(stage.path().join("agent.key"), "nonsense").unwrap();
    dialer.connect().await.unwrap();
    dialer.connect().await.unwrap();
    assert_eq!((dialer.status().ends_unix_s, dialer.status().failures), (first, 1));
    let wanted = Wanted { life: 5 * HOUR, ..Wanted::default() };
    stage.authority.make_wanted(&wanted).unwrap().write(stage.path(), "agent").unwrap();
    dialer.connect().await.unwrap();
    assert!(dialer.status().ends_unix_s > first);
    // A name that is not there, and a key of another: refused at the start, in a sentence.
    let mut mixed = made;
    mixed.key = stage.authority.make(&["127.0.0.1"]).unwrap().key;
    let mut config = agent(&stage, &mixed);
    let why = Dialer::new(&config).unwrap_err().to_string();
    assert!(why.contains("cannot be used together"), "{why}");
    config.tls.key = Some("none.key".into());
    let why = Dialer::new(&config).unwrap_err().to_string();
    assert!(why.contains("none.key (tls.key)"), "{why}");
    stage.stop();
}
