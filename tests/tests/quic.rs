//! QUIC connections of quinn that start on the agent's advice: a server, a client and the agent's socket on loopback.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig};
use rustls::RootCertStore;
use rustls::pki_types::PrivatePkcs8KeyDer;
use spand_advice::quinn::{Advised, Base};
use spand_advice::{Adviser, Question};
use spand_agent::Clock;
use spand_agent::applications::{Applications, Heard, report_of};
use spand_agent::config::Config;
use spand_agent::policy::{Advice, Connection, Question as Asked};
use spand_needs::{Need, needs};
use spand_proto::made_up::estimate;
use spand_proto::network::Network;
use spand_proto::report::{Arm, ConnectionReport};
use spand_proto::resume::Phase;
use spand_proto::units::{Bytes, BytesPerSecond, Micros, Segments, Window};
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::topology::{NetworkPlan, SERVER_V4, Topology};

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// quinn's own first window.
const PLAIN: u64 = 12_000;
const BYTES: usize = 300_000;

/// The agent's end, with a share of forty segments for loopback. In `paper` mode the round trip of a path is not checked: loopback's is
/// another one than the estimate's.
fn agent(folder: &Path) -> Applications {
    let text = format!(
        "mode = \"paper\"\n[applications]\nsocket = \"{}\"\n[bpf]\ncontrol_fraction = 0.0\n[holdout]\nfraction = 0.0",
        folder.join("a.sock").display()
    );
    let config = Config::parse(&text, Path::new("agent.toml")).unwrap();
    let clock = Clock::start();
    let applications = Applications::listen(&config, clock).unwrap().unwrap();
    let (network, now) = ("127.0.0.0/24".parse().unwrap(), clock.now());
    let estimate = estimate(network, Window::from_segments(Segments(40), Bytes(1_448)), now);
    let advice = Advice { estimate, lease: None, expires: now.after(Micros::from_secs(60)) };
    let connection = Connection::default();
    let question =
        Asked { network, within: None, advice: Some(&advice), now, wall_unix_s: 0, paused: false, connection };
    applications.offer(&question);
    applications
}

/// What a server's connection met.
struct Met {
    /// Its congestion window at the beginning of the transfer, and at the end.
    windows: [u64; 2],
    sent_packets: u64,
}

/// One transfer of a server to a client, both here.
async fn transfer(adviser: &Adviser, base: Base) -> Met {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap();
    let server = Endpoint::server(config.clone(), SocketAddr::new(LOOPBACK, 0)).unwrap();
    let address = server.local_addr().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = tokio::spawn(async move {
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let mut endpoint = Endpoint::client(SocketAddr::new(LOOPBACK, 0)).unwrap();
        endpoint.set_default_client_config(ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap())));
        let connection = endpoint.connect(address, "localhost").unwrap().await.unwrap();
        let (mut to, mut from) = connection.open_bi().await.unwrap();
        to.write_all(b"all").await.unwrap();
        to.finish().unwrap();
        let got = from.read_to_end(usize::MAX).await.unwrap();
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        got.len()
    });
    let incoming = server.accept().await.unwrap();
    let question = Question::of(incoming.remote_address()).local(address);
    let mut transport = TransportConfig::default();
    // No probes of larger packets: segments are of one size.
    transport.mtu_discovery_config(None);
    transport.congestion_controller_factory(Arc::new(Advised::new(adviser.clone(), question).over(base)));
    let mut config = config;
    config.transport_config(Arc::new(transport));
    let connection = incoming.accept_with(Arc::new(config)).unwrap().await.unwrap();
    let (mut to, mut from) = connection.accept_bi().await.unwrap();
    from.read_to_end(100).await.unwrap();
    let before = connection.stats().path.cwnd;
    to.write_all(&vec![0; BYTES]).await.unwrap();
    to.finish().unwrap();
    connection.closed().await;
    assert_eq!(client.await.unwrap(), BYTES);
    let path = connection.stats().path;
    Met { windows: [before, path.cwnd], sent_packets: path.sent_packets }
}

/// An application that has the network's advice.
fn application(folder: &Path) -> Adviser {
    let adviser = Adviser::connect(folder.join("a.sock"), "test");
    let held = adviser.start_within(&Question::of(SocketAddr::new(LOOPBACK, 9)), Duration::from_secs(20));
    assert!(held.start().is_ok(), "{:?}", held.start());
    adviser
}

/// The next report of a connection that is over.
async fn report(agent: &mut Applications) -> ConnectionReport {
    report_from(agent, LOOPBACK).await
}

/// The same of a host with this address.
async fn report_from(agent: &mut Applications, host: IpAddr) -> ConnectionReport {
    loop {
        let heard = tokio::time::timeout(Duration::from_secs(20), agent.hear()).await.expect("a report");
        if let Heard::Ended(ended) = heard
            && !ended.goes_on
        {
            return report_of(&ended, &[host]).unwrap().report;
        }
    }
}

#[tokio::test]
async fn a_connection_starts_at_the_share_over_each_algorithm_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = agent(folder.path());
    let adviser = application(folder.path());
    // As many packets as segments, which are larger.
    let share = 40 * 1_200;
    for base in [Base::Cubic, Base::NewReno, Base::Bbr] {
        let met = transfer(&adviser, base).await;
        let grown = if base == Base::Bbr { 4 * 1_200 } else { 0 };
        assert!((share..=share + grown).contains(&met.windows[0]), "{base:?}: {}", met.windows[0]);
        let report = report(&mut agent).await;
        assert_eq!((report.arm, report.advised), (Some(Arm::Advised), Some(Segments(40))), "{base:?}");
        assert!(report.acknowledged.0 >= BYTES as u64, "{report:?}");
        assert!(report.acknowledged.0 <= met.sent_packets * 1_200, "{report:?}");
        assert_eq!((report.host.ip(), report.remote.ip(), report.mss), (LOOPBACK, LOOPBACK, Some(Bytes(1_200))));
        assert!(report.rtt_min.is_some() && report.srtt.is_some() && report.duration.is_some(), "{report:?}");
        assert_eq!(report.end_window, Some(Bytes(met.windows[1])), "{base:?}");
        assert!(report.first_flight_loss.is_some(), "{report:?}");
    }
}

