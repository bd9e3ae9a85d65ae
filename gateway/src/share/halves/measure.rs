//! What is found with each other gateway, as metrics.

use std::collections::BTreeMap;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use spand_core::halves::HashSample;
use spand_core::sharing::GatewayId;

use super::Compared;
use crate::share::measure::GatewayLabel;

/// Connections of the last four minutes by what another gateway saw of them. Clones share the same numbers.
#[derive(Clone, Debug, Default)]
pub struct HalfMeasures {
    /// Of which this gateway saw one direction.
    pub one_direction: Family<GatewayLabel, Gauge>,
    /// Those of which the other gateway saw the other one.
    pub other_direction: Family<GatewayLabel, Gauge>,
    /// Of which this gateway saw both directions.
    pub both_directions: Family<GatewayLabel, Gauge>,
    /// Those of which the other gateway saw both, too.
    pub seen_by_both: Family<GatewayLabel, Gauge>,
    /// One in 2^N connections is compared.
    pub sample_bits: Gauge,
    /// Those that had no room at the hub, or between it and the exchange.
    pub dropped: Counter,
    /// Those that had none between the engines and the hub.
    pub no_room: Counter,
}

impl HalfMeasures {
    /// Shows what was found; of gateways that are gone nothing is left.
    pub(crate) fn set(
        &self,
        sample: HashSample,
        found: &BTreeMap<GatewayId, Compared>,
        before: &BTreeMap<GatewayId, Compared>,
    ) {
        self.sample_bits.set(sample.bits().into());
        let families = [&self.one_direction, &self.other_direction, &self.both_directions, &self.seen_by_both];
        for gone in before.keys().filter(|gateway| !found.contains_key(gateway)) {
            for family in families {
                family.remove(&GatewayLabel::of(*gone));
            }
        }
        for (gateway, found) in found {
            let counts = [found.one_direction, found.other_direction, found.both_directions, found.seen_by_both];
            for (family, count) in families.into_iter().zip(counts) {
                family.get_or_create(&GatewayLabel::of(*gateway)).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }
}
