//! Writing numbers that are read at the moment of a scrape.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// One scrape of one part.
pub(super) struct Scrape<'a>(pub(super) DescriptorEncoder<'a>);

impl Scrape<'_> {
    /// A counter; its name gets `_total` when it is written.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, &sentence(help), None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    /// A gauge.
    pub(super) fn gauge<N: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: N) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, &sentence(help), None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }

    /// Counters of one name by labels.
    pub(super) fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'static str, String); N], u64)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, &sentence(help), None, MetricType::Counter)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Gauges of one name by labels.
    pub(super) fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'static str, String); N], u64)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, &sentence(help), None, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Ends the text as registered metrics end theirs.
fn sentence(help: &str) -> String {
    format!("{help}.")
}
