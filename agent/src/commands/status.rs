//! `status`: the state of the running agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use spand_proto::comparison::ClassSummary;
use spand_proto::operator::Failure;
use spand_proto::units::counted as number_of;

use super::explain::ask_agent;
use super::{print, print_json};
use crate::applications::ApplicationsStatus;
use crate::args::Format;
use crate::config::ApplyMethod;
use crate::control::{GatewayStanding, GatewayStatus, GrowthInForce, LastReload, Reply, Request, Status, ask};
use crate::destination;

/// Networks listed one by one for people.
const LISTED: usize = 20;

pub(crate) fn status(socket: &Path, format: Format) -> Result<(), Failure> {
    match ask(socket, &Request::Status)? {
        Reply::Status(status) => {
            if format.json {
                print_json(&status)?;
            } else {
                print(&for_people(&status, no_advice(socket, &status)))?;
            }
            status.not_in_force.map_or(Ok(()), |lasting| Err(Failure::Environment(lasting.sentence())))
        }
        Reply::Error(error) => Err(Failure::Environment(error)),
        Reply::Explained(_) | Reply::Pause(_) => {
            Err(Failure::Environment("the agent answered another question".to_owned()))
        }
    }
}

/// Where the host holds no advice, the reason for a destination of one of its connections.
fn no_advice(socket: &Path, status: &Status) -> Option<String> {
    if status.networks_held > 0 || !status.gateway.connected {
        return None;
    }
    let Some(destination) = destination::open(&status.addresses).pop_first() else {
        return Some(
            "no connection from these addresses is open: `spand-agent explain ADDRESS` gives the reason".to_owned(),
        );
    };
    let explained = ask_agent(socket, &Request::Explain { destination, bytes: None, mss: None }).ok()?;
    Some(format!("for example, {destination}: {}", explained.decision))
}

fn for_people(status: &Status, no_advice: Option<String>) -> String {
    let gateway = &status.gateway;
    let connected = if gateway.connected { "subscribed" } else { "not subscribed" };
    let mut lines = vec![
        format!("spand-agent {}, process {}, up {} s", status.version, status.pid, status.uptime_s),
        format!("mode {}, apply {}{}", status.mode, status.method, variant(status)),
        format!("sandbox: {}", sandbox(&status.sandbox)),
        format!("gateway {}: {connected} for {} s as {}", gateway.url, gateway.since_s, status.host_name),
    ];
    for lack in &status.lacking {
        lines.insert(2, format!("lacking {}: {}", lack.part, lack.sentence()));
    }
    if !gateway.connected {
        lines.extend(gateway.last_error.as_ref().map(|error| format!("  {error}")));
        lines.push(format!("  {}", gateway.retry(SystemTime::now())));
    }
    lines.extend(gateways(gateway));
    let addresses: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
    lines.push(format!("addresses: {}", addresses.join(", ")));
    let plural = if status.networks_held == 1 { "" } else { "s" };
    lines.push(format!(
        "advice held for {} network{plural}, in force for {}",
        status.networks_held,
        status.in_force.len()
    ));
    let (no_room, evicted) = (status.advice.no_room, status.advice.evicted);
    if no_room + evicted > 0 {
        lines.push(format!("  no room for {no_room} estimates, and {evicted} made room for others (limits.networks)"));
    }
    lines.extend(no_advice.map(|reason| format!("  {reason}")));
    for entry in status.in_force.iter().take(LISTED) {
        lines.push(format!("  {} starts with {} segments", entry.prefix, entry.cwnd_segments));
    }
    if status.in_force.len() > LISTED {
        lines.push(format!("  and {} more: see --json", status.in_force.len() - LISTED));
    }
    lines.extend(growth(&status.growth));
    if let Some(last) = &status.reloads.last {
        lines.insert(2, reloaded(last));
    }
    if status.paused {
        let until = status.paused_until.as_deref().unwrap_or("`spand-agent resume`");
        lines.insert(2, format!("advice is paused until {until}: no connection starts on advice"));
    }
    lines.push(format!("decisions: {}", counted(&status.decisions)));
    lines.extend(applied(status));
    let pushes = status.pushes;
    lines.push(format!(
        "connection hints received: {} ({} in force before the handshake could end, {} later, {} not applied)",
        pushes.received, pushes.in_time, pushes.late, pushes.not_applied
    ));
    if let Some(seen) = &status.connections_seen {
        lines.push(format!("their connections: {}", seen.sentence()));
        lines.extend(status.causes_unseen().iter().map(|cause| format!("  may be: {cause}")));
    }
    lines.extend(status.applications.as_ref().map(applications));
    lines.extend(status.applications_error.as_ref().map(|error| format!("applications are given no advice: {error}")));
    lines.extend(compared(&status.comparison));
    if status.transfers_paused > 0 {
        lines.push(format!("  left out because advice was paused: {}", status.transfers_paused));
    }
    lines.push(format!("limitations of apply {}:", status.method));
    lines.extend(status.limitations.iter().map(|limitation| format!("  {}: {}", limitation.name, limitation.sentence)));
    lines.join("\n")
}

