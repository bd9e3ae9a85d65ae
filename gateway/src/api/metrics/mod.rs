//! `/metrics`: every number of the gateway as text.
//!
//! Labels are bounded: interfaces that were configured, reasons and codes from closed lists. Nothing is labelled by
//! network or address; that is what `/v1/networks` is for. `docs/reference/metrics.md` lists every metric, and a test compares.

mod own;
mod scrape;
mod state;

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use spand_confine::Confined;
use spand_proto::operator::Exposition;
use tonic::codegen::Bytes;

pub(super) use self::own::{ApiLabel, ApiMeasures};
use self::state::{AccessState, EngineState, ProcessState, PublishedState, StoreState};
use super::access::Access;
use super::benefit::BenefitMeasures;
use super::refusals::Refusals;
use super::reports::{ReportMeasures, Reports};
use crate::publisher::{Measures, Published};
use crate::sharing::ShareStatus;
use crate::store::StoreMeasures;

/// The metrics at one moment, in both formats.
#[derive(Clone, Debug)]
pub(super) struct Written {
    text: Bytes,
    open_metrics: Bytes,
}

impl Written {
    /// Those of one format.
    pub(super) fn of(self, format: Exposition) -> Bytes {
        match format {
            Exposition::Text => self.text,
            Exposition::OpenMetrics => self.open_metrics,
        }
    }
}

/// All metrics of the gateway.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
}

impl Metrics {
    pub(super) fn new(
        published: &Published,
        (store, share): (Option<StoreMeasures>, Option<&ShareStatus>),
        (api, refusals): (&ApiMeasures, &Refusals),
        reports: &Reports,
        (access, confined): (&Access, &Confined),
    ) -> Self {
        let mut all = Register(Registry::with_prefix("spand"));
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        all.add("build", "Version of this gateway", Info::new(Vec::from(version)));
        all.0.register_collector(Box::new(EngineState(published.clone())));
        all.0.register_collector(Box::new(PublishedState(published.clone())));
        all.publisher(published);
        all.0.register_collector(Box::new(StoreState(store.clone().unwrap_or_default())));
        all.store(store.unwrap_or_default());
        #[cfg(feature = "share")]
        all.share(share.map(ShareStatus::measures).cloned().unwrap_or_default());
        all.api(api);
        let help = "Refused peers and requests, by reason";
        all.add("api_refused", help, refusals.counts().clone());
        all.0.register_collector(Box::new(AccessState(access.clone())));
        all.0.register_collector(Box::new(ProcessState(confined.clone())));
        all.reports(reports.measures());
        all.benefit(reports.benefit_measures());
        Self { registry: all.0 }
    }

    /// The metrics now.
    pub(super) fn written(&self) -> Result<Written, fmt::Error> {
        let mut open_metrics = String::new();
        encode(&mut open_metrics, &self.registry)?;
        Ok(Written { text: Exposition::Text.of(&open_metrics).into(), open_metrics: open_metrics.into() })
    }
}

/// The registry while it is filled. A counter's name gets its `_total` when it is written.
struct Register(Registry);

impl Register {
    fn add(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.0.register(name, help, metric);
    }

    fn publisher(&mut self, published: &Published) {
        let measures = published.measures().clone();
        for (name, help, counter) in [
            ("estimates_sent", "Estimates sent to all subscribers", measures.estimates),
            ("withdrawals_sent", "Withdrawals sent to all subscribers", measures.withdrawals),
            (
                "service_sizes_sent",
                "Service sizes sent to their host because they appeared or changed",
                measures.service_sizes,
            ),
            ("starts_no_subscriber", "Imminent starts of hosts without a subscriber", measures.starts_no_subscriber),
            ("leases_sent", "Changed leases sent on their own", measures.leases_advertised),
            (
                "destinations_expired",
                "Networks withdrawn from a host that did not use them for publish.destination_idle_s",
                measures.destinations_expired,
            ),
            (
                "destinations_evicted",
                "Networks withdrawn from a host that uses too many",
                measures.destinations_evicted,
            ),
            (
                "dirty_overflows",
                "Snapshots sent because too many changed networks waited for a subscriber",
                measures.dirty_overflows,
            ),
            (
                "pace_unused",
                "Messages of a subscriber's turn that were not sent because its stream ended or restarted",
                measures.pace_unused,
            ),
        ] {
            self.add(&format!("publisher_{name}"), help, counter);
        }
        self.starts_and_subscriptions(published.measures().clone());
    }

