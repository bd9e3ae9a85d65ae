//! `status`: how the running agent is.

use std::collections::BTreeMap;

use spand_proto::operator::Failure;

use super::{print, print_json};
use crate::cli::Format;
use crate::config::Config;
use crate::control::{Reply, Request, Status, ask};

/// Networks listed one by one for people.
const LISTED: usize = 20;

pub(crate) fn status(config: &Config, format: Format) -> Result<(), Failure> {
    match ask(&config.control_socket(), &Request::Status)? {
        Reply::Status(status) if format.json => print_json(&status),
        Reply::Status(status) => print(&for_people(&status)),
        Reply::Error(error) => Err(Failure::Environment(error)),
        Reply::Explained(_) => Err(Failure::Environment("the agent answered another question".to_owned())),
    }
}

fn for_people(status: &Status) -> String {
    let gateway = &status.gateway;
    let connected = if gateway.connected { "subscribed" } else { "not subscribed" };
    let mut lines = vec![
        format!("spand-agent {}, process {}, up {} s", status.version, status.pid, status.uptime_s),
        format!("mode {}, apply {}", status.mode, status.apply),
        format!("gateway {}: {connected} for {} s as {}", gateway.url, gateway.since_s, status.host_name),
    ];
    if let Some(error) = gateway.last_error.as_ref().filter(|_| !gateway.connected) {
        lines.push(format!("  {error}"));
    }
    let addresses: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
    lines.push(format!("addresses: {}", addresses.join(", ")));
    lines.push(format!("advice held for {} networks, in force for {}", status.networks_held, status.in_force.len()));
    for entry in status.in_force.iter().take(LISTED) {
        lines.push(format!("  {} starts with {} segments", entry.network, entry.window_segments));
    }
    if status.in_force.len() > LISTED {
        lines.push(format!("  and {} more: see --json", status.in_force.len() - LISTED));
    }
    lines.push(format!("decisions: {}", counted(&status.decisions)));
    lines.push(format!("applied: {}", counted(&status.applied)));
    let pushes = status.pushes;
    lines.push(format!(
        "announced starts: {} received, {} in time, {} late, {} not applied",
        pushes.received, pushes.in_time, pushes.late, pushes.not_applied
    ));
    lines.push(format!("what apply {} lacks:", status.apply));
    lines.extend(status.lacks.iter().map(|lack| format!("  {}: {}", lack.name, lack.sentence)));
    lines.join("\n")
}

fn counted(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none yet".to_owned();
    }
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}
