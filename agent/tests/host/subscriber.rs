//! The subscription against a gateway in this process.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spand_agent::subscriber::{Dialer, Holdings, QUEUE, Signal, Subscriber, Timing};
use spand_agent::{Clock, config};
use spand_proto::contract::{ContractVersion, HostName};
use spand_proto::push::{AgentDescription, ApplyMethod, ResyncReason, UpdateEvent};
use spand_proto::start::Mode;
use spand_proto::units::Micros;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::support::gateway::{Gateway, Stream, advised, estimate};
use crate::support::namespace::{awaited, eventually, in_namespace, ip, try_ip, two_uplinks};

/// A subscriber of `gateway`.
fn subscribe(gateway: &Gateway) -> Subscribed {
    subscribe_to(&[gateway.url()], Timing::default())
}

/// The same of these gateways.
fn subscribe_to(urls: &[String], timing: Timing) -> Subscribed {
    let urls = Some(urls.to_vec());
    subscribe_as(config::Gateway { urls, ..config::Gateway::default() }, timing)
}

/// The same as configured here, but that it soon tries again.
fn subscribe_as(gateway: config::Gateway, timing: Timing) -> Subscribed {
    let (signals, heard) = mpsc::channel(QUEUE);
    let (change_addresses, addresses) = watch::channel(vec!["203.0.113.10".parse().unwrap()]);
    let gateway = config::Gateway {
        url: None,
        retry_min_ms: 20.try_into().unwrap(),
        retry_max_ms: 100.try_into().unwrap(),
        ..gateway
    };
    let name = HostName::try_from("web-1".to_owned()).unwrap();
    let description = AgentDescription {
        version: "1.2.3".to_owned(),
        mode: Some(Mode::Observe),
        method: Some(ApplyMethod::DryRun),
        pause: None,
    };
    let dialer = Dialer::new(&config::Config { gateway, ..config::Config::default() }).unwrap().with_timing(timing);
    tokio::spawn(Subscriber::new(Arc::new(dialer), Clock::start(), (name, description), signals).run(addresses));
    let holdings = Holdings::new(100.try_into().unwrap(), Micros::from_secs(60));
    Subscribed { signals: heard, holdings, addresses: change_addresses }
}

/// A subscriber's signals, what it holds, and the means to change its addresses.
struct Subscribed {
    signals: mpsc::Receiver<Signal>,
    holdings: Holdings,
    addresses: watch::Sender<Vec<IpAddr>>,
}

impl Subscribed {
    async fn next(&mut self) -> Signal {
        awaited("a signal", self.signals.recv()).await.expect("a subscriber")
    }

    /// Takes in signals until `last` is among them.
    async fn until(&mut self, last: impl Fn(&Signal) -> bool) {
        loop {
            let signal = self.next().await;
            match &signal {
                Signal::Connected(_) => self.holdings.on_new_stream(),
                Signal::Event(event, now) => drop(self.holdings.on_event(event, *now)),
                _ => {}
            }
            if last(&signal) {
                return;
            }
        }
    }

    /// The same to the end of a snapshot; the networks that are held then.
    async fn synchronised(&mut self) -> Vec<String> {
        self.until(is_snapshot_end).await;
        self.held()
    }

    fn held(&self) -> Vec<String> {
        self.holdings.iter().map(|(network, _)| network.to_string()).collect()
    }

    /// The gateway of the next stream; failures before it are passed over.
    async fn connected(&mut self) -> String {
        loop {
            if let Signal::Connected(url) = self.next().await {
                return url;
            }
        }
    }
}

fn is_snapshot_end(signal: &Signal) -> bool {
    matches!(signal, Signal::Event(event, _) if matches!(**event, UpdateEvent::SnapshotEnd { .. }))
}