    fn established(&mut self, measures: &Measures) {
        self.add(
            "publisher_established",
            "Connections of hosts inside that were established",
            measures.established.clone(),
        );
        let help = "Those of them towards networks with an estimate";
        self.add("publisher_established_covered", help, measures.established_covered.clone());
        let help = "Those of these whose host is subscribed here";
        self.add("publisher_established_advised", help, measures.established_advised.clone());
    }

    fn starts_and_subscriptions(&mut self, measures: Measures) {
        self.established(&measures);
        self.add("publisher_starts_pushed", "Imminent starts queued for a subscriber", measures.starts_pushed);
        self.add(
            "publisher_starts_no_estimate",
            "Imminent starts towards networks without an estimate",
            measures.starts_no_estimate,
        );
        self.add(
            "publisher_starts_overflowed",
            "Imminent starts dropped because a subscriber's queue was full",
            measures.starts_overflowed,
        );
        self.add(
            "publisher_leases_no_room",
            "Imminent starts in networks without leases because too many have some",
            measures.leases_no_room,
        );
        self.add(
            "publisher_first_flights",
            "Advised first flights that hosts reported, by consequence for the advice",
            measures.first_flights,
        );
        self.add(
            "publisher_addresses_displaced",
            "Remote addresses with lost first flights evicted because too many were reported",
            measures.addresses_displaced,
        );
        self.add(
            "publisher_retreats_slower",
            "Retreats because advised transfers were slower than those of the control group",
            measures.retreats_slower,
        );
        self.add(
            "publisher_retreats_of_others",
            "Retreats that other gateways began and that hold back advice here",
            measures.retreats_of_others,
        );
        let help = "Starts handed to the gateway that their host is subscribed at";
        self.add("publisher_starts_handed_on", help, measures.starts_handed_on);
        let help = "Starts that other gateways saw and handed to this one";
        self.add("publisher_starts_of_others", help, measures.starts_of_others);
        let help = "Those of them dropped because one gateway handed over too many for one host";
        self.add("publisher_starts_of_others_refused", help, measures.starts_of_others_refused);
        let help = "Addresses of other gateways' hosts for which there was no room";
        self.add("publisher_seats_no_room", help, measures.seats_no_room);
        self.add(
            "publisher_notices_dropped",
            "What other gateways had to know and had no room on its way to the hub",
            measures.notices_dropped,
        );
        self.add("config_reloads", "Reloads of the configuration by SIGHUP", measures.config_reloads);
        self.add(
            "config_last_reload_successful",
            "0 if the last reload of the configuration failed",
            measures.config_last_reload_successful,
        );
        self.add("publisher_subscriptions", "Subscriptions started", measures.subscriptions);
        self.add(
            "publisher_subscriptions_adopted",
            "Subscriptions whose host's advice of another gateway lives on while the snapshot comes",
            measures.subscriptions_adopted,
        );
        self.add(
            "publisher_subscriptions_not_adopted",
            "Subscriptions that asked for that in vain",
            measures.subscriptions_not_adopted,
        );
        self.add("publisher_subscriptions_refused", "Subscriptions refused at a limit", measures.subscriptions_refused);
        self.add(
            "publisher_addresses_left_out",
            "Addresses of subscriptions left out at the limit of subscribers for an address",
            measures.addresses_left_out,
        );
        self.add(
            "publisher_resyncs_slow_reader",
            "Resynchronisations of subscribers that read too slowly",
            measures.resyncs_slow_reader,
        );
        self.add(
            "publisher_resyncs_state_replaced",
            "Resynchronisations because the state was replaced",
            measures.resyncs_state_replaced,
        );
        self.add("publisher_changes_dropped", "Changes dropped for slow subscribers", measures.changes_dropped);
        self.add(
            "publisher_start_queued_seconds",
            "Time from a start's packet to the subscriber's queue",
            measures.start_queued_seconds,
        );
        self.add(
            "publisher_start_sent_seconds",
            "Time from a start's packet to handing its message to the transport",
            measures.start_sent_seconds,
        );
        self.add(
            "publisher_apply_seconds",
            "Time from a batch of the engine to its publication",
            measures.apply_seconds,
        );
    }

    fn store(&mut self, measures: StoreMeasures) {
        self.add("store_networks_saved", "Networks written or removed", measures.saved);
        self.add("store_write_failures", "Writes that failed and are tried again", measures.failures);
        self.add("store_changes_dropped", "Changes dropped because too many waited", measures.dropped);
        self.add("store_networks_refused", "Stored networks that were not restored", measures.refused);
        self.add("store_write_seconds", "Time of one write including its flush", measures.write_seconds);
    }

