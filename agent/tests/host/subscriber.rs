//! The subscription against a gateway in this process.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use spand_agent::Clock;
use spand_agent::config;
use spand_agent::subscriber::{Dialer, Holdings, QUEUE, Signal, Subscriber};
use spand_proto::contract::HostName;
use spand_proto::push::{AgentDescription, ApplyMethod, ResyncReason, UpdateEvent};
use spand_proto::start::Mode;
use spand_proto::units::Micros;
use tokio::sync::{mpsc, watch};

use crate::support::gateway::{Gateway, estimate};

const SOON: Duration = Duration::from_secs(10);

/// A subscriber of `gateway`, its signals, and the means to change its addresses.
fn subscribe(gateway: &Gateway) -> (mpsc::Receiver<Signal>, watch::Sender<Vec<IpAddr>>) {
    let (signals, heard) = mpsc::channel(QUEUE);
    let (change_addresses, addresses) = watch::channel(vec!["203.0.113.10".parse().unwrap()]);
    let gateway = config::Gateway {
        url: gateway.url(),
        idle_timeout_s: 2.try_into().unwrap(),
        retry_min_ms: 20.try_into().unwrap(),
        retry_max_ms: 100.try_into().unwrap(),
        ..config::Gateway::default()
    };
    let name = HostName::try_from("web-1".to_owned()).unwrap();
    let description = AgentDescription {
        version: "1.2.3".to_owned(),
        mode: Some(Mode::Observe),
        method: Some(ApplyMethod::DryRun),
        pause: None,
    };
    let dialer = Dialer::new(&config::Config { gateway, ..config::Config::default() }).unwrap();
    tokio::spawn(Subscriber::new(Arc::new(dialer), Clock::start(), (name, description), signals).run(addresses));
    (heard, change_addresses)
}

async fn next(heard: &mut mpsc::Receiver<Signal>) -> Signal {
    tokio::time::timeout(SOON, heard.recv()).await.expect("a signal in time").expect("a subscriber")
}

/// Takes in signals until `last` is among them.
async fn until(heard: &mut mpsc::Receiver<Signal>, holdings: &mut Holdings, last: impl Fn(&Signal) -> bool) {
    loop {
        let signal = next(heard).await;
        match &signal {
            Signal::Connected => holdings.on_new_stream(),
            Signal::Event(event, now) => holdings.on_event(event, *now),
            _ => {}
        }
        if last(&signal) {
            return;
        }
    }
}

fn holdings() -> Holdings {
    Holdings::new(100.try_into().unwrap(), Micros::from_secs(60))
}

fn held(holdings: &Holdings) -> Vec<String> {
    holdings.iter().map(|(network, _)| network.to_string()).collect()
}

fn is_snapshot_end(signal: &Signal) -> bool {
    matches!(signal, Signal::Event(event, _) if matches!(**event, UpdateEvent::SnapshotEnd { .. }))
}

#[tokio::test]
async fn a_resync_replaces_everything_at_its_end() {
    let mut gateway = Gateway::start().await;
    let (mut heard, _tell) = subscribe(&gateway);
    let mut holdings = holdings();
    let mut stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60), estimate("198.51.100.0/24", 40, 60)]).await;
    until(&mut heard, &mut holdings, is_snapshot_end).await;
    assert_eq!(held(&holdings), ["192.0.2.0/24", "198.51.100.0/24"]);

    stream.skip(7);
    stream.send(UpdateEvent::Resync { reason: ResyncReason::SlowReader, dropped_updates: 7 }).await;
    until(&mut heard, &mut holdings, |signal| *signal == Signal::Gap).await;
    stream.snapshot(&[estimate("198.51.100.0/24", 50, 60)]).await;
    until(&mut heard, &mut holdings, is_snapshot_end).await;
    assert_eq!(held(&holdings), ["198.51.100.0/24"]);
    assert_eq!((holdings.counts().resyncs, holdings.counts().dropped_by_snapshot), (1, 1));
}

#[tokio::test]
async fn a_lost_gateway_is_found_again_and_nothing_old_is_renewed() {
    let mut gateway = Gateway::start().await;
    let address = gateway.address;
    let (mut heard, _tell) = subscribe(&gateway);
    let mut holdings = holdings();
    let stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
    until(&mut heard, &mut holdings, is_snapshot_end).await;
    let expires = holdings.iter().next().unwrap().1.expires;

    drop((stream, gateway));
    until(&mut heard, &mut holdings, |signal| matches!(signal, Signal::Lost { .. })).await;
    let mut gateway = Gateway::start_at(address).await;
    let mut stream = gateway.subscribed().await;
    stream.send(UpdateEvent::Renewal { lifetime: Micros::from_secs(60) }).await;
    until(&mut heard, &mut holdings, |signal| matches!(signal, Signal::Event(..))).await;
    assert_eq!(holdings.iter().next().unwrap().1.expires, expires, "this stream did not give it");
    stream.snapshot(&[]).await;
    until(&mut heard, &mut holdings, is_snapshot_end).await;
    assert!(holdings.is_empty());
}

#[tokio::test]
async fn a_gateway_that_says_nothing_is_left() {
    let mut gateway = Gateway::start().await;
    let (mut heard, _tell) = subscribe(&gateway);
    let _silent = gateway.subscribed().await;
    assert_eq!(next(&mut heard).await, Signal::Connected);
    let Signal::Lost { why, .. } = next(&mut heard).await else { panic!("the stream goes on") };
    assert_eq!(why, "no message from the gateway for 2s");
    gateway.subscribed().await;
}

#[tokio::test]
async fn an_update_that_cannot_be_read_is_named_by_its_network() {
    let mut gateway = Gateway::start().await;
    let (mut heard, _tell) = subscribe(&gateway);
    let mut holdings = holdings();
    let mut stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
    until(&mut heard, &mut holdings, is_snapshot_end).await;
    stream.send_newer_rule("192.0.2.0/24").await;
    assert_eq!(next(&mut heard).await, Signal::Unreadable(Some("192.0.2.0/24".parse().unwrap())));
}

#[tokio::test]
async fn new_addresses_start_the_subscription_over_at_once() {
    let mut gateway = Gateway::start().await;
    let (_heard, change_addresses) = subscribe(&gateway);
    assert_eq!(gateway.snapshot(&[]).await.request.addresses, ["203.0.113.10"]);
    change_addresses.send(vec!["203.0.113.11".parse().unwrap()]).unwrap();
    assert_eq!(gateway.subscribed().await.request.addresses, ["203.0.113.11"]);
}

#[tokio::test]
async fn a_busy_agent_makes_the_gateway_wait() {
    let mut gateway = Gateway::start().await;
    let (mut heard, _tell) = subscribe(&gateway);
    let mut stream = gateway.snapshot(&[]).await;
    // Nobody takes the signals; the queue, the stream and HTTP/2's windows fill up.
    let mut sent = 0u64;
    while tokio::time::timeout(
        Duration::from_millis(500),
        stream.send(UpdateEvent::Estimate(estimate("192.0.2.0/24", 40, 60))),
    )
    .await
    .is_ok()
    {
        sent += 1;
        assert!(sent < 100_000, "nothing bounds the stream");
    }
    let mut holdings = holdings();
    until(&mut heard, &mut holdings, |_| true).await;
    while holdings.counts().estimates < sent {
        until(&mut heard, &mut holdings, |_| true).await;
    }
}