#[tokio::test]
async fn a_resync_replaces_everything_at_its_end() {
    let mut gateway = Gateway::start().await;
    let mut host = subscribe(&gateway);
    let mut stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60), estimate("198.51.100.0/24", 40, 60)]).await;
    assert_eq!(host.synchronised().await, ["192.0.2.0/24", "198.51.100.0/24"]);

    stream.skip(7);
    stream.send(UpdateEvent::Resync { reason: ResyncReason::SlowReader, dropped_updates: 7 }).await;
    host.until(|signal| *signal == Signal::Gap).await;
    stream.snapshot(&[estimate("198.51.100.0/24", 50, 60)]).await;
    assert_eq!(host.synchronised().await, ["198.51.100.0/24"]);
    assert_eq!((host.holdings.counts().resyncs, host.holdings.counts().dropped_by_snapshot), (1, 1));
}

#[tokio::test]
async fn a_lost_gateway_is_found_again_and_nothing_old_is_renewed() {
    let mut gateway = Gateway::start().await;
    let address = gateway.address;
    let mut host = subscribe(&gateway);
    let stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
    host.synchronised().await;
    let expires = host.holdings.iter().next().unwrap().1.expires;

    drop((stream, gateway));
    host.until(|signal| matches!(signal, Signal::Lost { .. })).await;
    let mut gateway = Gateway::start_at(address).await;
    let mut stream = gateway.subscribed().await;
    stream.send(UpdateEvent::Renewal { lifetime: Micros::from_secs(60) }).await;
    host.until(|signal| matches!(signal, Signal::Event(..))).await;
    assert_eq!(host.holdings.iter().next().unwrap().1.expires, expires, "this stream did not give it");
    stream.snapshot(&[]).await;
    host.synchronised().await;
    assert!(host.holdings.is_empty());
}

#[tokio::test]
async fn a_gateway_that_says_nothing_is_left() {
    let mut gateway = Gateway::start().await;
    let (urls, idle_timeout_s) = (Some(vec![gateway.url()]), 1.try_into().unwrap());
    let quick = config::Gateway { urls, idle_timeout_s, ..config::Gateway::default() };
    let mut host = subscribe_as(quick, Timing::default());
    let _silent = gateway.subscribed().await;
    assert!(matches!(host.next().await, Signal::Connected(_)));
    let Signal::Lost { why, .. } = host.next().await else { panic!("the stream goes on") };
    assert_eq!(why, "no message from the gateway for 1s");
    gateway.subscribed().await;
}

#[tokio::test]
async fn an_update_that_cannot_be_read_is_named_by_its_network() {
    let mut gateway = Gateway::start().await;
    let mut host = subscribe(&gateway);
    let mut stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
    host.synchronised().await;
    stream.send_newer_rule("192.0.2.0/24").await;
    assert_eq!(host.next().await, Signal::Unreadable(Some("192.0.2.0/24".parse().unwrap())));
}

#[tokio::test]
async fn new_addresses_start_the_subscription_over_at_once() {
    let mut gateway = Gateway::start().await;
    let host = subscribe(&gateway);
    assert_eq!(gateway.snapshot(&[]).await.request.addresses, ["203.0.113.10"]);
    host.addresses.send(vec!["203.0.113.11".parse().unwrap()]).unwrap();
    assert_eq!(gateway.subscribed().await.request.addresses, ["203.0.113.11"]);
}

#[tokio::test]
async fn a_busy_agent_makes_the_gateway_wait() {
    let mut gateway = Gateway::start().await;
    let mut host = subscribe(&gateway);
    let mut stream = gateway.snapshot(&[]).await;
    // Nobody takes the signals; the queue, the stream and HTTP/2's windows fill up.
    let mut sent = 0u64;
    while tokio::time::timeout(Duration::from_millis(500), stream.advise("192.0.2.0/24", 40, 60)).await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "nothing bounds the stream");
    }
    host.until(|_| true).await;
    while host.holdings.counts().estimates < sent {
        host.until(|_| true).await;
    }
}

