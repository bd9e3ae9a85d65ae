//! Numbers read at each scrape: of the engine and the packet sources, of the published state, of the store.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use spand_confine::Confined;
use spand_core::counters::Ignored;
use spand_core::mem::{Account, MemoryUse};
use spand_proto::operator::lines_left_out;
use strum::VariantArray;

use super::scrape::Scrape;
use crate::api::access::Access;
use crate::publisher::{CaptureStatus, EngineStatus, Part, Published};
use crate::store::StoreMeasures;
use crate::tls::Tls;

/// Engine and packet sources.
#[derive(Debug)]
pub(super) struct EngineState(pub(super) Published);

impl Collector for EngineState {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut scrape = Scrape(encoder);
        captures(&mut scrape, &self.0.captures())?;
        engine(&mut scrape, &self.0.engine())
    }
}

fn captures(scrape: &mut Scrape<'_>, captures: &[CaptureStatus]) -> fmt::Result {
    let backends = captures.iter().filter_map(|capture| {
        let backend = capture.backend?.name();
        Some(([("interface", capture.interface.clone()), ("backend", backend.to_owned())], 1_u64))
    });
    scrape.gauges("capture_backend", "1 for the backend that reads the interface", backends)?;
    let mirrors =
        captures.iter().map(|capture| ([("interface", capture.interface.clone())], u64::from(capture.is_mirror)));
    let help = "1 for an interface without an address of its own, as a mirror port";
    scrape.gauges("capture_is_mirror", help, mirrors)?;
    let received = captures.iter().map(|capture| ([("interface", capture.interface.clone())], capture.received));
    scrape.counters(
        "capture_packets",
        "Packets that passed the filter, including those that the kernel then dropped",
        received,
    )?;
    let dropped = captures.iter().flat_map(|capture| {
        let at = [
            ("kernel", capture.dropped_kernel),
            ("interface", capture.dropped_interface),
            ("queue", capture.dropped_queue),
        ];
        at.map(|(place, count)| ([("interface", capture.interface.clone()), ("place", place.to_owned())], count))
    });
    scrape.counters("capture_packets_dropped", "Packets dropped before the engine, by place", dropped)?;
    let losses = captures.iter().map(|capture| ([("interface", capture.interface.clone())], capture.losses));
    scrape.counters("capture_losses", "Times an interface went away or down", losses)?;
    let mut each = |name, help, count: fn(&CaptureStatus) -> u64| {
        let counts = captures.iter().map(|capture| ([("interface", capture.interface.clone())], count(capture)));
        scrape.counters(name, help, counts)
    };
    each("capture_ring_freezes", "Times the packet ring was full", |capture| capture.ring_freezes)?;
    let help = "Packets dropped at the softnet backlog of a CPU, of the whole host";
    each("capture_backlog_dropped", help, |capture| capture.dropped_backlog)?;
    let help = "Increase of the interface's rx_dropped";
    each("capture_interface_rx_dropped", help, |capture| capture.interface_rx_dropped)?;
    let help = "Increase of the interface's rx_missed_errors";
    each("capture_interface_rx_missed", help, |capture| capture.interface_rx_missed)?;
    let help = "Increase of the interface's rx_fifo_errors";
    each("capture_interface_rx_fifo", help, |capture| capture.interface_rx_fifo)
}

