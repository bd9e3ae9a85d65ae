//! Counters and histograms of sharing.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use spand_cells::{CellRefused, GatewayId, TapId};
use spand_proto::units::Micros;
use strum::VariantArray;

use super::engine_end::EngineCounts;
use super::exchange::Topic;
use super::members::Incompatible;
use super::outliers;

/// What sharing counts and times. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct ShareMeasures {
    /// 1 where this gateway shares with others.
    pub configured: Gauge,
    /// 1 where messages get through, and the stream keeps closed cells.
    pub up: Gauge,
    /// Other gateways that were heard lately.
    pub members: Gauge,
    /// Cells handed to the exchange, by topic.
    pub cells_sent: Family<TopicLabel, Counter>,
    /// Cells of other gateways that came, by topic.
    pub cells_received: Family<TopicLabel, Counter>,
    /// Bytes of messages handed to the exchange.
    pub bytes_sent: Counter,
    /// Bytes of messages that came.
    pub bytes_received: Counter,
    /// Notices of other gateways that were taken.
    pub notices_received: Counter,
    /// Notices for other gateways that had no room between hub and exchange.
    pub notices_dropped: Counter,
    /// Cells that count, at the engines.
    pub cells_taken: Counter,
    /// Cells that were known already, at the engines.
    pub cells_known: Counter,
    /// Closed buckets of others that did not come whole, and were asked for.
    pub buckets_asked: Counter,
    /// Messages and cells of other gateways that do not count, by reason.
    pub refused: Family<ReasonLabel, Counter>,
    /// Cells that do not count, at the engines, by reason.
    pub cells_refused: Family<ReasonLabel, Counter>,
    /// Cells that had no room between hub and exchange, or at an engine; own closed ones are sent again.
    pub dropped: Counter,
    /// Own cells that had no room on their way to the hub; closed ones are sent again.
    pub no_room: Counter,
    /// Contributions that had no room in a merged bucket.
    pub crowded_out: Counter,
    /// Of each other gateway: connections of its closed cells in buckets in which this gateway saw the network too.
    pub seen: Family<GatewayLabel, Counter>,
    /// Those of them that this gateway saw too.
    pub seen_by_both: Family<GatewayLabel, Counter>,
    /// Networks in which the samples of one tap began to lie far from those of all others, by tap.
    pub outliers: Family<TapLabel, Counter>,
    /// From the end of a bucket, or the newest packet in an open one, to the cell here, in seconds, by topic.
    pub lag_seconds: Family<TopicLabel, Histogram, fn() -> Histogram>,
}

/// Label of a topic.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct TopicLabel {
    topic: &'static str,
}

/// Label of a reason.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct ReasonLabel {
    pub(super) reason: &'static str,
}

/// Label of a gateway, of which there are at most as many as members.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct GatewayLabel {
    gateway: u16,
}

/// Label of a tap.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct TapLabel {
    pub(super) tap: String,
}

/// Reasons that are of a message alone.
pub(super) const OTHER_GATEWAY: &str = "gateway";
pub(super) const OTHER_FORMAT: &str = "format";
pub(super) const UNREADABLE: &str = "unreadable";

/// Bounds in seconds: the targets of 0.8, 1.5 and 3 s lie between them.
const SECONDS: [f64; 12] = [0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 12.0, 30.0, 60.0, 300.0];

impl TopicLabel {
    pub(super) fn of(topic: Topic) -> Self {
        Self { topic: topic.name() }
    }
}

impl GatewayLabel {
    pub(super) fn of(GatewayId(gateway): GatewayId) -> Self {
        Self { gateway }
    }
}

impl Default for ShareMeasures {
    fn default() -> Self {
        let all = Self {
            configured: Gauge::default(),
            up: Gauge::default(),
            members: Gauge::default(),
            cells_sent: Family::default(),
            cells_received: Family::default(),
            bytes_sent: Counter::default(),
            bytes_received: Counter::default(),
            notices_received: Counter::default(),
            notices_dropped: Counter::default(),
            cells_taken: Counter::default(),
            cells_known: Counter::default(),
            buckets_asked: Counter::default(),
            refused: Family::default(),
            cells_refused: Family::default(),
            dropped: Counter::default(),
            no_room: Counter::default(),
            crowded_out: Counter::default(),
            seen: Family::default(),
            seen_by_both: Family::default(),
            outliers: Family::default(),
            lag_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        };
        // Each is there from the start, so that its first change is one.
        for topic in Topic::VARIANTS.iter().filter(|topic| topic.has_cells()) {
            let label = TopicLabel::of(*topic);
            drop(all.cells_sent.get_or_create(&label));
            drop(all.cells_received.get_or_create(&label));
            drop(all.lag_seconds.get_or_create(&label));
        }
        let reasons = Incompatible::VARIANTS.iter().map(|reason| reason.name());
        for reason in reasons.chain([OTHER_GATEWAY, OTHER_FORMAT, UNREADABLE]) {
            drop(all.refused.get_or_create(&ReasonLabel { reason }));
        }
        for reason in CellRefused::VARIANTS.iter().map(|reason| reason.name()) {
            drop(all.cells_refused.get_or_create(&ReasonLabel { reason }));
        }
        all
    }
}