    #[cfg(feature = "share")]
    fn share(&mut self, measures: spand_share::ShareMeasures) {
        self.add("share_configured", "1 where share.servers names any", measures.configured);
        self.add(
            "share_up",
            "1 while messages to and from other gateways get through and closed cells are kept",
            measures.up,
        );
        self.add("share_members", "Other gateways heard in the last 15 s", measures.members);
        self.add("share_cells_sent", "Cells handed to the exchange, by topic", measures.cells_sent);
        self.add("share_cells_received", "Cells of other gateways that came, by topic", measures.cells_received);
        self.add("share_bytes_sent", "Bytes of messages handed to the exchange", measures.bytes_sent);
        self.add("share_bytes_received", "Bytes of messages that came", measures.bytes_received);
        self.add("share_notices_received", "Notices of other gateways that were taken", measures.notices_received);
        let help = "Notices for other gateways that had no room between hub and exchange";
        self.add("share_notices_dropped", help, measures.notices_dropped);
        self.add("share_cells_taken", "Cells of other gateways that count", measures.cells_taken);
        self.add("share_cells_known", "Cells of other gateways that were known already", measures.cells_known);
        self.add("share_messages_refused", "Messages that do not count, by reason", measures.refused);
        self.add("share_cells_refused", "Cells that do not count, by reason", measures.cells_refused);
        self.add(
            "share_cells_dropped",
            "Own cells that had no room on their way to the exchange, and those of others whose engine had ended",
            measures.dropped,
        );
        let help = "Closed buckets of others that did not come whole and were asked for";
        self.add("share_buckets_asked", help, measures.buckets_asked);
        self.add("share_cells_no_room", "Own cells that had no room on their way to the hub", measures.no_room);
        let help = "Contributions that had no room in a merged bucket";
        self.add("share_contributions_crowded_out", help, measures.crowded_out);
        let help = "Connections in closed cells of another gateway, where this gateway saw the network too";
        self.add("share_connections_compared", help, measures.seen);
        let help = "Those of them that this gateway saw too";
        self.add("share_connections_seen_by_both", help, measures.seen_by_both);
        let help = "Networks in which the samples of one tap began to lie far from those of all others";
        self.add("share_outliers", help, measures.outliers);
        let help = "From the end of a bucket, or the newest packet of an open one, to its cell here, by topic";
        self.add("share_lag_seconds", help, measures.lag_seconds);
    }

    fn api(&mut self, measures: &ApiMeasures) {
        let measures = measures.clone();
        self.add("api_requests", "Requests answered, by endpoint and status", measures.requests);
        self.add("api_request_seconds", "Time from a request's head to its answer", measures.request_seconds);
        self.add("api_connections_accepted", "Connections accepted", measures.connections);
        self.add("api_connections_refused", "Connections closed at the limit", measures.connections_refused);
        let help = "Connections closed in favour of another because they were idle";
        self.add("api_connections_displaced", help, measures.connections_displaced);
        self.add("api_accept_failures", "Connections that could not be accepted", measures.accept_failures);
        self.add("api_live_streams_refused", "Live streams refused at the limit", measures.live_refused);
        let help = "Times a live stream was restarted because its reader was too slow";
        self.add("api_live_resyncs", help, measures.live_resyncs);
    }

    fn reports(&mut self, measures: &ReportMeasures) {
        let measures = measures.clone();
        self.add("report_batches", "Batches of reports from hosts", measures.batches);
        self.add("report_batches_repeated", "Batches received before", measures.batches_repeated);
        self.add(
            "report_connections",
            "Connections that hosts reported, by arm of the comparison and loss in the first flight",
            measures.connections,
        );
        self.add("report_connections_ignored", "Reported connections that were ignored", measures.connections_ignored);
        let help = "Reports of QUIC connections that had no room on their way to the engine";
        self.add("report_samples_dropped", help, measures.samples_dropped);
        let help = "Hosts evicted from the table of reporting hosts";
        self.add("report_hosts_forgotten", help, measures.hosts_forgotten);
        let help = "Host names evicted because their certificate or address reported under too many names";
        self.add("report_host_names_forgotten", help, measures.names_forgotten);
        self.add("report_pushes", "Outcome of pushes, as hosts report it", measures.pushes);
    }

    fn benefit(&mut self, measures: &BenefitMeasures) {
        let measures = measures.clone();
        let help = "Time from the first byte of a reported transfer to its last acknowledgement, by arm and size";
        self.add("report_completion_seconds", help, measures.completion_seconds);
        let help = "Retransmitted segments of a reported transfer, by arm and size";
        self.add("report_retransmitted_segments", help, measures.retransmitted_segments);
        let help = "Congestion window at the end of a reported transfer, by arm and size";
        self.add("report_end_window_segments", help, measures.end_window_segments);
    }
}
