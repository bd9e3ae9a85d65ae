//! `metrics`: the running agent's numbers for Prometheus, also of `metrics.listen`.

use std::path::Path;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use spand_proto::comparison::{ARMS, ArmSummary, CLASS_NAMES};
use spand_proto::operator::{Exposition, Failure};
use spand_proto::report::Arm;
use strum::VariantArray as _;

use super::print;
use crate::apply::Part;
use crate::control::{DirectionSeen, Reply, Request, SeenState, Status, ask};

/// Labels of one number.
type Labels = Vec<(&'static str, String)>;

pub(crate) fn metrics(socket: &Path) -> Result<(), Failure> {
    let status = match ask(socket, &Request::Status)? {
        Reply::Status(status) => status,
        Reply::Error(error) => return Err(Failure::Environment(error)),
        Reply::Explained(_) | Reply::Pause(_) => {
            return Err(Failure::Environment("the agent answered another question".to_owned()));
        }
    };
    print(&exposition(&status, Exposition::Text).map_err(Failure::environment)?)
}

/// The numbers of a status.
pub fn exposition(status: &Status, format: Exposition) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("spand_agent");
    let about = vec![
        ("version", status.version.clone()),
        ("mode", status.mode.to_string()),
        ("apply", status.method.name().to_owned()),
    ];
    registry.register("build", "The agent's release and how it is configured", Info::new(about));
    gauge(&mut registry, "uptime_seconds", "Time since it started", status.uptime_s);
    let help = "Log messages suppressed by the rate limit";
    counter(&mut registry, "log_lines_left_out", help, status.log_lines_left_out);
    let confined = Family::<Labels, Gauge>::default();
    for (part, dropped) in &status.sandbox {
        confined.get_or_create(&vec![("part", part.clone())]).set(i64::from(*dropped));
    }
    registry.register("confined", "1 if the sandbox dropped this part", confined);
    let lacking = Family::<Labels, Gauge>::default();
    for part in Part::VARIANTS {
        let is_lacking = status.lacking.iter().any(|lack| lack.part == *part);
        lacking.get_or_create(&vec![("part", part.name().to_owned())]).set(i64::from(is_lacking));
    }
    registry.register("lacking", "1 for a part of apply = bpf that this machine does not take", lacking);
    gauge(&mut registry, "paused", "1 while advice is paused on this host", u64::from(status.paused));
    // Absent without an end: one of 0 would look long past.
    if let Some(end) = status.paused_until.as_deref().and_then(unix_s) {
        gauge(&mut registry, "paused_until_seconds", "Unix time at which the pause ends by itself", end);
    }
    let reloads = &status.reloads;
    let results = [("success", reloads.succeeded), ("failure", reloads.failed)];
    let results = results.map(|(result, count)| (vec![("result", result.to_owned())], count)).into();
    counters(&mut registry, "config_reloads", "Reloads of the configuration by SIGHUP", results);
    let failed = reloads.last.as_ref().is_some_and(|last| last.error.is_some());
    let help = "0 if the last reload of the configuration failed";
    gauge(&mut registry, "config_last_reload_successful", help, u64::from(!failed));
    let gateway = &status.gateway;
    gauge(&mut registry, "gateway_connected", "1 while a subscription is open", u64::from(gateway.connected));
    let in_use = Family::<Labels, Gauge>::default();
    for one in &gateway.gateways {
        in_use.get_or_create(&vec![("gateway", one.url.clone())]).set(i64::from(one.in_use));
    }
    registry.register("gateway_in_use", "1 for the gateway to which a subscription is open", in_use);
    counter(&mut registry, "gateway_changes", "Changes from one gateway to another", gateway.gateway_changes);
    counter(&mut registry, "gateway_streams", "Subscriptions that were opened", gateway.connections);
    counter(&mut registry, "gateway_gaps", "Gaps in the sequence of updates", gateway.gaps);
    counter(&mut registry, "gateway_unreadable", "Updates that could not be read", gateway.unreadable);
    // Without TLS the family is empty: an end of 0 would look like one long past.
    let ends = Family::<Labels, Gauge>::default();
    if let Some(end) = gateway.certificate_not_after.as_deref().and_then(unix_s) {
        ends.get_or_create(&vec![("file", "certificate".to_owned())]).set(end.try_into().unwrap_or(i64::MAX));
    }
    registry.register("tls_not_after_seconds", "Unix time at which this host's certificate ends", ends);
    let help = "Times changed TLS files could not be used";
    counter(&mut registry, "tls_reload_failures", help, gateway.tls_failures);
    gauge(&mut registry, "networks_held", "Networks whose advice is held", status.networks_held as u64);
    gauge(&mut registry, "networks_in_force", "Networks whose advice is in force", status.in_force.len() as u64);
    let help = "1 while advice should be in force and has been for no network for longer than two renewals";
    gauge(&mut registry, "nothing_in_force", help, u64::from(status.not_in_force.is_some()));
    let named = |counts: &std::collections::BTreeMap<String, u64>, label: &'static str| {
        counts.iter().map(|(name, count)| (vec![(label, name.clone())], *count)).collect()
    };
    counters(&mut registry, "decisions", "Decisions by outcome", named(&status.decisions, "outcome"));
    counters(&mut registry, "applied", "Events of the apply method", named(&status.method_events, "event"));
    let (advice, pushes, adoptions) = (status.advice, status.pushes, status.advice.adoptions);
    let of = |label: &'static str, counts: &[(&str, u64)]| {
        counts.iter().map(|(name, count)| (vec![(label, (*name).to_owned())], *count)).collect()
    };
    let advice = of(
        "event",
        &[
            ("estimates", advice.estimates),
            ("snapshots", advice.snapshots),
            ("resyncs", advice.resyncs),
            ("renewals", advice.renewals),
            ("adopted", advice.adopted),
            ("withdrawn", advice.withdrawn),
            ("dropped_by_snapshot", advice.dropped_by_snapshot),
            ("expired", advice.expired),
            ("no_room", advice.no_room),
            ("evicted", advice.evicted),
            ("service_sizes", advice.service_sizes),
        ],
    );
    counter(&mut registry, "adoptions", "Times that a gateway adopted advice of another one of its cluster", adoptions);
    counters(&mut registry, "advice", "What became of advice", advice);
    let pushes =
        of("result", &[("in_time", pushes.in_time), ("late", pushes.late), ("not_applied", pushes.not_applied)]);
    counters(&mut registry, "announced_starts", "What became of announced starts", pushes);
    seen(&mut registry, status);
    applications(&mut registry, status);
    compared(&mut registry, status);
    let mut open_metrics = String::new();
    encode(&mut open_metrics, &registry)?;
    Ok(format.of(&open_metrics))
}