fn variant(status: &Status) -> String {
    status.variant.as_ref().map_or_else(String::new, |variant| format!(", variant {variant}"))
}

/// Several gateways, a line for each.
fn gateways(gateway: &GatewayStatus) -> Vec<String> {
    if gateway.gateways.len() < 2 {
        return Vec::new();
    }
    let line = |one: &GatewayStanding| format!("  {}: {}", one.url, one.sentence());
    let mut lines = vec![format!("gateways in order of preference, {} changes so far:", gateway.gateway_changes)];
    lines.extend(gateway.gateways.iter().map(line));
    lines
}

/// The rules of slow start and where each comes from.
fn growth(rules: &[GrowthInForce]) -> Vec<String> {
    let line = |rule: &GrowthInForce| {
        let words = match (rule.dbc_dmax, rule.burst_f) {
            (Some(dmax), _) => format!("{} (dmax {dmax})", rule.growth),
            (_, Some(f)) => format!("{} (f {f})", rule.growth),
            _ => rule.growth.clone(),
        };
        match (rule.prefix, rule.service) {
            (Some(prefix), _) => format!("  {words} to {prefix} (start.for)"),
            (_, Some(service)) => format!("  {words} from {service} (start.for)"),
            _ => format!("slow start of advised connections: {words} (start.growth)"),
        }
    };
    let mut lines: Vec<String> = rules.iter().take(LISTED).map(line).collect();
    if rules.len() > LISTED {
        lines.push(format!("  and {} more: see --json", rules.len() - LISTED));
    }
    lines
}

/// Applications that ask for advice.
fn applications(asking: &ApplicationsStatus) -> String {
    let names = if asking.connected.is_empty() { "none connected".to_owned() } else { asking.connected.join(", ") };
    format!(
        "applications: {names}; {} watched; reports: {} taken, {} lost, {} refused",
        number_of(asking.networks, "network", "networks"),
        asking.reports.saturating_sub(asking.reports_lost + asking.reports_refused),
        asking.reports_lost,
        asking.reports_refused
    )
}

/// What came of the last SIGHUP.
fn reloaded(last: &LastReload) -> String {
    if let Some(error) = &last.error {
        return format!("configuration read again at {}, not in force: {error}", last.at);
    }
    let waits = if last.needs_restart.is_empty() {
        String::new()
    } else {
        format!("; changed but needs a restart: {}", last.needs_restart.join(", "))
    };
    let changed = if last.took_effect.is_empty() { "nothing changed".to_owned() } else { last.took_effect.join(", ") };
    format!("configuration read again at {}, in force: {changed}{waits}", last.at)
}

/// What advice did so far, a line for each size that has transfers.
fn compared(classes: &[ClassSummary]) -> Vec<String> {
    let seen = classes.iter().filter(|class| class.advised.transfers + class.control.transfers > 0);
    let line = |class: &ClassSummary| {
        let size = class.up_to_bytes.map_or_else(|| "larger".to_owned(), |bytes| format!("up to {} kB", bytes / 1_000));
        let ms = |mean: Option<f64>| mean.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
        let difference = match class.difference.completion_ms.and_then(|d| d.percent) {
            Some([mean, low, high]) => format!("{mean:+.1} % ({low:+.1} to {high:+.1} with 95 % confidence)"),
            None => "too few to compare".to_owned(),
        };
        let left_out = match class.not_compared {
            0 => String::new(),
            _ if class.difference.completion_ms.is_none() => String::new(),
            transfers => format!("; {transfers} not compared: too few of their size in an arm"),
        };
        let repeated = class.difference.retransmitted_segments.map_or_else(String::new, |d| {
            format!("; retransmitted segments {:+.2} ({:+.2} to {:+.2})", d.mean, d.low, d.high)
        });
        format!(
            "  {size}: {} advised {}, {} controls {}: {difference}{repeated}{left_out}",
            class.advised.transfers,
            ms(class.advised.completion_mean_ms),
            class.control.transfers,
            ms(class.control.completion_mean_ms)
        )
    };
    let lines: Vec<String> = seen.map(line).collect();
    if lines.is_empty() {
        return vec!["completion times: none seen yet".to_owned()];
    }
    std::iter::once("completion times by size, as assigned:".to_owned()).chain(lines).collect()
}

