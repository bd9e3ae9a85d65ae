//! Counters and histograms of the publisher.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use strum::VariantArray;

use super::retreat::Verdict;

/// What the publisher counts and times. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Estimates told to all subscribers.
    pub estimates: Counter,
    /// Withdrawals told to all subscribers.
    pub withdrawals: Counter,
    /// Service sizes told to subscribers because they appeared or moved.
    pub service_sizes: Counter,
    /// Starts handed to a subscriber's queue.
    pub starts_pushed: Counter,
    /// Starts of hosts that nobody watches.
    pub starts_unwatched: Counter,
    /// Starts of watched hosts towards networks without an estimate.
    pub starts_no_estimate: Counter,
    /// Starts that went because a subscriber's queue of starts was full.
    pub starts_overflowed: Counter,
    /// Leases that changed and were told on their own.
    pub leases_told: Counter,
    /// Starts in networks whose budget is not divided, because there are too many.
    pub leases_no_room: Counter,
    /// Networks with which a host did not talk within the window any more.
    pub talks_lapsed: Counter,
    /// Networks that went because a host talks with too many.
    pub talks_displaced: Counter,
    /// Times a subscriber was told everything anew because more networks waited for it than may.
    pub marks_overflowed: Counter,
    /// Messages of turns that were granted and not taken, because the subscription ended or began anew.
    pub pace_given_back: Counter,
    /// Advised first flights that hosts reported, by what they led to.
    pub first_flights: Family<FlightLabels, Counter>,
    /// Remote addresses whose losses were forgotten while they counted, because there are too many.
    pub addresses_displaced: Counter,
    /// Times the configuration was read again, by result.
    pub config_reloads: Family<ReloadLabels, Counter>,
    /// 0 where the configuration could not be used when it was read again last.
    pub config_last_reload_successful: Gauge,
    /// Subscriptions that began.
    pub subscriptions: Counter,
    /// Subscriptions refused at a limit.
    pub subscriptions_refused: Counter,
    /// Addresses of subscriptions that were left out, since as many subscribers as may had claimed them already.
    pub addresses_left_out: Counter,
    /// Resynchronisations because a subscriber read too slowly.
    pub resyncs_slow_reader: Counter,
    /// Resynchronisations because the state was replaced.
    pub resyncs_state_replaced: Counter,
    /// Changes that slow subscribers did not get.
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

/// Label of a configuration that was read again.
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
            starts_unwatched: counter(),
            starts_no_estimate: counter(),
            starts_overflowed: counter(),
            leases_told: counter(),
            leases_no_room: counter(),
            talks_lapsed: counter(),
            talks_displaced: counter(),
            marks_overflowed: counter(),
            pace_given_back: counter(),
            first_flights: Family::default(),
            addresses_displaced: counter(),
            config_reloads: Family::default(),
            config_last_reload_successful: Gauge::default(),
            subscriptions: counter(),
            subscriptions_refused: counter(),
            addresses_left_out: counter(),
            resyncs_slow_reader: counter(),
            resyncs_state_replaced: counter(),
            changes_dropped: counter(),
            start_queued_seconds: histogram(),
            start_sent_seconds: histogram(),
            apply_seconds: histogram(),
        };
        // There from the start at zero, so that the first one is seen as a rise.
        for verdict in Verdict::VARIANTS.iter().map(|verdict| verdict.name()) {
            drop(measures.first_flights.get_or_create(&FlightLabels { verdict }));
        }
        for result in [SUCCESS, FAILURE] {
            drop(measures.config_reloads.get_or_create(&ReloadLabels { result }));
        }
        measures.config_last_reload_successful.set(1);
        measures
    }
}
