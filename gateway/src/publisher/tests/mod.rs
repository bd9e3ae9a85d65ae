//! The publisher against a twin: a subscriber that keeps what it receives must hold what is published.

mod cases;
mod cluster;
mod in_use;
mod own_shares;
mod pace;
mod property;
mod retreats;
mod turns;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spand_core::event::{Event, StartImminent};
use spand_core::networks::Withdrawal;
use spand_core::networks::view::NetworkView;
use spand_core::service::ServiceSize;
use spand_core::types::Trigger;
use spand_proto::estimate::{Confidence, Estimate, RuleKind};
use spand_proto::network::Network;
use spand_proto::push::{EstimateUpdate, Update, UpdateEvent, WithdrawalReason};
use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use super::*;

#[derive(Clone, Default)]
struct SetClock(Arc<AtomicU64>);

impl PacketClock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

fn network(n: u8) -> Network {
    Network::of([198, 51, n, 1].into())
}

fn estimate(n: u8, share_bytes: f64, refreshed_s: u64) -> Estimate {
    Estimate {
        network: network(n),
        share: Window::from_bytes(share_bytes).unwrap(),
        mss: Bytes(1_448),
        rtt_min: Some(Micros(20_000)),
        rtt_mean: Some(Micros(25_000)),
        samples: 10,
        connections: 5,
        loss_connections: 3,
        loss_window: None,
        is_lower_bound: false,
        opening: None,
        buffer: None,
        bdp: None,
        losses: 4,
        refreshed: Timestamp::from_micros(refreshed_s * 1_000_000),
        confidence: Confidence::new(0.8),
        rule: RuleKind::Probe,
        mark: None,
    }
}

fn start(host: [u8; 4], n: u8) -> StartImminent {
    StartImminent {
        host: host.into(),
        remote: [198, 51, n, 9].into(),
        network: network(n),
        trigger: Trigger::PassiveOpen,
        at: Timestamp(0),
    }
}

fn service_size(host: [u8; 4], port: u16, quantile: u64) -> ServiceSize {
    ServiceSize { service: (host, port).into(), quantile: Bytes(quantile), transfers: 12 }
}

fn apply(published: &Published, events: impl IntoIterator<Item = Event>) {
    published.apply(Batch { events: events.into_iter().collect(), ..Batch::new() });
}

fn publisher(config: PublisherConfig) -> (Published, SetClock) {
    let clock = SetClock::default();
    let published = Published::new(config, clock.clone());
    tokio::spawn(published.clone().run());
    (published, clock)
}

/// Lets the publisher's task gather and send.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

const HOST: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];

/// What a faithful subscriber holds.
#[derive(Debug, Default, PartialEq)]
struct Twin {
    held: BTreeMap<Network, Estimate>,
    came: Vec<Network>,
    /// Networks whose starts came since the last snapshot began.
    started: Vec<Network>,
    sequence: u64,
    dropped: u64,
    resyncs: u32,
    ends: u64,
    starts: u32,
    sizes: Vec<(SocketAddr, u64)>,
    leases: BTreeMap<Network, u32>,
    withdrawn: Vec<(Network, WithdrawalReason)>,
}

impl Twin {
    /// Reads until nothing more comes for a while.
    async fn read(&mut self, subscription: &mut Subscription) {
        while let Ok(Some(numbered)) = tokio::time::timeout(Duration::from_millis(500), subscription.next()).await {
            self.take(numbered);
        }
    }

    fn take(&mut self, Update { sequence, event }: Update) {
        let gap = sequence - self.sequence - 1;
        self.sequence = sequence;
        assert!(
            gap == 0 || matches!(event, UpdateEvent::Resync { .. } | UpdateEvent::ImminentStart(_)),
            "gap before {event:?}"
        );
        match event {
            UpdateEvent::SnapshotBegin { .. } => {
                self.came.clear();
                self.started.clear();
            }
            UpdateEvent::SnapshotEnd { networks } => {
                assert_eq!(networks as usize, self.came.len());
                self.ends += 1;
                self.held.retain(|network, _| self.came.contains(network) || self.started.contains(network));
            }
            UpdateEvent::Estimate(EstimateUpdate { estimate, lease, .. }) => {
                self.leases.insert(estimate.network, lease.unwrap().0);
                self.came.push(estimate.network);
                self.held.insert(estimate.network, estimate);
            }
            UpdateEvent::Withdrawal { network, reason } => {
                self.held.remove(&network);
                self.withdrawn.push((network, reason));
            }
            UpdateEvent::Resync { dropped_updates, .. } => {
                self.dropped += dropped_updates;
                self.resyncs += 1;
            }
            UpdateEvent::ImminentStart(start) => {
                self.leases.insert(start.estimate.estimate.network, start.estimate.lease.unwrap().0);
                self.starts += 1;
                self.started.push(start.estimate.estimate.network);
                self.held.insert(start.estimate.estimate.network, start.estimate.estimate);
            }
            UpdateEvent::ServiceSize(size) => self.sizes.push((size.service, size.quantile.0)),
            UpdateEvent::Renewal { .. } | UpdateEvent::Adopted { .. } => {}
        }
    }
}
