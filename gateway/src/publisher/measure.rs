//! Counters and histograms of the publisher.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use strum::VariantArray;

use super::adoption::{NotAdopted, NotAdoptedLabel};
use super::retreat::Verdict;

/// What the publisher counts and times. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Estimates sent to all subscribers.
    pub estimates: Counter,
    /// Withdrawals sent to all subscribers.
    pub withdrawals: Counter,
    /// Service sizes sent to subscribers because they appeared or changed.
    pub service_sizes: Counter,
    /// Starts handed to a subscriber's queue.
    pub starts_pushed: Counter,
    /// Starts of hosts without a subscriber.
    pub starts_no_subscriber: Counter,
    /// Starts of subscribed hosts towards networks without an estimate.
    pub starts_no_estimate: Counter,
    /// Starts dropped because a subscriber's queue of starts was full.
    pub starts_overflowed: Counter,
    /// Connections of hosts inside that were established.
    pub established: Counter,
    /// Those of them towards networks with an estimate.
    pub established_covered: Counter,
    /// Those of these whose host is subscribed here, so that it has advice.
    pub established_advised: Counter,
    /// Changed leases that were sent on their own.
    pub leases_advertised: Counter,
    /// Starts in networks whose budget is not divided, because there are too many.
    pub leases_no_room: Counter,
    /// Networks withdrawn from a host because it did not use them for `destination_idle`.
    pub destinations_expired: Counter,
    /// Networks evicted from a host's list because it uses too many.
    pub destinations_evicted: Counter,
    /// Snapshots sent because more networks were dirty for a subscriber than the limit.
    pub dirty_overflows: Counter,
    /// Messages of granted turns that were not sent, because the subscription ended or restarted.
    pub pace_unused: Counter,
    /// Advised first flights that hosts reported, by what they led to.
    pub first_flights: Family<FlightLabels, Counter>,
    /// Retreats because advised transfers were slower than those of the control group.
    pub retreats_slower: Counter,
    /// Retreats that other gateways began and that hold back advice here.
    pub retreats_of_others: Counter,
    /// Starts handed to the gateway that their host is subscribed at.
    pub starts_handed_on: Counter,
    /// Starts that other gateways saw and handed to this one.
    pub starts_of_others: Counter,
    /// Those of them that were dropped because one gateway handed over too many for one host.
    pub starts_of_others_refused: Counter,
    /// Hosts named by other gateways for which there was no room.
    pub seats_no_room: Counter,
    /// What other gateways had to know and had no room on its way to the hub.
    pub notices_dropped: Counter,
    /// Remote addresses whose losses were dropped before they expired, because there are too many.
    pub addresses_displaced: Counter,
    /// Reloads of the configuration, by result.
    pub config_reloads: Family<ReloadLabels, Counter>,
    /// 0 if the last reload of the configuration failed.
    pub config_last_reload_successful: Gauge,
    /// Subscriptions started.
    pub subscriptions: Counter,
    /// Subscriptions whose host's advice of another gateway was adopted.
    pub subscriptions_adopted: Counter,
    /// Those that asked for it and were not, by reason.
    pub subscriptions_not_adopted: Family<NotAdoptedLabel, Counter>,
    /// Subscriptions refused at a limit.
    pub subscriptions_refused: Counter,
    /// Addresses left out of subscriptions because they had reached the limit of subscribers per address.
    pub addresses_left_out: Counter,
    /// Resynchronisations because a subscriber read too slowly.
    pub resyncs_slow_reader: Counter,
    /// Resynchronisations because the state was replaced.
    pub resyncs_state_replaced: Counter,
    /// Changes dropped for slow subscribers.
    pub changes_dropped: Counter,
    /// From a start's packet to the subscriber's queue, by the packet clock, in seconds.
    pub start_queued_seconds: Histogram,
    /// From a start's packet to handing the message to the transport, by the packet clock, in seconds.
    pub start_sent_seconds: Histogram,
    /// From the engine's batch to its publication, in seconds.
    pub apply_seconds: Histogram,
}

/// Bounds in seconds from 10 µs to 1 s, about 2.5 times apart: the target of 5 ms is one of them, and a queue that
/// builds up still falls below the last.
const SECONDS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5, 1.0,
];

/// Label of a reported first flight.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct FlightLabels {
    pub(super) verdict: &'static str,
}

/// Label of a reload of the configuration.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct ReloadLabels {
    pub(super) result: &'static str,
}

pub(super) const SUCCESS: &str = "success";
pub(super) const FAILURE: &str = "failure";

impl Default for Measures {
    fn default() -> Self {
        let counter = Counter::default;
        let histogram = || Histogram::new(SECONDS);
        let measures = Self {
            estimates: counter(),
            withdrawals: counter(),
            service_sizes: counter(),
            starts_pushed: counter(),
            starts_no_subscriber: counter(),
            starts_no_estimate: counter(),
            starts_overflowed: counter(),
            established: counter(),
            established_covered: counter(),
            established_advised: counter(),
            leases_advertised: counter(),
            leases_no_room: counter(),
            destinations_expired: counter(),
            destinations_evicted: counter(),
            dirty_overflows: counter(),
            pace_unused: counter(),
            first_flights: Family::default(),
            retreats_slower: counter(),
            retreats_of_others: counter(),
            starts_handed_on: counter(),
            starts_of_others: counter(),
            starts_of_others_refused: counter(),
            seats_no_room: counter(),
            notices_dropped: counter(),
            addresses_displaced: counter(),
            config_reloads: Family::default(),
            config_last_reload_successful: Gauge::default(),
            subscriptions: counter(),
            subscriptions_adopted: counter(),
            subscriptions_not_adopted: Family::default(),
            subscriptions_refused: counter(),
            addresses_left_out: counter(),
            resyncs_slow_reader: counter(),
            resyncs_state_replaced: counter(),
            changes_dropped: counter(),
            start_queued_seconds: histogram(),
            start_sent_seconds: histogram(),
            apply_seconds: histogram(),
        };
        // Exposed as zero from the start, so that the first event is an increase.
        for verdict in Verdict::VARIANTS.iter().map(|verdict| verdict.name()) {
            drop(measures.first_flights.get_or_create(&FlightLabels { verdict }));
        }
        for reason in NotAdopted::VARIANTS.iter().map(|reason| reason.name()) {
            drop(measures.subscriptions_not_adopted.get_or_create(&NotAdoptedLabel { reason }));
        }
        for result in [SUCCESS, FAILURE] {
            drop(measures.config_reloads.get_or_create(&ReloadLabels { result }));
        }
        measures.config_last_reload_successful.set(1);
        measures
    }
}
