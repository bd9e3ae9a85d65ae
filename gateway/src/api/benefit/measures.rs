//! The same transfers as histograms, for a collector that keeps their history.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use spand_proto::comparison::{ARMS, CLASS_NAMES, Place};
use spand_proto::report::ConnectionReport;

type Histograms = Family<BenefitLabels, Histogram, fn() -> Histogram>;

/// Histograms of reported transfers by size class and arm. Clones share the same numbers.
#[derive(Clone, Debug)]
pub(in crate::api) struct BenefitMeasures {
    pub(in crate::api) completion_seconds: Histograms,
    pub(in crate::api) retransmitted_segments: Histograms,
    pub(in crate::api) end_window_segments: Histograms,
}

/// Labels of a transfer.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(in crate::api) struct BenefitLabels {
    arm: &'static str,
    size: &'static str,
}

/// Bounds in seconds from a round trip in a city to minutes, about 2.2 times apart.
const SECONDS: [f64; 13] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0];
/// Bounds of a count of segments.
const SEGMENTS: [f64; 12] = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 70.0, 100.0, 200.0, 500.0, 2_000.0];

impl BenefitMeasures {
    pub(super) fn observe(&self, place: Place, report: &ConnectionReport) {
        let (Some((_, arm)), Some(size)) = (ARMS.get(place.arm), CLASS_NAMES.get(place.class)) else { return };
        let labels = BenefitLabels { arm, size };
        self.completion_seconds.get_or_create(&labels).observe(place.duration.as_secs_f64());
        self.retransmitted_segments.get_or_create(&labels).observe(f64::from(report.retransmitted.0));
        if let Some(segments) = report.end_window_segments() {
            self.end_window_segments.get_or_create(&labels).observe(segments);
        }
    }
}

impl Default for BenefitMeasures {
    fn default() -> Self {
        let segments: fn() -> Histogram = || Histogram::new(SEGMENTS);
        let measures = Self {
            completion_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            retransmitted_segments: Family::new_with_constructor(segments),
            end_window_segments: Family::new_with_constructor(segments),
        };
        // There from the start at zero, so that the first one is seen as a rise.
        for (_, arm) in ARMS {
            for size in CLASS_NAMES {
                let labels = BenefitLabels { arm, size };
                drop(measures.completion_seconds.get_or_create(&labels));
                drop(measures.retransmitted_segments.get_or_create(&labels));
                drop(measures.end_window_segments.get_or_create(&labels));
            }
        }
        measures
    }
}