#[tokio::test]
async fn gateways_are_tried_in_order_from_the_top_after_each_loss() {
    let mut gateways = [Gateway::start().await, Gateway::start().await, Gateway::start().await];
    let urls = gateways.each_ref().map(Gateway::url);
    let mut host = subscribe_to(&urls, Timing { spread: Duration::ZERO, ..Timing::default() });
    assert_eq!(host.connected().await, urls[0]);
    let stream = gateways[0].snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
    host.synchronised().await;

    gateways[0].stop();
    drop(stream);
    host.until(|signal| matches!(signal, Signal::Lost { gateway, .. } if *gateway == urls[0])).await;
    assert_eq!(host.connected().await, urls[1]);
    assert_eq!(host.held(), ["192.0.2.0/24"], "advice of the first one lives on");
    host.holdings.on_new_stream();
    let stream = gateways[1].snapshot(&[estimate("198.51.100.0/24", 40, 60)]).await;
    assert_eq!(host.synchronised().await, ["198.51.100.0/24"]);

    let address = gateways[0].address;
    gateways[0] = Gateway::start_at(address).await;
    gateways[1].stop();
    drop(stream);
    assert_eq!(host.connected().await, urls[0], "from the top");
    // A gateway that ends each stream before its snapshot is whole counts as failed.
    let address = gateways[1].address;
    gateways[1] = Gateway::start_at(address).await;
    let stream = gateways[0].snapshot(&[]).await;
    host.synchronised().await;
    gateways[0].stop();
    drop(stream);
    assert_eq!(host.connected().await, urls[1]);
    drop(gateways[1].subscribed().await);
    assert_eq!(host.connected().await, urls[2]);
    assert_eq!(gateways[2].subscribed().await.request.addresses, ["203.0.113.10"]);
}

/// A proxy to `to` on a port of its own, and the means to silence it: then nothing is passed on and no connection is closed.
async fn proxy(to: std::net::SocketAddr) -> (String, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (silence, silenced) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(to).await.unwrap();
            let mut silenced = silenced.clone();
            tokio::spawn(async move {
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    _ = silenced.changed() => std::future::pending().await,
                }
            });
        }
    });
    (url, silence)
}

#[tokio::test]
async fn a_gateway_that_dies_silently_is_noticed_by_its_missing_sign_of_life() {
    let standard = Timing::default();
    assert_eq!((standard.ping_after, standard.ping_timeout), (Duration::from_secs(5), Duration::from_secs(5)));

    let mut gateway = Gateway::start().await;
    let (url, silence) = proxy(gateway.address).await;
    // Long enough for a busy machine to answer.
    let quick = Duration::from_millis(500);
    let mut host = subscribe_to(&[url], Timing { ping_after: quick, ping_timeout: quick, ..standard });
    let _stream = gateway.snapshot(&[]).await;
    host.synchronised().await;
    // Pings keep it open where they are answered.
    assert!(tokio::time::timeout(3 * quick, host.signals.recv()).await.is_err());
    let died = Instant::now();
    silence.send(true).unwrap();
    let Signal::Lost { why, .. } = host.next().await else { panic!("the stream goes on") };
    assert_eq!(why, "the connection to the gateway was closed, or gave no sign of life for 1s");
    assert!(died.elapsed() < standard.ping_after, "{:?}", died.elapsed());
}

#[tokio::test]
async fn a_host_returns_to_an_earlier_gateway_without_a_gap_in_its_advice() {
    let gone = Gateway::start().await;
    let (first, address) = (gone.url(), gone.address);
    gone.stop();
    drop(gone);
    let mut other = Gateway::start().await;
    let timing = Timing { failback: Duration::from_millis(200), ..Timing::default() };
    let mut host = subscribe_to(&[first.clone(), other.url()], timing);
    let mut stream = other.snapshot(&[estimate("192.0.2.0/24", 40, 60), estimate("198.51.100.0/24", 40, 60)]).await;
    host.synchronised().await;
    // While the first one does not answer the stream goes on.
    let is_not_back = |signal: &Signal| matches!(signal, Signal::NotBack { gateway, .. } if *gateway == first);
    assert!(is_not_back(&host.next().await));

    let mut preferred = Gateway::start_at(address).await;
    let mut new = preferred.subscribed().await;
    let networks = 1;
    new.send(UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks, cluster: None }).await;
    new.advise("203.0.113.0/24", 40, 60).await;
    // Until the snapshot is whole, too.
    stream.advise("192.0.2.0/24", 41, 60).await;
    host.until(|signal| matches!(signal, Signal::Event(event, _) if matches!(**event, UpdateEvent::Estimate(_)))).await;
    assert_eq!(host.held().len(), 2);
    new.send(UpdateEvent::SnapshotEnd { networks }).await;
    assert_eq!(host.connected().await, first);
    stream.closed().await;
    host.holdings.on_new_stream();
    assert_eq!(host.synchronised().await, ["203.0.113.0/24"]);
    assert!(tokio::time::timeout(Duration::from_secs(1), host.signals.recv()).await.is_err(), "it stays there");
}

