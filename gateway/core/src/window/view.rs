//! One network as it stands at one moment: for the publisher, the tables and the API.
//!
//! A value: it does not age by itself, so moments are kept rather than ages.

use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};
use strum::{IntoStaticStr, VariantArray};

use super::record::NetworkRecord;
use crate::config::WindowConfig;
use crate::estimate::{self, Counts, Rule};
use crate::flow::kept::Kept;
use crate::flow::sample::Limiter;

/// What the window of a network holds, with the estimate made of it or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkView {
    /// The network.
    pub network: Network,
    /// The estimate in force, where there is one.
    pub estimate: Option<Estimate>,
    /// Why there is none, where there is none.
    pub why_not: Option<NoEstimate>,
    /// Smallest round-trip time in the window.
    pub rtt_min: Option<Micros>,
    /// Mean round-trip time in the window, in which no remote address has more than half of the weight.
    pub rtt_mean: Option<Micros>,
    /// Window samples in the window.
    pub samples: u32,
    /// Lower bounds in the window.
    pub lower_bounds: u32,
    /// Connections that gave those samples and lower bounds.
    pub connections: u32,
    /// Loss events in the window, whether or not they gave a sample.
    pub losses: u64,
    /// What limited the senders.
    pub limits: LimitCounts,
    /// Connections that sent to it at once: the most of the last 10 to 20 s.
    pub parallel: u32,
    /// The smallest share of all connections that was followed at any time in the window: less than all under overload, and
    /// then the counts above are of a sample. `parallel` is what all would have been.
    pub followed: Kept,
    /// When the newest sample, lower bound or round-trip time came.
    pub newest: Option<Timestamp>,
}

impl NetworkView {
    /// How a network looks at `now`; `None` where the window holds nothing of it.
    pub(super) fn of(
        network: Network,
        record: &NetworkRecord,
        (parallel, followed): (u32, Kept),
        now: Timestamp,
        config: &WindowConfig,
        rule: &dyn Rule,
    ) -> Option<Self> {
        let slice = record.slice(now, config);
        if slice.buckets.is_empty() {
            return None;
        }
        let counts = Counts::of(slice);
        let estimate = estimate::of_counted(network, record, (slice, &counts), now, config, rule);
        let (rtt_min, rtt_mean) = match &estimate {
            Ok(estimate) => (estimate.rtt_min, estimate.rtt_mean),
            Err(_) => (slice.rtt().min, slice.rtt_mean()),
        };
        Some(Self {
            network,
            why_not: estimate.as_ref().err().copied(),
            estimate: estimate.ok(),
            rtt_min,
            rtt_mean,
            samples: counts.samples,
            lower_bounds: counts.lower_bounds,
            connections: counts.connections_in_all,
            losses: slice.losses(),
            limits: slice.limits(),
            parallel,
            followed,
            newest: record.newest,
        })
    }

    /// Time since the newest sample of any kind.
    pub fn age(&self, now: Timestamp) -> Option<Micros> {
        self.newest.map(|newest| now.since(newest))
    }
}

/// Round trips in the window by what limited the sender.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LimitCounts {
    /// Its congestion window.
    pub window: u64,
    /// The receiver's window.
    pub receiver: u64,
    /// The application.
    pub application: u64,
}

impl LimitCounts {
    /// One round trip.
    pub(crate) fn add(&mut self, limiter: Limiter) {
        match limiter {
            Limiter::Unknown => {}
            Limiter::Window => self.window += 1,
            Limiter::Receiver => self.receiver += 1,
            Limiter::Application => self.application += 1,
        }
    }

    /// Both summed up.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            window: self.window + other.window,
            receiver: self.receiver + other.receiver,
            application: self.application + other.application,
        }
    }
}

/// Why a network has no estimate.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum NoEstimate {
    /// Fewer window samples than the minimum.
    TooFewSamples,
    /// They came from fewer connections than the minimum.
    TooFewConnections,
    /// The newest is older than the age limit.
    Expired,
    /// There is one, but hosts reported losses in first flights: said by who publishes it, never by the window.
    Retreat,
}

impl NoEstimate {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