fn engine(scrape: &mut Scrape<'_>, engine: &EngineStatus) -> fmt::Result {
    let counters = &engine.counters;
    scrape.counter("engine_frames", "Frames handed to the engine", counters.frames)?;
    scrape.counter("engine_wire_bytes", "Bytes of those frames on the wire", counters.wire_bytes)?;
    scrape.counter("engine_segments", "TCP segments among them", counters.segments)?;
    scrape.counter("engine_connections_seen", "Connections seen", counters.connections)?;
    scrape.counter("engine_connections_ended", "Connections closed or idle too long", counters.connections_ended)?;
    let help = "Connections evicted because the table was full";
    scrape.counter("engine_connections_evicted", help, counters.connections_evicted)?;
    let help = "Established connections among them";
    scrape.counter("engine_established_evicted", help, counters.established_evicted)?;
    let help = "Connections whose start was not seen";
    scrape.counter("engine_connections_midstream", help, counters.connections_midstream)?;
    let help = "Connections of which only one direction was seen";
    scrape.counter("engine_connections_one_sided", help, counters.connections_one_sided)?;
    let help = "Samples added to another connection's slot in a full bucket";
    scrape.counter("engine_contributions_shared", help, counters.contributions_shared)?;
    let help = "Round-trip times at which an address lost its slot in a full bucket";
    scrape.counter("engine_rtts_shared", help, counters.rtts_shared)?;
    let help = "Reports of senders under way that were only added to their network's sums";
    scrape.counter("engine_live_shared", help, counters.live_shared)?;
    let help = "Networks evicted because the table was full";
    scrape.counter("engine_networks_evicted", help, counters.networks_evicted)?;
    scrape.counter("engine_window_samples", "Window samples taken", counters.window_samples)?;
    scrape.counter("engine_lower_bounds", "Lower bounds of a window taken", counters.lower_bounds)?;
    scrape.counter("engine_rtt_samples", "Round-trip time samples taken", counters.rtt_samples)?;
    scrape.counter("engine_loss_events", "Loss events recognised", counters.loss_events)?;
    scrape.counter("engine_timeouts", "Retransmission timeouts recognised", counters.timeouts)?;
    let mut directions = |name, help, [out, back]: [u64; 2]| {
        scrape.counters(
            name,
            help,
            [("out", out), ("in", back)].map(|(name, count)| ([("direction", name.to_owned())], count)),
        )
    };
    let counts = [counters.traffic_out_packets, counters.traffic_in_packets];
    directions("engine_traffic_packets", "TCP segments to and from networks", counts)?;
    let counts = [counters.traffic_out_bytes, counters.traffic_in_bytes];
    directions("engine_traffic_bytes", "Payload bytes to and from networks", counts)?;
    let counts = [counters.traffic_out_retransmitted_bytes, counters.traffic_in_retransmitted_bytes];
    directions("engine_traffic_retransmitted_bytes", "Retransmitted ones among them", counts)?;
    let help = "Payload bytes towards networks that had an estimate";
    scrape.counter("engine_traffic_covered_bytes", help, counters.traffic_out_covered_bytes)?;
    scrape.counter("engine_imminent_starts", "Imminent starts recognised", counters.imminent_starts)?;
    scrape.counter(
        "engine_service_sizes",
        "Sizes of whole transfers taken for their service",
        counters.service_sizes,
    )?;
    let help = "Segments with new data that carry the sender's congestion window in the window option";
    scrape.counter("engine_window_options", help, counters.window_options)?;
    let help = "Window samples that took the window from the window option";
    scrape.counter("engine_window_option_samples", help, counters.window_option_samples)?;
    let ignored =
        Ignored::VARIANTS.iter().map(|reason| ([("reason", reason.name().to_owned())], counters.ignored(*reason)));
    scrape.counters("engine_ignored", "Frames, segments, samples and events not used, by reason", ignored)?;
    scrape.counter(
        "engine_reported_samples",
        "Samples and lower bounds taken from reports of QUIC connections",
        engine.reports.taken,
    )?;
    let refused = engine.reports.refused().map(|(reason, count)| ([("reason", reason.name().to_owned())], count));
    scrape.counters("engine_reports_refused", "Reports of QUIC connections that gave no sample, by reason", refused)?;
    let help = "Frames ignored as not_ip, not_tcp or link_type that hold a well-known protocol";
    let protocols = counters.other_protocols();
    let protocols = protocols.map(|(protocol, count)| ([("protocol", protocol.number.to_string())], count));
    scrape.counters("engine_other_protocol_frames", help, protocols)?;
    scrape.gauge("engine_connections", "Connections in the table", engine.connections as u64)?;
    let help = "Part of the starts that is not followed under overload, of the engine with the highest";
    scrape.gauge("engine_shed_ratio", help, engine.shed)?;
    scrape.gauge("engine_networks", "Networks in the engines' tables", engine.networks as u64)?;
    let MemoryUse { segments, senders, networks } = engine.memory;
    let accounts = [("segments", segments), ("senders", senders), ("networks", networks)];
    let each =
        |bytes: fn(Account) -> usize| accounts.map(|(of, account)| ([("of", of.to_owned())], bytes(account) as u64));
    let help = "Memory of outstanding segments, of all other state of senders, and of networks' samples";
    scrape.gauges("engine_memory_bytes", help, each(|account| account.used_bytes))?;
    let help = "Limits of that memory";
    scrape.gauges("engine_memory_limit_bytes", help, each(|account| account.limit_bytes))?;
    let help = "Changed networks not yet published and handed to the store";
    scrape.gauge("engine_networks_changed", help, engine.networks_changed as u64)
}

/// The published state.
#[derive(Debug)]
pub(super) struct PublishedState(pub(super) Published);