/// What the process may no longer do.
fn sandbox(parts: &BTreeMap<String, bool>) -> String {
    let named = |wanted| {
        let parts = parts.iter().filter(|(part, dropped)| **dropped == wanted && *part != "user");
        parts.map(|(part, _)| part.as_str()).collect::<Vec<_>>().join(", ")
    };
    let dropped = match (named(true), named(false)) {
        (none, _) if none.is_empty() => "nothing dropped".to_owned(),
        (all, none) if none.is_empty() => format!("{all} dropped"),
        (some, rest) => format!("{some} dropped; not {rest}"),
    };
    let user =
        if parts.get("user").copied().unwrap_or_default() { "not running as root" } else { "still running as root" };
    format!("{dropped}; {user}")
}

/// Counters of `bpf` that the line of connections has.
const SHOWN: [&str; 6] =
    ["started", "clipped_peer_window", "clipped_budget", "control", "no_estimate", "other_namespace"];

/// What the method did: with `bpf` connections by what became of them, else its counters.
fn applied(status: &Status) -> Vec<String> {
    if status.method != ApplyMethod::Bpf {
        return vec![format!("applied: {}", counted(&status.method_events))];
    }
    let count = |name: &str| status.method_events.get(name).copied().unwrap_or(0);
    let [started, peer_window, budget, control, no_estimate, other_namespace] = SHOWN.map(count);
    let limited: Vec<String> = [(peer_window, "by the peer's window"), (budget, "by this host's lease")]
        .into_iter()
        .filter(|(connections, _)| *connections > 0)
        .map(|(connections, limit)| format!("{connections} limited {limit}"))
        .collect();
    let limited = if limited.is_empty() { String::new() } else { format!(" ({})", limited.join(", ")) };
    let rest: BTreeMap<String, u64> = status
        .method_events
        .iter()
        .filter(|(name, _)| !SHOWN.contains(&name.as_str()))
        .map(|(name, count)| (name.clone(), *count))
        .collect();
    let mut lines =
        vec![format!("connections: advised {started}{limited}, control {control}, without an estimate {no_estimate}")];
    if other_namespace > 0 {
        lines.push(format!("  of other network namespaces, left alone: {other_namespace}"));
    }
    if !rest.is_empty() {
        lines.push(format!("  also counted: {}", counted(&rest)));
    }
    lines
}

fn counted(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none yet".to_owned();
    }
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_is_shown_by_what_is_dropped_and_whether_root_is() {
        let parts = |parts: &[(&str, bool)]| {
            sandbox(&parts.iter().map(|(part, dropped)| ((*part).to_owned(), *dropped)).collect())
        };
        let all = parts(&[("capabilities", true), ("files", true), ("user", false)]);
        assert_eq!(all, "capabilities, files dropped; still running as root");
        let some = parts(&[("files", true), ("tcp", false), ("user", true)]);
        assert_eq!(some, "files dropped; not tcp; not running as root");
        assert_eq!(parts(&[("files", false), ("user", false)]), "nothing dropped; still running as root");
    }

    #[test]
    fn the_text_says_when_the_next_attempt_is_and_counts_connections() {
        let mut status = crate::control::made_up(
            "bpf",
            &[("started", 9), ("clipped_peer_window", 2), ("mptcp", 4), ("other_namespace", 7)],
        );
        status.gateway.last_error = Some("connection refused".to_owned());
        status.gateway.failed_attempts = 5;
        let soon = SystemTime::now() + std::time::Duration::from_secs(3_600);
        status.gateway.next_retry_at = Some(humantime::format_rfc3339_millis(soon).to_string());
        let text = for_people(&status, None);
        assert!(text.contains("  connection refused\n  5 attempts failed, the next one is in 3"), "{text}");
        assert!(
            text.contains(
                "connections: advised 9 (2 limited by the peer's window), control 0, without an estimate 0\n  of other network namespaces, left \
                 alone: 7\n  also counted: mptcp 4"
            ),
            "{text}"
        );
        status.gateway.connected = true;
        assert!(!for_people(&status, None).contains("attempts failed"), "{text}");
    }
    #[test]
    fn several_gateways_are_listed_each_with_what_became_of_it() {
        let mut status = crate::control::made_up("dry_run", &[]);
        assert!(!for_people(&status, None).contains("order of preference"), "one alone needs no list");
        let one = |url: &str| GatewayStanding { url: url.to_owned(), ..GatewayStanding::default() };
        status.gateway.gateway_changes = 3;
        status.gateway.gateways = vec![
            GatewayStanding { last_error: Some("refused".to_owned()), ..one("https://a") },
            GatewayStanding { in_use: true, ..one("https://b") },
            one("https://c"),
        ];
        let text = gateways(&status.gateway).join("\n");
        let expected = "gateways in order of preference, 3 changes so far:\n  https://a: refused\n  https://b: in use\n  https://c: not in use";
        assert_eq!(text, expected);
        assert!(for_people(&status, None).contains("https://b: in use"));
    }
}
