//! `doctor`: the usual faults of a host and its path to the gateway, and what to do about each. Changes nothing.
//!
//! What only one apply method needs is a failure where that method is configured, else a warning.

mod gateway;
mod host;

pub(crate) use host::may_write;

use std::path::Path;

use spand_proto::operator::{Check, Diagnosis, Failure, Verdict, judge_broken, judge_configuration, or_default};

use crate::apply::route;
use crate::args::Format;
use crate::commands::{print, print_json};
use crate::config::{ApplyMethod, Config, DEFAULT_PATH};
use crate::control::{Reply, Request, Status, ask};

/// Looks, prints what was found, and fails where something is at fault.
pub(crate) fn run(path: &Path, format: Format) -> Result<(), Failure> {
    let (config, configuration) = match or_default(Config::load(path), Path::new(DEFAULT_PATH)) {
        Ok((config, was_read)) => (config, judge_configuration(path, was_read)),
        Err(error) => (Config::salvaged(path).0, judge_broken(&error)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    let diagnosis = Diagnosis::new(runtime.block_on(look(&config, configuration)));
    if format.json {
        print_json(&diagnosis)?;
    } else {
        print(&diagnosis.text())?;
    }
    diagnosis.outcome()
}

async fn look(config: &Config, configuration: Check) -> Vec<Check> {
    let status = match ask(&config.control_socket(), &Request::Status) {
        Ok(Reply::Status(status)) => Some(status),
        _ => None,
    };
    let method = config.apply;
    let mut checks = vec![configuration, running(config, status.as_deref())];
    checks.push(host::capabilities(method, status.as_deref().map(|status| status.pid)));
    checks.extend([host::btf(method), host::jit(method), host::cgroup(config)]);
    checks.extend(host::programs(config, status.as_deref()));
    checks.extend([
        host::congestion_control(config),
        host::idle_restart(method),
        host::window_scaling(),
        host::state(config),
    ]);
    match route::survey().await {
        Ok(survey) => checks.extend(host::judge(&survey, method, status.is_some())),
        Err(error) => checks.push(Check::unknown("routes", error.to_string(), "run this as root")),
    }
    checks.push(host::addresses(config).await);
    checks.extend(gateway::look(config, status.as_deref()).await);
    checks.extend(status.as_deref().into_iter().flat_map(|status| [host::in_force(status), host::look(status)]));
    checks
}

/// How bad the lack of something is that only `needs` needs.
fn verdict_if_missing(method: ApplyMethod, needs: ApplyMethod) -> Verdict {
    if method == needs { Verdict::Fail } else { Verdict::Warn }
}

fn running(config: &Config, status: Option<&Status>) -> Check {
    let Some(status) = status else {
        let found = format!("no agent answers at {}", config.control_socket().display());
        return Check::warn("agent", found, "start one (`systemctl start spand-agent`), or run this as root");
    };
    let found = format!("process {} runs with mode {}, apply {}", status.pid, status.mode, status.method);
    // What it lacks of the configured method has a check of its own.
    if status.mode != config.mode || (status.method != config.apply && status.lacking.is_empty()) {
        let to_do = "restart it, if that is what the configuration should be";
        return Check::warn("agent", format!("{found}, but the configuration is different"), to_do);
    }
    if status.paused {
        let until = status.paused_until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
        return Check::warn("agent", format!("{found}, and advice is paused{until}"), "spand-agent resume");
    }
    Check::ok("agent", found)
}
