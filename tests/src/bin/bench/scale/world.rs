//! What an engine would say: networks, their estimates, and who starts connections to which of them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::{Rng, RngExt};
use spand_core::event::{Event, StartImminent};
use spand_core::types::Trigger;
use spand_gateway::publisher::PacketClock;
use spand_proto::made_up;
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp, Window};

/// A clock that is advanced by hand, or runs by itself.
#[derive(Clone, Debug)]
pub(super) struct SimClock {
    base: Arc<AtomicU64>,
    running: Arc<Mutex<Option<Instant>>>,
}

impl SimClock {
    pub(super) fn new() -> Self {
        Self { base: Arc::new(AtomicU64::new(1_000_000_000_000_000)), running: Arc::default() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let ran = self.running.lock().map_or(Duration::ZERO, |since| since.elapsed());
        Timestamp(self.base.load(Ordering::Relaxed)).after(Micros::from(ran))
    }

    pub(super) fn pass(&self, time: Duration) {
        self.base.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn run(&self) {
        *self.running.lock() = Some(Instant::now());
    }

    pub(super) fn stop(&self) {
        let now = self.now();
        let mut running = self.running.lock();
        self.base.store(now.0, Ordering::Relaxed);
        *running = None;
    }
}

impl PacketClock for SimClock {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }
}

/// Networks in order of popularity.
#[derive(Debug)]
pub(super) struct World {
    /// The share of starts towards this rank or a smaller one.
    up_to: Vec<f64>,
    own: f64,
    rounds: Vec<bool>,
}

/// Where the networks begin: 32.0.0.0.
const FIRST_NETWORK: u32 = 0x2000_0000;
/// A prime, so that ranks are spread over all networks and each has one.
const SPREAD: u64 = 611_953;

impl World {
    pub(super) fn new(networks: u32, exponent: f64, own: f64) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=networks)
            .map(|rank| {
                sum += f64::from(rank).powf(-exponent);
                sum
            })
            .collect();
        for share in &mut up_to {
            *share /= sum;
        }
        Self { up_to, own, rounds: vec![false; networks as usize] }
    }

    /// A network, by the ranking of one host or, for `None`, of all.
    fn drawn(&self, random: &mut impl Rng, host: Option<u32>) -> u32 {
        let drawn: f64 = random.random();
        let rank = self.up_to.partition_point(|share| *share < drawn).min(self.up_to.len() - 1) as u64;
        let turned = host.map_or(0, |host| (u64::from(host) + 1) * 7_907);
        u32::try_from((rank * SPREAD + turned) % self.up_to.len() as u64).unwrap_or(0)
    }

    /// A start of one of the `hosts`.
    pub(super) fn start(&self, random: &mut impl Rng, hosts: u32, now: Timestamp) -> StartImminent {
        let host = random.random_range(0..hosts);
        let own = random.random_bool(self.own).then_some(host);
        let remote = address(self.drawn(random, own)).into();
        let host = host_address(host);
        StartImminent { host, remote, network: Network::of(remote), trigger: Trigger::PassiveOpen, at: now }
    }

    /// Estimates of networks; those that move do so by a third or a half.
    pub(super) fn estimates(
        &mut self,
        networks: impl IntoIterator<Item = u32>,
        moved: bool,
        now: Timestamp,
    ) -> Vec<Event> {
        let estimate = |network: u32| {
            let round = self.rounds.get_mut(network as usize);
            let high = round.is_some_and(|round| {
                *round ^= moved;
                *round
            });
            let share = Window::from_bytes(if high { 30_000.0 } else { 20_000.0 }).unwrap_or_default();
            Event::estimate(made_up::estimate(Network::of(address(network).into()), share, now))
        };
        networks.into_iter().map(estimate).collect()
    }
}

/// An address of a network.
fn address(network: u32) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_NETWORK + (network << 8) + 7)
}

pub(super) fn host_address(host: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0001 + host).into()
}
