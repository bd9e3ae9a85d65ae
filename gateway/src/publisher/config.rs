//! Settings of the publisher. Each limit says what happens when it is reached.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spand_proto::push::{ADVICE_LIFETIME, MAX_ADDRESSES, REFRESH_INTERVAL};
use spand_proto::units::Micros;

/// Of which networks a host is told.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToHosts {
    /// Of all that have an estimate.
    #[default]
    All,
    /// Of those with which its addresses talked lately. The first word about a network comes with a start.
    Talking,
}

/// How estimates are told, and to how many.
#[derive(Clone, Debug, PartialEq)]
pub struct PublisherConfig {
    /// Of which networks a host is told. Default all (`docs/decisions/told-networks.md`).
    pub to_hosts: ToHosts,
    /// How long a talk counts. Default 600 s. After it the network is withdrawn from the host.
    pub talked_within: Micros,
    /// Networks with which one host talks. Default 4,096: told again every 100 s, 1,000 hosts are 41,000 messages a second. At
    /// the limit the one that it was never told of goes first, then the one that it talked with longest ago, counted.
    pub talked_networks: NonZeroUsize,
    /// Lifetime of advice from its arrival. Default 60 s: a host whose gateway is gone is back to plain TCP by then.
    pub lifetime: Micros,
    /// Interval of renewals. Default 20 s, so that two may be late before advice runs out.
    pub renewal: Duration,
    /// Relative change of share or round-trip time that is told. Default 0.1.
    pub change: f64,
    /// A refreshed estimate that did not move is told again when what was told is this much older. Default 100 s: the
    /// age known to a host stays far below the age limit, and 10,000 busy networks cost 100 messages a second each.
    pub retell: Micros,
    /// Age limit of an estimate; an older one is not answered even where nobody withdrew it. Default 300 s.
    pub max_age: Micros,
    /// Changes are gathered this long and told together. Default 20 ms; imminent starts never wait for it.
    pub gather: Duration,
    /// Batches of up to 512 changes kept for slow subscribers, shared by all. Default 256. A subscriber that falls
    /// behind more than that is resynchronised, counted.
    pub backlog_batches: NonZeroUsize,
    /// Imminent starts waiting for one subscriber. Default 1,024. At the limit the oldest goes, counted: it is late anyway.
    pub waiting_starts: NonZeroUsize,
    /// Subscribers at a time. Default 1,000. The next one is refused. Hosts that are gone and may still use what they were told
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
    /// With `Talking`: pairs of a host and a network with which it talks, of all hosts together. Default 2,000,000. At the limit a
    /// host's further network takes the place of one of its own, counted as with networks of one host.
    pub talks: NonZeroUsize,
    /// Networks that wait to be told, of all subscribers together. Default 2,000,000. At the limit one that has more than half of
    /// an equal part is told everything anew, counted.
    pub waiting_networks: NonZeroUsize,
    /// Networks whose last samples and window are remembered to be shown. Default 16,384, at most 4.3 KiB each. At the limit
    /// the one that changed longest ago is no longer shown in detail, counted.
    pub remembered_networks: NonZeroUsize,
    /// Addresses of one subscriber. Default 1,024. A subscription with more is refused.
    pub addresses: NonZeroUsize,
}

/// Changes told together at most; a larger change is told in several batches.
pub(super) const BATCH_CHANGES: usize = 512;

impl Default for PublisherConfig {
    fn default() -> Self {
        Self {
            to_hosts: ToHosts::All,
            talked_within: Micros::from_secs(600),
            talked_networks: limit(4_096),
            lifetime: ADVICE_LIFETIME,
            renewal: REFRESH_INTERVAL.into(),
            change: 0.1,
            retell: Micros::from_secs(100),
            max_age: Micros::from_secs(300),
            gather: Duration::from_millis(20),
            backlog_batches: limit(256),
            waiting_starts: limit(1_024),
            subscribers: limit(1_000),
            subscribers_per_address: limit(4),
            leased_networks: limit(65_536),
            leases: limit(1_000_000),
            talks: limit(2_000_000),
            waiting_networks: limit(2_000_000),
            remembered_networks: limit(16_384),
            addresses: limit(MAX_ADDRESSES),
        }
    }
}

impl PublisherConfig {
    /// Hosts that are subscribed, or were within the lifetime of advice: each time that an agent comes back with other addresses
    /// it is another host, whose leases are held as long.
    pub(super) const fn holders(&self) -> usize {
        self.subscribers.get().saturating_mul(2)
    }

    /// Networks that may wait for a subscriber to look at them: as many as leases are divided in, or as it talks with. At the
    /// limit it is told everything anew, counted.
    pub(super) const fn marks(&self) -> MarkLimits {
        let own = match self.to_hosts {
            ToHosts::All => self.leased_networks.get(),
            ToHosts::Talking => self.talked_networks.get(),
        };
        let all = self.waiting_networks.get();
        // Each has two sets of marks.
        let part = all / self.subscribers.get() / 2;
        MarkLimits { own, all, part: if part == 0 { 1 } else { part } }
    }
}

/// How many networks may be marked in each of a subscriber's two sets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct MarkLimits {
    /// In any case.
    pub(super) own: usize,
    /// Beyond this many of all subscribers together …
    pub(super) all: usize,
    /// … only this many of each.
    pub(super) part: usize,
}

fn limit(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN)
}
