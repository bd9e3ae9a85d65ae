//! Publishers that share through memory.

use std::net::IpAddr;

use spand_core::sharing::{GatewayId, TapId};
use spand_proto::push::ImminentStart;
use spand_proto::units::Segments;
use spand_share::exchange::LinkState;
use spand_share::format::{FORMAT, Member};
use spand_share::memory::MemoryHub;
use spand_share::{ShareView, Sharing};

use super::*;
use crate::patience::{PATIENCE, eventually};
use crate::publisher::retreat::FirstFlight;

struct Gateway {
    published: Published,
    sharing: Sharing,
}

fn join(hub: &MemoryHub, number: u16) -> Gateway {
    let gateway = GatewayId(number);
    let own = Member {
        gateway,
        tap: TapId::of_gateway(gateway),
        instance: number.into(),
        name: format!("gateway-{number}"),
        version: "0".to_owned(),
        bucket: Micros::from_secs(10),
        buckets: 30,
        rule: RuleKind::Robust,
        prefixes: 0,
        formats: (FORMAT, FORMAT),
        clock: Timestamp(0),
        digests: Vec::new(),
        address: None,
    };
    let clock = SetClock::default();
    clock.0.store(NOW.0, Ordering::Relaxed);
    let published = Published::new(PublisherConfig::default(), clock);
    let (sharing, _) =
        Sharing::start(hub.member(gateway), own, 1, Box::new(|_| 0), Arc::new(published.clone())).unwrap();
    Gateway { published, sharing }
}

const NOW: Timestamp = Timestamp(1_700_000_003_000_000_000);

fn now_known(gateway: &Gateway) -> Estimate {
    let estimate = Estimate { refreshed: NOW, ..estimate(1, 40.0 * 1_448.0, 0) };
    apply(&gateway.published, [Event::estimate(estimate.clone())]);
    estimate
}

fn until(gateways: &[Gateway], what: &str, is_so: impl Fn(&ShareView) -> bool) {
    eventually(what, || gateways.iter().all(|gateway| is_so(&gateway.sharing.status().view())));
}

/// Six advised starts of a gateway's hosts lose, where it has this estimate.
fn retreats(gateway: &Gateway, estimate: &Estimate) {
    let remote = estimate.network.prefix().addr();
    for port in 1..=6 {
        let ends = [(IpAddr::from([10, 0, 0, 1]), 443).into(), (remote, port).into()];
        let advised = estimate.share_segments(estimate.mss);
        let flight = FirstFlight { ends, lost: true, began: Some(NOW), advised, acknowledged: Bytes(0) };
        gateway.published.first_flights(&Client::Address(remote), &[(estimate.network, flight)]);
    }
}

#[test]
fn a_retreat_reaches_who_is_there_who_was_away_and_who_comes_later() {
    let hub = MemoryHub::new();
    let mut gateways = vec![join(&hub, 1), join(&hub, 2)];
    let estimate = now_known(&gateways[0]);
    until(&gateways, "they know each other", |view| view.link == LinkState::Up && view.members.len() == 1);
    hub.set_up(false);
    until(&gateways, "both notice", |view| matches!(view.link, LinkState::Down(_)));
    // The network is known at the other only afterwards.
    retreats(&gateways[0], &estimate);
    hub.set_up(true);
    gateways.push(join(&hub, 3));
    let received = |gateway: &Gateway| gateway.sharing.status().measures().notices_received.get();
    eventually("it arrives", || gateways[1..].iter().all(|gateway| received(gateway) > 0));
    for gateway in &gateways {
        now_known(gateway);
        let view = gateway.published.lookup(estimate.network.prefix().addr()).unwrap();
        let share = view.estimate.as_ref().map(|estimate| estimate.share);
        assert_eq!(share, Some(Window::from_segments(Segments(10), estimate.mss)));
    }
}

/// The next start that a subscriber hears of.
async fn next_start(subscription: &mut Subscription) -> ImminentStart {
    loop {
        if let UpdateEvent::ImminentStart(start) = subscription.next().await.unwrap().event {
            return start;
        }
    }
}

#[test]
fn a_start_reaches_its_host_whichever_gateway_it_is_subscribed_at() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let hub = MemoryHub::new();
    let [one, other] = [join(&hub, 1), join(&hub, 2)];
    now_known(&one);
    now_known(&other);
    let host = [10, 0, 0, 1];
    let mut subscription = other.published.subscribe(&[host.into()]).unwrap();
    eventually("its seat is known", || one.published.seats_elsewhere() == 1);

    let start = StartImminent { at: NOW, ..start(host, 1) };
    assert!(one.published.push_start(start));
    let pushed =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, next_start(&mut subscription)).await.unwrap() });
    let of_client = IpAddr::from([198, 51, 1, 0]);
    assert_eq!((pushed.host.address, pushed.observed), (host.into(), NOW));
    assert_eq!(pushed.trigger, spand_proto::push::Trigger::PassiveOpen);
    assert_eq!(pushed.remote.address, of_client, "the client's address stays where it was seen");

    let to_nobody = StartImminent { host: IpAddr::from([10, 0, 0, 2]), ..start };
    let to_unknown = StartImminent { network: "203.0.113.0/24".parse().unwrap(), ..start };
    assert!(!one.published.push_start(to_nobody) && !one.published.push_start(to_unknown));
    let measures = one.published.measures();
    assert_eq!((measures.starts_handed_on.get(), measures.starts_no_subscriber.get()), (1, 2));
    drop(subscription);
    eventually("it has left", || one.published.seats_elsewhere() == 0);
    assert!(!one.published.push_start(start));
}
