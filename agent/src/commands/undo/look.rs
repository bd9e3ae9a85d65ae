//! What is in force, and the commands that take it back. Changes nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use spand_proto::network::Network;
use spand_proto::operator::{Failure, rfc3339_unix_s};

use super::super::{print, print_json};
use crate::apply::bpf::{Attached, attached, cgroup2_or};
use crate::apply::route::{Netlink, signed_routes, undo_command, undo_signed};
use crate::args::Format;
use crate::config::{ApplyMethod, Place};
use crate::control::{AskError, InForce, Reply, Request, Status, try_ask};
use crate::ledger::{self, Entry, Recorded};

/// Networks listed one by one for people.
const LISTED: usize = 20;

/// What is in force.
#[derive(Debug, Serialize)]
struct Found {
    /// The agent that answers at the control socket.
    agent: Option<Running>,
    /// Why there is no answer although an agent may run.
    agent_error: Option<String>,
    /// Whether the ledger could be read; where not, the routes' signature decides.
    ledger: &'static str,
    /// The agent's routes.
    changes: Vec<Change>,
    /// Routes of the ledger that are gone.
    routes_gone: Vec<Network>,
    /// Routes with the agent's signature that are not in the ledger: somebody else's.
    routes_left: Vec<Network>,
    /// Programs of agents in the kernel; `null` where this user may not look.
    programs: Option<Vec<Attached>>,
    /// What takes everything back.
    take_back: String,
}

#[derive(Debug, Serialize)]
struct Running {
    pid: u32,
    method: ApplyMethod,
    paused: bool,
    paused_until: Option<String>,
    in_force: Vec<InForce>,
}

/// A route of the agent.
#[derive(Debug, Serialize)]
struct Change {
    /// What takes it back.
    command: String,
    prefix: Network,
    /// Its entry in the ledger; `null` where it cannot be read.
    recorded: Option<InLedger>,
}

/// A route in the ledger.
#[derive(Debug, Serialize)]
struct InLedger {
    cwnd_segments: u32,
    next_hop: IpAddr,
    interface: String,
    /// What there was before, for people.
    before: String,
    /// Why it was set, for people.
    reason: String,
    made_at: String,
    /// How long the advice behind it holds from then without a refresh.
    lifetime_s: u64,
}

impl From<&Entry> for InLedger {
    fn from(entry: &Entry) -> Self {
        Self {
            cwnd_segments: entry.window.0,
            next_hop: entry.gateway,
            interface: entry.link.clone(),
            before: entry.old.clone(),
            reason: entry.reason.clone(),
            made_at: rfc3339_unix_s(entry.made_unix_s),
            lifetime_s: entry.lifetime_s,
        }
    }
}

pub(super) fn look(place: &Place, format: Format) -> Result<(), Failure> {
    let (agent, agent_error) = match try_ask(&place.socket, &Request::Status) {
        Ok(Reply::Status(status)) => (Some(Running::from(*status)), None),
        Ok(_) => (None, Some("the agent answered another question".to_owned())),
        Err(AskError::NoAgent(_)) => (None, place.doubt()),
        Err(error) => (None, Some(error.to_string())),
    };
    let recorded = ledger::read(&place.ledger)
        .map_err(|error| Failure::Environment(format!("cannot read the ledger {}: {error}", place.ledger.display())))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    let routes = runtime.block_on(async { signed_routes(&Netlink::open()?).await });
    let routes = routes.map_err(|error| Failure::Environment(format!("cannot look at this host's routes: {error}")))?;
    let cgroup = cgroup2_or(&place.cgroup);
    let (mut found, programs) = (compare(&recorded, &routes), attached(cgroup.as_deref()));
    (found.agent, found.agent_error, found.programs) = (agent, agent_error, programs);
    found.take_back = place.command("undo --run");
    if format.json { print_json(&found) } else { print(&for_people(&found, place)) }
}

/// The ledger against the kernel's routes with our signature.
fn compare(recorded: &Recorded, routes: &[(Network, u32)]) -> Found {
    let windows: BTreeMap<Network, u32> = routes.iter().copied().collect();
    let (ledger, entries) = match recorded {
        Recorded::Missing => ("missing", None),
        Recorded::Damaged { .. } => ("damaged", None),
        Recorded::Entries(entries) => ("readable", Some(entries)),
    };
    let in_ledger = |network: &Network| entries.and_then(|entries| entries.get(network));
    let (ours, left): (Vec<Network>, Vec<Network>) =
        windows.keys().copied().partition(|network| recorded.is_ours(*network));
    let changes = ours.into_iter().map(|network| match in_ledger(&network) {
        Some(entry) => Change { command: undo_command(entry), prefix: network, recorded: Some(entry.into()) },
        None => Change { command: undo_signed(network), prefix: network, recorded: None },
    });
    let gone = entries.into_iter().flat_map(BTreeMap::keys).filter(|network| !windows.contains_key(network));
    Found {
        agent: None,
        agent_error: None,
        ledger,
        changes: changes.collect(),
        routes_gone: gone.copied().collect(),
        routes_left: left,
        programs: None,
        take_back: String::new(),
    }
}

