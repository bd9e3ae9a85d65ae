//! What `check-config` says of an item is what it really takes at its limit: no less, and not many times as much.

use std::num::NonZeroUsize;
use std::path::Path;

use spand_core::flow::sample_rate::SampleRate;
use spand_core::service::ServiceSize;
use spand_core::window::bucket::LimitCounts;
use spand_core::window::traffic::NetworkTraffic;
use spand_core::window::view::NetworkView;
use spand_gateway::config::{Config, EngineOptions, Memory};
use spand_gateway::publisher::{MonotonicClock, Published};
use spand_proto::made_up;
use spand_proto::network::Network;
use spand_proto::no_estimate::Outcomes;
use spand_proto::units::{Bytes, Timestamp, Window};
use spand_tests::hostile::{Attack, Hoard, Scene};
use spand_tests::memory::held_bytes;

/// The share of an item's stated size that it has to take. The items add up the worst of every part, such as tables just after they
/// doubled, so that a state as full as it comes takes less.
const LEAST_PART: u64 = 4;

/// What an item comes to with this configuration, in bytes.
fn item(name: &str, text: &str) -> u64 {
    let config = Config::parse(text, Path::new("x")).expect("a configuration");
    let memory = Memory::of(&config, &config.engine(EngineOptions::default()).expect("no list"));
    let found = memory.items().iter().find(|item| item.name == name).expect("an item");
    u64::try_from(found.bytes).expect("bytes")
}

/// A sum that is too small promises what does not hold; for one that is far too large memory is bought for nothing.
fn fits(name: &str, real: u64, stated: u64) {
    println!("{name}: {real} bytes of {stated}");
    assert!(real <= stated, "{name} takes {real} bytes, more than the {stated} that the sum has for it");
    assert!(real * LEAST_PART >= stated, "{name} takes {real} bytes of {stated}: the sum is too far off");
}

fn published(text: &str) -> Published {
    let config = Config::parse(text, Path::new("x")).expect("a configuration");
    Published::new(config.publisher(), MonotonicClock::from_wall_clock())
}

fn network(n: u32) -> Network {
    let [_, _, b, c] = n.to_be_bytes();
    Network::of([100, b, c, 1].into())
}

fn view(n: u32) -> NetworkView {
    let share = Window::from_bytes(28_960.0).expect("a window");
    NetworkView {
        network: network(n),
        estimate: Some(made_up::estimate(network(n), share, Timestamp(8_000_000_000))),
        why_not: None,
        rtt_min: None,
        rtt_mean: None,
        samples: 2,
        lower_bounds: 1,
        connections: 1,
        losses: 0,
        limits: LimitCounts { window: 3, receiver: 0, application: 1 },
        parallel: 0,
        parallel_at_samples: 0,
        parallel_here: 0,
        followed: SampleRate::ALL,
        outcomes: Outcomes::default(),
        traffic: NetworkTraffic::default(),
        needed: (3, 2),
        compared: Vec::new(),
        newest: Some(Timestamp(8_000_000_000)),
    }
}

#[test]
fn published_networks_take_what_the_sum_says() {
    const NETWORKS: u32 = 20_000;
    let text = format!("[limits]\nservices = 1\nnetworks = {NETWORKS}");
    let (published, before) = (published(&text), held_bytes());
    published.replace((0..NETWORKS).map(view).collect(), |_| true, None);
    fits("networks", held_bytes() - before, item("published networks and services", &text));
}

#[test]
fn published_services_take_what_the_sum_says() {
    const SERVICES: u32 = 20_000;
    let text = format!("[limits]\nservices = {SERVICES}\nnetworks = 1");
    let size = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        ServiceSize { service: ([10, a, b, c], 443).into(), quantile: Bytes(30_000), transfers: 9 }
    };
    let (published, before) = (published(&text), held_bytes());
    published.replace(Vec::new(), |_| true, Some((0..SERVICES).map(size).collect()));
    fits("services", held_bytes() - before, item("published networks and services", &text));
}

#[test]
fn places_of_connections_take_what_the_sum_says() {
    const CONNECTIONS: u32 = 40_000;
    let limit = NonZeroUsize::new(40_000).expect("some");
    let scene = Scene {
        seconds: 20,
        connections: 100,
        networks: 8,
        limit,
        tuples_per_second: 0,
        segment_memory_bytes: NonZeroUsize::new(32 << 20).expect("some"),
    };
    let hoard = Hoard { connections: CONNECTIONS, segments: 2, acknowledged: false, seconds: 10 };
    // Held beside what the accounts of bytes have.
    let places = |attack| {
        let with = scene.play(attack, held_bytes);
        let accounts = [with.memory.segments, with.memory.senders, with.memory.networks];
        let accounted: usize = accounts.iter().map(|account| account.used_bytes).sum();
        with.held_bytes - u64::try_from(accounted).expect("bytes")
    };
    // What does not grow with connections: queues, wheels, tables of few entries.
    let (without, with) = (places(None), places(Some(Attack::Hoard(hoard))));
    fits("connections", with - without, item("connections", &format!("[limits]\nconnections = {limit}")));
}