/// A moment in RFC 3339 in seconds since 1970-01-01 00:00 UTC.
fn unix_s(text: &str) -> Option<u64> {
    let at = humantime::parse_rfc3339(text).ok()?;
    at.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Announced starts against connections seen; nothing if the apply method sees none.
fn seen(registry: &mut Registry, status: &Status) {
    let Some(seen) = status.connections_seen.as_ref().filter(|seen| seen.state != SeenState::CannotBeSeen) else {
        return;
    };
    let by_direction = |value: fn(&DirectionSeen) -> u64| {
        let labels = |name: &str| vec![("direction", name.to_owned())];
        seen.directions().iter().map(|(name, of)| (labels(name), value(of))).collect()
    };
    let help = "Connections whose starts were announced, to networks with advice";
    counters(registry, "connections_announced", help, by_direction(|of| of.announced_total));
    let help = "Connections to networks with advice that the programs saw established";
    counters(registry, "connections_seen", help, by_direction(|of| of.seen_total));
    let help = "1 while starts are announced and next to none of their connections is seen";
    gauge(registry, "connections_unseen", help, u64::from(seen.state == SeenState::Unseen));
}

/// Applications that ask for advice; nothing where there is no socket for them.
fn applications(registry: &mut Registry, status: &Status) {
    let Some(asking) = &status.applications else { return };
    gauge(registry, "applications_connected", "Applications at the socket now", asking.connected.len() as u64);
    gauge(registry, "applications_networks", "Networks that at least one of them watches", asking.networks as u64);
    let of = |event: &str, count: u64| (vec![("event", event.to_owned())], count);
    let events = vec![
        of("connected", asking.connections),
        of("refused", asking.refused),
        of("start", asking.starts),
        of("start_advised", asking.advised),
        of("report", asking.reports),
        of("report_lost", asking.reports_lost),
        of("report_refused", asking.reports_refused),
        of("evicted", asking.evicted),
        of("unused", asking.unused),
    ];
    counters(registry, "applications", "What applications asked and reported", events);
}

/// Transfers by size and arm.
fn compared(registry: &mut Registry, status: &Status) {
    let arms = || {
        CLASS_NAMES.iter().zip(&status.comparison).flat_map(|(size, class)| {
            ARMS.map(|(arm, name)| {
                let of = if arm == Arm::Control { &class.control } else { &class.advised };
                (vec![("arm", name.to_owned()), ("size", (*size).to_owned())], of)
            })
        })
    };
    let counts = |value: fn(&ArmSummary) -> u64| arms().map(|(labels, of)| (labels, value(of))).collect();
    counters(registry, "transfers", "Transfers that ended", counts(|of| of.transfers));
    counters(registry, "transfers_advised", "Of them, those that started on advice", counts(|of| of.started_on_advice));
    let help = "Transfers that met a pause of advice, and are in neither arm";
    counter(registry, "transfers_paused", help, status.transfers_paused);
    counters(registry, "transfers_refused", "Of them, those that were refused", counts(|of| of.refused));
    let mut means = |name: &str, help: &str, value: fn(&ArmSummary) -> Option<f64>| {
        let family = Family::<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
        for (labels, of) in arms() {
            if let Some(value) = value(of) {
                family.get_or_create(&labels).set(value);
            }
        }
        registry.register(name, help, family);
    };
    means("completion_mean_seconds", "Mean completion time", |of| of.completion_mean_ms.map(|ms| ms / 1e3));
    means("retransmitted_mean_segments", "Retransmitted segments per transfer", |of| of.retransmitted_mean_segments);
    means("end_window_mean_segments", "Congestion window at the end", |of| of.end_window_mean_segments);
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register(name, help, gauge);
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

fn counters(registry: &mut Registry, name: &str, help: &str, values: Vec<(Labels, u64)>) {
    let family = Family::<Labels, Counter>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).inc_by(value);
    }
    registry.register(name, help, family);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Every number has the labels that stand in its row of the page, and no others.
    fn labels_are_documented(text: &str, page: &str) {
        let documented: BTreeMap<&str, Vec<&str>> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `spand_agent_"))
            .filter_map(|line| {
                let (name, rest) = line.split_once('`')?;
                Some((name, rest.split('|').nth(2)?.split('`').skip(1).step_by(2).collect()))
            })
            .collect();
        for line in text.lines().filter_map(|line| line.strip_prefix("spand_agent_")) {
            let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap_or(line), ""));
            let labels: Vec<&str> = labels.split("=\"").filter_map(|part| part.rsplit([',', '"']).next()).collect();
            let labels: Vec<&str> =
                labels.into_iter().filter(|label| !label.is_empty() && !label.contains('}')).collect();
            assert_eq!(documented.get(name), Some(&labels), "{line}");
        }
    }

    #[test]
    fn numbers_are_exposed_once_with_their_units() {
        let status = include_str!("../../../tests/fixtures/agent-status.json");
        let status: Status = serde_json::from_str(status).unwrap();
        let text = exposition(&status, Exposition::Text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for wanted in [
            "spand_agent_gateway_connected 1",
            "spand_agent_gateway_in_use{gateway=\"https://a:7400\"} 0",
            "spand_agent_gateway_in_use{gateway=\"https://b:7400\"} 1",
            "spand_agent_gateway_changes_total 2",
            "spand_agent_lacking{part=\"bbr\"} 1",
            "spand_agent_lacking{part=\"programs\"} 0",
            "spand_agent_paused 1",
            "spand_agent_paused_until_seconds 1800000000",
            "spand_agent_transfers_paused_total 4",
            "spand_agent_config_reloads_total{result=\"failure\"} 1",
            "spand_agent_config_last_reload_successful 0",
            "spand_agent_tls_not_after_seconds{file=\"certificate\"} 1800000000",
            "spand_agent_connections_announced_total{direction=\"accepted\"} 273",
            "spand_agent_connections_seen_total{direction=\"accepted\"} 0",
            "spand_agent_connections_unseen 1",
            "spand_agent_nothing_in_force 1",
            "spand_agent_applied_total{event=\"started\"} 7",
            "spand_agent_applications_connected 1",
            "spand_agent_applications_total{event=\"report_lost\"} 1",
            "spand_agent_applications_total{event=\"report_refused\"} 2",
            "spand_agent_transfers_total{arm=\"advised\",size=\"10kB\"} 3",
            "spand_agent_completion_mean_seconds{arm=\"advised\",size=\"10kB\"} 0.25",
        ] {
            assert_eq!(lines.iter().filter(|line| **line == wanted).count(), 1, "{wanted} in\n{text}");
        }
        assert!(!text.contains("completion_mean_seconds{arm=\"control\""), "nothing was measured there");

        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md")).unwrap();
        let exposed = lines
            .iter()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, kind)| format!("| `{name}` | {kind} |"));
        labels_are_documented(&text, &page);
        let listed = page.lines().filter(|line| line.starts_with("| `spand_agent_"));
        let listed = listed.map(|line| line.split('|').take(3).collect::<Vec<_>>().join("|") + "|");
        assert_eq!(exposed.collect::<Vec<_>>(), listed.collect::<Vec<_>>(), "docs/reference/metrics.md");
    }
}
