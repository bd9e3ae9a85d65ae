//! The names and values that a script can expect.

use spand_core::counters::Ignored;
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::flow::report::DirectionReport;
use spand_core::networks::view::NetworkView;
use spand_core::service::ServiceSize;
use spand_core::types::{Limiter, WindowSample};
use spand_proto::no_estimate::{Outcomes, Reason};
use spand_proto::units::{Micros, Window};
use strum::VariantArray;

use super::EPOCH;

type Facts = Vec<(String, String)>;

/// Whether a value is the one expected: the same word, or within `A..B`.
pub(super) fn agrees(value: &str, expected: &str) -> bool {
    let number = |text: &str| text.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse::<f64>().ok();
    match expected.split_once("..") {
        Some((least, most)) => {
            let (Some(value), Some(least), Some(most)) = (number(value), number(least), number(most)) else {
                return false;
            };
            (least..=most).contains(&value)
        }
        None => value == expected,
    }
}

/// Milliseconds, with as many digits as there are.
pub(super) fn ms(time: Micros) -> String {
    format!("{}ms", time.0 as f64 / 1e3)
}

fn bytes(window: Window) -> String {
    format!("{:.0}", window.bytes())
}

fn maybe<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or("none".to_owned(), text)
}

fn facts<const N: usize>(facts: [(&str, String); N]) -> Facts {
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn engine(engine: &Engine) -> Facts {
    let (counters, memory) = (engine.counters(), engine.memory());
    let counted = counters.named().into_iter().filter(|(name, _)| *name != "connections");
    let ignored = Ignored::VARIANTS.iter().map(|reason| (reason.name(), counters.ignored(*reason)));
    let mut all: Facts = counted
        .chain(ignored)
        .map(|(name, count)| (if name == "loss_events" { "losses" } else { name }.to_owned(), count.to_string()))
        .collect();
    // What is in the tables now, and what has been in them.
    all.extend(facts([
        ("connections", engine.connections().to_string()),
        ("connections_seen", counters.connections.to_string()),
        ("networks", engine.networks().len().to_string()),
        ("segment_bytes", memory.segments.used_bytes.to_string()),
        ("sender_bytes", memory.senders.used_bytes.to_string()),
        ("network_bytes", memory.networks.used_bytes.to_string()),
    ]));
    all
}

fn sample(sample: &WindowSample) -> String {
    let advised = if sample.advised { " advised" } else { "" };
    format!("{} {}{advised}", sample.window.segments(sample.mss).0, sample.reason.name())
}

pub(super) fn direction(report: &DirectionReport, cwnd: Option<Window>) -> Facts {
    let mut all = facts([
        ("data_packets", report.data_packets.to_string()),
        ("duplicate_data_packets", report.duplicate_data_packets.to_string()),
        ("retransmitted_packets", report.retransmitted_packets.to_string()),
        ("unique", report.unique.0.to_string()),
        ("losses", report.loss_events.to_string()),
        ("timeouts", report.timeouts.to_string()),
        ("transfers_bytes", report.transfers.bytes.0.to_string()),
        ("transfers_time", ms(report.transfers.active)),
        ("congestion_control", report.congestion_control.name().to_owned()),
        ("cwnd", maybe(cwnd, bytes)),
        ("midstream", report.midstream.to_string()),
        ("acknowledged", report.acknowledged.to_string()),
        ("bad_times", maybe(report.bad_times, |reason| reason.name().to_owned())),
        ("first_sample", maybe(report.first_sample, |reason| reason.name().to_owned())),
    ]);
    let Some(details) = &report.details else { return all };
    let limited = match details.limited_by {
        Limiter::Unknown => "none".to_owned(),
        limiter => limiter.name().to_owned(),
    };
    all.extend(facts([
        ("packets", details.packets.to_string()),
        ("payload", details.payload.0.to_string()),
        ("retransmitted", details.retransmitted.0.to_string()),
        ("synfin_retransmitted_packets", details.synfin_retransmitted_packets.to_string()),
        ("probe_packets", details.probe_packets.to_string()),
        ("hole_fill_packets", details.hole_fill_packets.to_string()),
        ("duplicate_packets", details.duplicate_packets.to_string()),
        ("rtts", details.rtt_seqack.count.to_string()),
        ("rtt_min", maybe(details.rtt_seqack.min, ms)),
        ("rtt_max", maybe(details.rtt_seqack.max, ms)),
        ("ts_rtts", details.rtt_timestamps.count.to_string()),
        ("ts_rtt_min", maybe(details.rtt_timestamps.min, ms)),
        ("flight_max", details.flight_max.0.to_string()),
        ("limited_by", limited),
        ("samples", details.samples.iter().map(sample).collect::<Vec<_>>().join(", ")),
    ]));
    all
}

pub(super) fn service(size: &ServiceSize, announced: bool) -> Facts {
    let (quantile, transfers) = (size.quantile.0.to_string(), size.transfers.to_string());
    facts([("size", quantile), ("transfers", transfers), ("announced", announced.to_string())])
}

fn outcomes(outcomes: &Outcomes) -> String {
    let counted = Reason::VARIANTS.iter().map(|reason| (reason.name(), outcomes.of(*reason)));
    let counted: Vec<_> = counted.filter(|(_, count)| *count > 0).map(|(name, n)| format!("{name} {n}")).collect();
    counted.join(", ")
}

pub(super) fn network(view: &NetworkView) -> Facts {
    let estimate = view.estimate.as_ref();
    let opening = estimate.and_then(|estimate| estimate.opening);
    let compared = view.compared.first();
    let passed = view.traffic.window;
    let flows = view.traffic.total;
    let flow = |flow: spand_core::types::Flow| {
        [flow.packets, flow.bytes, flow.retransmitted_packets, flow.retransmitted_bytes]
    };
    let ([sent, received], joined) =
        ([flows.outbound, flows.inbound].map(flow), |of: [u64; 4]| of.map(|n| n.to_string()).join("/"));
    facts([
        ("share", maybe(estimate, |estimate| estimate.share.segments(estimate.mss).0.to_string())),
        ("mark", maybe(estimate.and_then(|estimate| estimate.mark), |mark| format!("{mark:?}"))),
        ("why_not", maybe(view.no_estimate(), |why| why.reason.name().to_owned())),
        ("samples", view.samples.to_string()),
        ("bounds", view.lower_bounds.to_string()),
        ("connections", view.connections.to_string()),
        ("losses", view.losses.to_string()),
        ("opening", maybe(opening, |opening| bytes(opening.threshold))),
        ("compared_opening", maybe(compared.and_then(|of| of.opening), |opening| bytes(opening.threshold))),
        ("outcomes", outcomes(&view.outcomes)),
        ("explained", maybe(view.no_estimate(), |why| why.to_string())),
        ("window_sent", joined(flow(passed.outbound))),
        ("window_received", joined(flow(passed.inbound))),
        ("window_bytes", passed.bytes().to_string()),
        ("window_span", ms(view.traffic.span(EPOCH))),
        ("inbound_loss", maybe(flows.inbound.loss(), |part| format!("{part:.3}"))),
        ("rtt_min", maybe(view.rtt_min, ms)),
        ("rtt_mean", maybe(view.rtt_mean, ms)),
        ("parallel", view.parallel.to_string()),
        ("followed", view.followed.share().to_string()),
        // Packets, bytes, and those of both that were sent again.
        ("sent", joined(sent)),
        ("received", joined(received)),
    ])
}

/// Returns an event in words, or nothing for an event that repeats another one.
pub(super) fn event(event: &Event) -> Option<String> {
    Some(match event {
        Event::Estimate(estimate) => {
            format!("estimate {} {}", estimate.network, estimate.share.segments(estimate.mss).0)
        }
        Event::Withdrawn { network, reason } => format!("withdrawn {network} {reason:?}").to_lowercase(),
        Event::StartImminent(start) => format!("start {} to {} by {}", start.host, start.remote, start.trigger.name()),
        Event::Established(established) => format!("established {} to {}", established.host, established.network),
        Event::ServiceSize(size) => format!("size {} {}", size.service, size.quantile.0),
        Event::ServiceForgotten(service) => format!("forgotten {service}"),
        Event::Network(_) | Event::TransferEnded(_) | Event::DirectionEnded(_) => return None,
    })
}