impl ShareMeasures {
    pub(super) fn lag(&self, topic: Topic, lag: Micros) {
        self.lag_seconds.get_or_create(&TopicLabel::of(topic)).observe(lag.as_secs_f64());
    }

    /// Takes what is compared with a gateway: connections in its closed cells, and those that this gateway saw too.
    pub fn compared(&self, GatewayId(gateway): GatewayId, [all, both]: [u64; 2]) {
        let label = GatewayLabel { gateway };
        raise(&self.seen.get_or_create(&label), all);
        raise(&self.seen_by_both.get_or_create(&label), both);
    }

    /// Messages and cells of other gateways that do not count, by reason; those without any left out.
    pub fn refused_by_reason(&self) -> [BTreeMap<&'static str, u64>; 2] {
        let messages = Incompatible::VARIANTS.iter().map(|reason| reason.name());
        let messages = of_reasons(&self.refused, messages.chain([OTHER_GATEWAY, OTHER_FORMAT, UNREADABLE]));
        [messages, of_reasons(&self.cells_refused, CellRefused::VARIANTS.iter().map(|reason| reason.name()))]
    }

    /// What [`ShareMeasures::compared`] took of a gateway.
    pub fn compared_with(&self, gateway: GatewayId) -> [u64; 2] {
        let label = GatewayLabel::of(gateway);
        [&self.seen, &self.seen_by_both].map(|family| family.get(&label).map_or(0, |counter| counter.get()))
    }

    /// Takes how often a tap began to lie far from all others.
    pub fn outlier(&self, tap: TapId, begun: u64) {
        raise(&self.outliers.get_or_create(&TapLabel { tap: outliers::name(tap) }), begun);
    }

    /// Whether that gateway sees the same packets, although nobody declared it: a fifth of the connections, ten at least.
    pub fn is_duplicate(&self, gateway: GatewayId) -> bool {
        let [all, both] = self.compared_with(gateway);
        both >= 10 && both.saturating_mul(5) >= all
    }

    /// Takes the engines' counts.
    pub(super) fn set_engines(&self, engines: &[EngineCounts]) {
        let sum = |of: fn(&EngineCounts) -> u64| engines.iter().map(of).sum::<u64>();
        raise(&self.cells_taken, sum(|counts| counts.table.taken));
        raise(&self.cells_known, sum(|counts| counts.table.known));
        raise(&self.crowded_out, sum(|counts| counts.table.crowded_out));
        raise(&self.no_room, sum(|counts| counts.no_room + counts.table.dropped));
        let mut outliers = BTreeMap::<TapId, u64>::new();
        for (tap, of) in engines.iter().flat_map(|counts| &counts.table.outliers) {
            *outliers.entry(*tap).or_default() += of.begun;
        }
        for (tap, begun) in outliers {
            self.outlier(tap, begun);
        }
        let mut refused = BTreeMap::<&'static str, u64>::new();
        let mut seen = BTreeMap::<GatewayId, [u64; 2]>::new();
        for counts in engines {
            for (reason, count) in &counts.refused {
                *refused.entry(reason).or_default() += count;
            }
            for (gateway, by_both) in &counts.table.seen_by_both {
                let [all, both] = seen.entry(*gateway).or_default();
                (*all, *both) = (*all + by_both.all, *both + by_both.both);
            }
        }
        for (reason, count) in refused {
            raise(&self.cells_refused.get_or_create(&ReasonLabel { reason }), count);
        }
        for (gateway, compared) in seen {
            self.compared(gateway, compared);
        }
    }
}

fn of_reasons(
    counts: &Family<ReasonLabel, Counter>,
    reasons: impl Iterator<Item = &'static str>,
) -> BTreeMap<&'static str, u64> {
    let count = |reason| Some((reason, counts.get(&ReasonLabel { reason })?.get()));
    reasons.filter_map(count).filter(|(_, count)| *count > 0).collect()
}

/// Brings a counter up to a total that only rises.
fn raise(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}