impl From<Status> for Running {
    fn from(status: Status) -> Self {
        let Status { pid, method, paused, paused_until, in_force, .. } = status;
        Self { pid, method, paused, paused_until, in_force }
    }
}

/// Comments for people, and commands to be pasted.
fn for_people(found: &Found, place: &Place) -> String {
    let mut lines = Vec::new();
    match (&found.agent, &found.agent_error) {
        (Some(agent), _) => about_agent(agent, place, &mut lines),
        (None, Some(error)) => lines.push(format!("# What a running agent has in force is not known: {error}.")),
        (None, None) => lines.push(format!("# No agent runs here: nobody answers at {}.", place.socket.display())),
    }
    if found.ledger == "damaged" {
        lines.push("# The ledger is damaged: routes go by their protocol number and metric alone.".to_owned());
    }
    for change in &found.changes {
        lines.push(match &change.recorded {
            Some(InLedger { cwnd_segments, reason, before, .. }) => {
                format!("# initcwnd {cwnd_segments} ({reason}); before: {before}")
            }
            None => format!("# {}: a route with the agent's protocol number and metric", change.prefix),
        });
        lines.push(change.command.clone());
    }
    if !found.routes_left.is_empty() {
        let networks: Vec<String> = found.routes_left.iter().map(ToString::to_string).collect();
        lines.push(format!("# Not in the ledger, and left alone: routes for {}", networks.join(", ")));
    }
    about_programs(found, &mut lines);
    let programs = found.programs.as_ref().map_or(0, Vec::len);
    let runs_bpf = found.agent.as_ref().is_some_and(|agent| agent.method == ApplyMethod::Bpf);
    let advises = found.agent.as_ref().is_some_and(|agent| !agent.in_force.is_empty());
    if advises {
        lines.push("# All of it at once, and the agent paused until `spand-agent resume`:".to_owned());
        lines.push(found.take_back.clone());
    } else if found.agent_error.is_none()
        && found.changes.is_empty()
        && (found.agent.is_some() || found.programs.is_some())
    {
        // Besides programs of an agent at another socket, which are listed above.
        let nothing = if runs_bpf || programs == 0 { "Nothing" } else { "Nothing else" };
        lines.push(format!("# {nothing} is in force."));
    }
    lines.join("\n")
}

fn about_agent(agent: &Running, place: &Place, lines: &mut Vec<String>) {
    let Running { pid, method, .. } = agent;
    if agent.paused {
        let resume = place.command("resume");
        let until = agent.paused_until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
        lines.push(format!("# The agent (process {pid}, apply {method}) is paused{until}; `{resume}` ends that."));
    }
    if agent.in_force.is_empty() {
        if !agent.paused {
            lines.push(format!("# The agent (process {pid}, apply {method}) has no advice in force."));
        }
        return;
    }
    lines.push(format!("# The agent (process {pid}, apply {method}) starts connections to these networks on advice:"));
    let network = |entry: &InForce| format!("#   {} with {} segments", entry.prefix, entry.cwnd_segments);
    lines.extend(agent.in_force.iter().take(LISTED).map(network));
    if agent.in_force.len() > LISTED {
        lines.push(format!("#   and {} more: see --json", agent.in_force.len() - LISTED));
    }
}

fn about_programs(found: &Found, lines: &mut Vec<String>) {
    let runs_bpf = found.agent.as_ref().is_some_and(|agent| agent.method == ApplyMethod::Bpf);
    let Some(programs) = &found.programs else {
        if runs_bpf || found.agent.is_none() {
            lines.push("# Only root can list programs in the kernel: run this as root to see them.".to_owned());
        }
        return;
    };
    if programs.is_empty() {
        return;
    }
    lines.push("# Programs of agents in the kernel. They go when their process stops:".to_owned());
    lines.extend(
        programs
            .iter()
            .map(|program| format!("#   {} {}, held by {}", program.name, program.place(), program.holder())),
    );
    if found.agent.is_none() {
        lines.push("# They may start connections on advice: name the socket of their agent with --socket, or stop its process.".to_owned());
    }
}
