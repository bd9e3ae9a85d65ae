//! Settings of the publisher. Each limit says what happens when it is reached.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spand_proto::push::{ADVICE_LIFETIME, MAX_ADDRESSES, REFRESH_INTERVAL};
use spand_proto::units::Micros;

/// The networks whose estimates are advertised to a host.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToHosts {
    /// All that have an estimate.
    #[default]
    All,
    /// Those that its addresses use. A network is first advertised together with a start.
    #[serde(alias = "talking")]
    InUse,
}

/// How estimates are advertised, and to how many subscribers.
#[derive(Clone, Debug, PartialEq)]
pub struct PublisherConfig {
    /// The networks whose estimates are advertised to a host. Default all (`docs/explain/decisions/sharing.md`).
    pub to_hosts: ToHosts,
    /// Time without a start or report after which a network is withdrawn from a host. Default 600 s.
    pub destination_idle: Micros,
    /// Networks in use by one host. Default 4,096: advertised again every 100 s, 1,000 hosts are 41,000 messages a second. At the
    /// limit the one that was never advertised is evicted first, then the one used longest ago, counted.
    pub destinations_per_host: NonZeroUsize,
    /// Lifetime of advice from its arrival. Default 60 s: a host whose gateway is gone is back to plain TCP by then.
    pub lifetime: Micros,
    /// Interval of renewals. Default 20 s, so that two may be late before advice runs out.
    pub renewal: Duration,
    /// Relative change of share or round-trip time that is advertised. Default 0.1.
    pub change: f64,
    /// A refreshed estimate that did not change is advertised again when the advertised one is this much older. Default 100 s: the
    /// age known to a host stays far below the age limit, and 10,000 busy networks cost 100 messages a second each.
    pub readvertise: Micros,
    /// Age limit of an estimate; an older one is not answered even if it was not withdrawn. Default 300 s.
    pub max_age: Micros,
    /// Changes are gathered this long and sent together. Default 20 ms; imminent starts never wait for it.
    pub gather: Duration,
    /// Batches of up to 512 changes kept for slow subscribers, shared by all. Default 256. A subscriber that falls
    /// behind more than that is resynchronised, counted.
    pub backlog_batches: NonZeroUsize,
    /// Imminent starts waiting for one subscriber. Default 1,024. At the limit the oldest is dropped, counted: it is late anyway.
    pub waiting_starts: NonZeroUsize,
    /// Subscribers at a time. Default 1,000. The next one is refused. Hosts that are gone and may still use their advice
    /// are counted with those that are subscribed up to twice as many; beyond, one with other addresses is refused.
    pub subscribers: NonZeroUsize,
    /// Subscribers that may claim the same address (an agent reconnects before its old stream is known dead). Default 4.
    /// For the next one it is left out, counted; one that has no other is refused.
    pub subscribers_per_address: NonZeroUsize,
    /// Networks whose budgets are divided by demand at a time. Default 65,536. At the limit hosts have no lease in a further
    /// one, counted.
    pub leased_networks: NonZeroUsize,
    /// Parts that hosts have in budgets, of all networks together. Default 1,000,000. At the limit a host has no lease in a further
    /// network, counted as with networks.
    pub leases: NonZeroUsize,
    /// With `InUse`: pairs of a host and a network that it uses, of all hosts together. Default 2,000,000. At the limit a
    /// host's further network evicts one of the same host, counted as with the networks of one host.
    pub destinations: NonZeroUsize,
    /// Networks that wait to be sent, of all subscribers together. Default 2,000,000. At the limit a subscriber with more than half
    /// of an equal part gets a new snapshot instead, counted.
    pub waiting_networks: NonZeroUsize,
    /// Networks whose last samples and window are remembered to be shown. Default 16,384, at most 4.3 KiB each. At the limit
    /// the one that changed longest ago is no longer shown in detail, counted.
    pub remembered_networks: NonZeroUsize,
    /// Addresses of one subscriber. Default 1,024. A subscription with more is refused.
    pub addresses: NonZeroUsize,
}

/// Changes in one batch; a larger change is sent in several batches.
pub(super) const BATCH_CHANGES: usize = 512;

impl Default for PublisherConfig {
    fn default() -> Self {
        Self {
            to_hosts: ToHosts::All,
            destination_idle: Micros::from_secs(600),
            destinations_per_host: limit(4_096),
            lifetime: ADVICE_LIFETIME,
            renewal: REFRESH_INTERVAL.into(),
            change: 0.1,
            readvertise: Micros::from_secs(100),
            max_age: Micros::from_secs(300),
            gather: Duration::from_millis(20),
            backlog_batches: limit(256),
            waiting_starts: limit(1_024),
            subscribers: limit(1_000),
            subscribers_per_address: limit(4),
            leased_networks: limit(65_536),
            leases: limit(1_000_000),
            destinations: limit(2_000_000),
            waiting_networks: limit(2_000_000),
            remembered_networks: limit(16_384),
            addresses: limit(MAX_ADDRESSES),
        }
    }
}

impl PublisherConfig {
    /// Hosts that are subscribed, or were within the lifetime of advice: each time that an agent comes back with other addresses
    /// it is another host, whose leases are held as long.
    pub(super) const fn max_hosts(&self) -> usize {
        self.subscribers.get().saturating_mul(2)
    }

    /// Networks that may be dirty for a subscriber: as many as there are with leases, or as it may use. At the limit it gets a new
    /// snapshot, counted.
    pub(super) const fn dirty_limits(&self) -> DirtyLimits {
        let own = match self.to_hosts {
            ToHosts::All => self.leased_networks.get(),
            ToHosts::InUse => self.destinations_per_host.get(),
        };
        let all = self.waiting_networks.get();
        // Each subscriber has two sets.
        let part = all / self.subscribers.get() / 2;
        DirtyLimits { own, all, part: if part == 0 { 1 } else { part } }
    }
}

/// Sizes of each of a subscriber's two sets of dirty networks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DirtyLimits {
    /// Of one subscriber.
    pub(super) own: usize,
    /// Beyond this many of all subscribers together …
    pub(super) all: usize,
    /// … only this many of each.
    pub(super) part: usize,
}

fn limit(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN)
}