impl Collector for PublishedState {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut scrape = Scrape(encoder);
        scrape.gauge("publisher_networks", "Networks published", self.0.network_count() as u64)?;
        scrape.gauge("publisher_estimates", "Networks with an estimate", self.0.estimate_count() as u64)?;
        scrape.gauge("publisher_services", "Services with a size", self.0.service_count() as u64)?;
        let help = "Networks whose budgets are divided by demand";
        scrape.gauge("publisher_leased_networks", help, self.0.leased_networks() as u64)?;
        let help = "Networks in retreat";
        scrape.gauge("publisher_retreats", help, self.0.retreats() as u64)?;
        let help = "Remote addresses in retreat after packet loss in first flights";
        scrape.gauge("publisher_address_retreats", help, self.0.address_retreats() as u64)?;
        scrape.gauge("publisher_subscribers", "Subscribers", self.0.subscriber_count() as u64)?;
        let help = "Hosts that are subscribed or were within the lifetime of advice";
        scrape.gauge("publisher_hosts", help, self.0.host_count() as u64)?;
        let help = "Addresses of hosts that are subscribed at other gateways";
        scrape.gauge("publisher_seats_elsewhere", help, self.0.seats_elsewhere() as u64)?;
        let help = "Networks advertised to subscribers, each counted once per subscriber";
        scrape.gauge("publisher_advertised_networks", help, self.0.advertised_pairs() as u64)?;
        let help = "Deprecated, for the alert rules of the release before: use spand_publisher_advertised_networks";
        scrape.gauge("publisher_told_pairs", help, self.0.advertised_pairs() as u64)?;
        let help = "Networks whose history was dropped because others changed more recently";
        scrape.counter("publisher_histories_dropped", help, self.0.histories_dropped())?;
        let help = "Samples not kept in the history because too many came at once";
        scrape.counter("publisher_samples_dropped", help, self.0.samples_dropped())?;
        let help = "Entries of the log of events dropped because more of their kind came";
        scrape.counter("publisher_events_dropped", help, self.0.log_dropped())?;
        let help = "Log messages suppressed by the rate limit";
        scrape.counter("log_lines_left_out", help, lines_left_out())?;
        let reasons = self.0.readiness().reasons();
        let is_ready = |part| u64::from(reasons.iter().all(|(not_ready, _)| not_ready != part));
        let ready = Part::VARIANTS.iter().map(|part| ([("part", part.name().to_owned())], is_ready(part)));
        scrape.gauges("ready", "1 where the part works", ready)
    }
}

/// The store; all zero where there is none.
#[derive(Debug)]
pub(super) struct StoreState(pub(super) StoreMeasures);

impl Collector for StoreState {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut scrape = Scrape(encoder);
        scrape.gauge("store_waiting_networks", "Changed networks not written yet", self.0.waiting() as u64)?;
        let help = "1 where the store failed for good: nothing more is saved until a restart";
        scrape.gauge("store_broken", help, u64::from(self.0.is_broken()))?;
        let help = "Age of the oldest change not on disk";
        scrape.gauge("store_lag_seconds", help, self.0.lag().as_secs_f64())
    }
}

/// TLS and passwords; no expiry and only zeros where there are none.
#[derive(Debug)]
pub(super) struct AccessState(pub(super) Access);

impl Collector for AccessState {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut scrape = Scrape(encoder);
        let in_force = self.0.tls().map(|tls| Arc::clone(&tls.in_force().borrow()));
        let expiries = in_force.iter().flat_map(|tls| {
            let own = ("certificate", Some(tls.certificate.not_after_unix_s));
            [own, ("ca", tls.ca_not_after_unix_s)]
        });
        let expiries = expiries
            .filter_map(|(file, end)| Some(([("file", file.to_owned())], u64::try_from(end?).unwrap_or_default())));
        scrape.gauges("tls_not_after_seconds", "Unix time at which a certificate in force expires", expiries)?;
        let of = |count: fn(&Tls) -> u64| self.0.tls().map_or(0, |tls| count(tls));
        let reloads = of(|tls| tls.measures().reloads());
        scrape.counter("tls_reloads", "Reloads of changed TLS files", reloads)?;
        let failures = of(|tls| tls.measures().failures());
        scrape.counter("tls_reload_failures", "Reloads of TLS files that failed", failures)?;
        let failures = self.0.passwords().map_or(0, |passwords| passwords.failures());
        scrape.counter("passwords_reload_failures", "Reloads of the file of passwords that failed", failures)
    }
}

/// The sandbox of the process.
#[derive(Debug)]
pub(super) struct ProcessState(pub(super) Confined);

impl Collector for ProcessState {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let parts = self.0.parts().map(|(part, is_dropped)| ([("part", part.to_owned())], u64::from(is_dropped)));
        Scrape(encoder).gauges("confined", "1 where this part of the sandbox is in force", parts)
    }
}