// Routes, links and advice that change at random under a running agent.

/// Networks 100.64.0.0/24 to 100.64.9.0/24.
const NETWORKS: u64 = 10;
const STEPS: u32 = 120;

/// Numbers that look random and are the same in every run with the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % limit
    }
}

/// Every IPv4 route but those with the agent's number, without the kernel's remarks about links.
fn foreign() -> Vec<String> {
    let theirs = |line: &&str| !line.contains("proto 83");
    let plain = |line: &str| line.replace(" linkdown", "").replace(" dead", "");
    let mut routes: Vec<String> = ip("-4 route show table all").lines().filter(theirs).map(plain).collect();
    routes.sort();
    routes
}

/// What an administrator, a link or the gateway may do. An `ip` that fails (a route that is there already) is part of it.
async fn step(dice: &mut Dice, stream: &mut Stream) {
    let network = format!("100.64.{}.0/24", dice.below(NETWORKS));
    let uplink = dice.below(2);
    let gateway = format!("10.{}.0.1", uplink + 1);
    match dice.below(10) {
        0 => _ = try_ip(&format!("route replace default via {gateway}")),
        1 => _ = try_ip(&format!("route add {network} via {gateway}")),
        2 => _ = try_ip(&format!("route del {network} proto boot")),
        3 => _ = try_ip(&format!("route replace 100.64.0.0/21 via {gateway}")),
        4 => _ = try_ip("route del 100.64.0.0/21"),
        5 => _ = try_ip(&format!("link set up{uplink} down")),
        6 => {
            for n in 0..2 {
                _ = try_ip(&format!("link set up{n} up"));
            }
            _ = try_ip(&format!("route replace default via {gateway}"));
        }
        7 => {
            stream.withdraw(&network).await;
        }
        _ => {
            let share = 24 + u32::try_from(dice.below(30)).unwrap();
            stream.advise(&network, share, 60).await;
        }
    }
}

#[test]
fn no_foreign_route_is_touched_and_no_copy_is_stale_however_things_change() {
    for seed in [1, 4] {
        in_namespace(|| churn(seed));
    }
}

async fn churn(seed: u64) {
    two_uplinks();
    let estimates: Vec<_> = (0..NETWORKS).map(|n| estimate(&format!("100.64.{n}.0/24"), 40, 60)).collect();
    let (_gateway, mut agent, mut stream) = advised("apply = \"route\"", "", &estimates).await;
    let mut dice = Dice(seed);
    for number in 0..STEPS {
        step(&mut dice, &mut stream).await;
        let after_step = foreign();
        tokio::time::sleep(Duration::from_millis(dice.below(60))).await;
        assert_eq!(foreign(), after_step, "seed {seed}, step {number}: only the agent was awake");
    }

    // Both links up and one path: the copies must follow it.
    for n in 0..2 {
        ip(&format!("link set up{n} up"));
    }
    _ = try_ip("route del 100.64.0.0/21");
    ip("route replace default via 10.2.0.1");
    for n in 0..NETWORKS {
        _ = try_ip(&format!("route del 100.64.{n}.0/24 proto boot"));
        stream.advise(&format!("100.64.{n}.0/24"), 40, 60).await;
    }
    let ours = || ip("route show proto 83");
    let complete =
        || ours().lines().filter(|line| line.contains("via 10.2.0.1 dev up1 metric 21328 initcwnd 20")).count();
    eventually("every network follows the new path", || complete() == 10).await;
    assert_eq!(ours().lines().count(), 10, "and nothing else: {}", ours());
    assert_eq!(agent.counts("stepped_back"), 0, "seed {seed}");
    let before = foreign();
    assert_eq!(agent.stop(), Some(0));
    assert_eq!((ours().as_str(), foreign()), ("", before));
}