#[tokio::test]
async fn with_a_threshold_the_window_grows_slowly_until_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = agent(folder.path());
    for base in [Base::Cubic, Base::NewReno] {
        let met = transfer(&application(folder.path()), base).await;
        let report = report(&mut agent).await;
        // Loopback loses packets where a socket's buffer overflows.
        if report.retransmitted == Segments(0) {
            let [before, after] = met.windows;
            assert!((before + 1_200..before + 20 * 1_200).contains(&after), "{base:?}: {before} to {after}");
        }
    }
}

#[tokio::test]
async fn without_an_agent_a_connection_starts_as_quinn_does() {
    let folder = tempfile::tempdir().unwrap();
    let adviser = Adviser::connect(folder.path().join("none.sock"), "test");
    for base in [Base::Cubic, Base::NewReno] {
        assert_eq!(transfer(&adviser, base).await.windows[0], PLAIN, "{base:?}");
    }
}

/// The example's server behind a path, and one transfer from it: the report, and the packets that were sent.
fn over_a_path(path: &PathConfig, share_segments: u32, start: &str, bytes: u64) -> (ConnectionReport, u64) {
    let network: Network = "198.51.100.0/24".parse().unwrap();
    let lab = Topology::build(&[NetworkPlan { prefix: network.prefix(), clients: 1, path: *path }]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{start}\n[applications]\nsocket = \"{}\"\n[bpf]\ncontrol_fraction = 0.0\n[holdout]\nfraction = 0.0",
        folder.path().join("a.sock").display()
    );
    let config = Config::parse(&text, Path::new("agent.toml")).unwrap();
    let clock = Clock::start();
    let mut agent = Applications::listen(&config, clock).unwrap().unwrap();
    let now = clock.now();
    let mut estimate = estimate(network, Window::from_segments(Segments(share_segments), Bytes(1_448)), now);
    let rtt = Some(Micros::from(path.base_rtt()));
    (estimate.rtt_min, estimate.rtt_mean) = (rtt, rtt);
    let advice = Advice { estimate, lease: None, expires: now.after(Micros::from_secs(60)) };
    let connection = Connection::default();
    let advice = Some(&advice);
    agent.offer(&Asked { network, within: None, advice, now, wall_unix_s: 0, paused: false, connection });
    let quic = env!("CARGO_BIN_EXE_quic");
    let (server, certificate) = (SocketAddr::new(SERVER_V4.into(), 4_433), folder.path().join("certificate"));
    let mut serve = lab.server.command(quic);
    serve.args(["serve", &server.to_string()]).arg(&certificate).arg(folder.path().join("a.sock"));
    let mut serve = serve.stdout(Stdio::piped()).spawn().unwrap();
    let mut served = BufReader::new(serve.stdout.take().unwrap()).lines();
    let begin = Instant::now();
    while !certificate.exists() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut last = None;
    // The first connection makes the server ask for the network.
    for bytes in [2_000, bytes] {
        let mut fetch = lab.networks[0].namespace.command(quic);
        let fetch = fetch.args(["fetch", &server.to_string()]).arg(&certificate).arg(bytes.to_string());
        assert!(fetch.stdout(Stdio::null()).status().unwrap().success());
        let line: serde_json::Value = serde_json::from_str(&served.next().unwrap().unwrap()).unwrap();
        let sent_packets = line["sent_packets"].as_u64().unwrap();
        last = Some((runtime.block_on(report_from(&mut agent, SERVER_V4.into())), sent_packets));
    }
    serve.kill().unwrap();
    serve.wait().unwrap();
    last.unwrap()
}

fn way(kilobytes: u64, one_way_ms: u64, packets: u32) -> PathConfig {
    let rate = BytesPerSecond(kilobytes * 1_000);
    PathConfig::bottleneck(rate, Duration::from_millis(one_way_ms), Queue::Packets(packets))
}

#[test]
fn a_connection_resumes_carefully_and_retreats_where_the_jump_does_not_fit() {
    if !needs(Need::Root) {
        return;
    }
    let resumed = |path: &PathConfig| over_a_path(path, 100, "[start]\nrule = \"rfc9959\"", 1_500_000).0;
    let report = resumed(&way(1_250, 50, 1_000));
    assert_eq!(report.careful_resume, Some(Phase::Validating), "{report:?}");
    assert_eq!(report.retransmitted, Segments(0), "{report:?}");
    let report = resumed(&way(250, 20, 20));
    assert_eq!(report.careful_resume, Some(Phase::SafeRetreat), "{report:?}");
}

/// Packets of a connection whose transfer is forty packets on advice of forty.
fn paced_flight() -> u64 {
    let (report, sent_packets) = over_a_path(&way(500, 100, 1_000), 40, "", 46_080);
    assert_eq!(report.advised, Some(Segments(40)), "{report:?}");
    sent_packets
}

#[test]
fn a_paced_flight_leaves_in_whole_packets() {
    if !needs(Need::Root) {
        return;
    }
    // Forty of data, those of the handshake, and acknowledgements. On a busy machine timers add some, so the least of three runs counts.
    let sent: Vec<u64> = (0..3).map(|_| paced_flight()).collect();
    assert!(sent.iter().min() <= Some(&(40 + 8)), "{sent:?}");
    println!("{sent:?} packets");
}
