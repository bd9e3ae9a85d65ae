//! What the API counts and times about itself.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// Numbers of the API. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::api) struct ApiMeasures {
    pub(in crate::api) connections: Family<ApiLabel, Counter>,
    pub(in crate::api) connections_refused: Family<ApiLabel, Counter>,
    pub(in crate::api) connections_displaced: Family<ApiLabel, Counter>,
    pub(in crate::api) accept_failures: Family<ApiLabel, Counter>,
    pub(in crate::api) live_refused: Counter,
    pub(in crate::api) live_resyncs: Counter,
    pub(super) requests: Family<RequestLabels, Counter>,
    pub(super) request_seconds: Family<ApiLabel, Histogram, fn() -> Histogram>,
}

/// Which API: `grpc` or `http`.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(in crate::api) struct ApiLabel {
    pub(in crate::api) api: &'static str,
}

/// What was asked and how it ended. The status is a code of HTTP or the name of one of gRPC.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(in crate::api) struct RequestLabels {
    api: &'static str,
    endpoint: &'static str,
    status: String,
}

/// Bounds in seconds from 100 µs to 10 s, the time limit of a request.
const SECONDS: [f64; 11] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1, 1.0, 5.0, 10.0];

impl ApiMeasures {
    /// Connections that were refused.
    pub(in crate::api) fn refused(&self, api: &'static str) -> u64 {
        self.connections_refused.get_or_create(&ApiLabel { api }).get()
    }

    /// Connections that lost their places to others.
    pub(in crate::api) fn displaced(&self) -> u64 {
        ["grpc", "http"].iter().map(|api| self.connections_displaced.get_or_create(&ApiLabel { api }).get()).sum()
    }

    /// Counts a request that was answered.
    pub(in crate::api) fn answered(&self, api: &'static str, endpoint: &'static str, status: &str, took: Duration) {
        let labels = RequestLabels { api, endpoint, status: status.to_owned() };
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.get_or_create(&ApiLabel { api }).observe(took.as_secs_f64());
    }
}

impl Default for ApiMeasures {
    fn default() -> Self {
        let measures = Self {
            connections: Family::default(),
            connections_refused: Family::default(),
            connections_displaced: Family::default(),
            accept_failures: Family::default(),
            live_refused: Counter::default(),
            live_resyncs: Counter::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        };
        // There from the start at zero, so that the first one is seen as a rise.
        for api in ["grpc", "http"].map(|api| ApiLabel { api }) {
            drop(measures.connections.get_or_create(&api));
            drop(measures.connections_refused.get_or_create(&api));
            drop(measures.connections_displaced.get_or_create(&api));
            drop(measures.accept_failures.get_or_create(&api));
            drop(measures.request_seconds.get_or_create(&api));
        }
        measures
    }
}
