//! `undo`: shows what the agent has changed on this host, and undoes it, with or without a running agent.
//!
//! Everything is asked where it can be known: the running agent over its control socket, the kernel for routes with the agent's
//! signature and for programs of agents. The ledger records which of these routes are the agent's own.

mod look;

use std::collections::BTreeSet;

use serde::Serialize;
use spand_proto::network::Network;
use spand_proto::operator::Failure;

use super::pause::{ChangeError, change, shortfall};
use super::{print, print_json};
use crate::apply::bpf::{Attached, attached, cgroup2_or};
use crate::apply::route::{CleanUp, Netlink, an_agent_is_here, clean_up, signed_routes};
use crate::args::{Format, Undo};
use crate::config::Place;
use crate::control::{AskError, Paused, Request};
use crate::ledger;
use crate::ledger::Recorded;

pub(crate) fn undo(place: &Place, how: &Undo) -> Result<(), Failure> {
    if how.run { take_back(place, how.format) } else { look::look(place, how.format) }
}

// Takes back what is in force. A running agent is paused: otherwise it would set everything again. Without one, nothing is
// paused: a service manager runs this after every stop, and the next start must advise again.

/// What was taken back.
#[derive(Debug, Serialize)]
struct Undone {
    /// The running agent, paused now.
    agent: Option<Paused>,
    /// Networks whose route an agent left behind and that is gone now.
    routes_removed: Vec<Network>,
    /// Routes with the agent's signature that are not in the ledger: somebody else's.
    routes_left: Vec<Network>,
    /// Programs of other agents than this one, which stay; `null` where this user may not look.
    programs_left: Option<Vec<Attached>>,
}

fn take_back(place: &Place, format: Format) -> Result<(), Failure> {
    let (agent, trouble) = match change(&place.socket, &Request::Pause { length_s: None }) {
        Ok(paused) => {
            let trouble = shortfall(&paused);
            (Some(paused), trouble)
        }
        Err(ChangeError::Ask(AskError::NoAgent(_))) => (None, None),
        Err(error @ (ChangeError::Refused(_) | ChangeError::Ask(AskError::NotAllowed(_)))) => {
            return Err(Failure::environment(error));
        }
        // Its routes are removed all the same.
        Err(error) => (None, Some(format!("{error}; it may have advice in force, and set again what was removed"))),
    };
    // After the agent has withdrawn its own.
    let recorded = ledger::read(&place.ledger)
        .map_err(|error| Failure::Environment(format!("cannot read the ledger {}: {error}", place.ledger.display())))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    let (CleanUp { removed, left }, remaining) = runtime
        .block_on(clean(&recorded))
        .map_err(|error| Failure::Environment(format!("cannot take everything back: {error}")))?;
    let programs = attached(cgroup2_or(&place.cgroup).as_deref());
    let own = |program: &Attached| {
        agent.as_ref().is_some_and(|agent| program.pids.iter().any(|pid| u32::try_from(*pid) == Ok(agent.pid)))
    };
    let programs_left = programs.map(|all| all.into_iter().filter(|program| !own(program)).collect());
    let undone = Undone { agent, routes_removed: removed, routes_left: left, programs_left };
    let trouble = trouble.or_else(|| unreached(&undone, place));
    if format.json {
        print_json(&undone)?;
    } else {
        print(&for_people(&undone, trouble.is_none() && remaining.is_empty(), place))?;
    }
    let stays = (!remaining.is_empty()).then(|| {
        let networks: Vec<String> = remaining.iter().map(ToString::to_string).collect();
        format!("routes of the agent are still there: {}", networks.join(", "))
    });
    stays.or(trouble).map_or(Ok(()), |trouble| Err(Failure::Environment(trouble)))
}

/// Where no agent answered: what shows that one has starts in force, or may have.
fn unreached(undone: &Undone, place: &Place) -> Option<String> {
    if undone.agent.is_some() {
        return None;
    }
    let socket = place.socket.display();
    let Some(programs) = &undone.programs_left else {
        return Some(format!(
            "no agent answers at {socket}, and only root can list programs in the kernel: run this as root to know whether starts are in \
             force"
        ));
    };
    let way_out = "name the socket of that agent with --socket, or stop it";
    // A congestion control alone starts nothing.
    let on_cgroups = programs.iter().filter(|program| program.cgroup_id.is_some());
    let holds: BTreeSet<String> = on_cgroups.map(|one| format!("{} ({})", one.holder(), one.place())).collect();
    if !holds.is_empty() {
        let holds: Vec<String> = holds.into_iter().collect();
        return Some(format!(
            "no agent answers at {socket}, but programs of an agent are in the kernel and may start connections on advice: {}; {way_out}",
            holds.join(", ")
        ));
    }
    if an_agent_is_here() {
        return Some(format!(
            "no agent answers at {socket}, but one applies routes in this network namespace and sets them again; {way_out}"
        ));
    }
    place.doubt()
}

/// Removes the routes that are ours, and looks once more for those that stay.
async fn clean(recorded: &Recorded) -> Result<(CleanUp, Vec<Network>), crate::apply::route::NetlinkError> {
    let netlink = Netlink::open()?;
    let done = clean_up(&netlink, recorded).await?;
    let there = signed_routes(&netlink).await?;
    let ours = there.into_iter().map(|(network, _)| network).filter(|network| recorded.is_ours(*network));
    Ok((done, ours.collect()))
}

fn for_people(undone: &Undone, whole: bool, place: &Place) -> String {
    let mut lines: Vec<String> =
        undone.routes_removed.iter().map(|network| format!("removed the route for {network}")).collect();
    lines.extend(
        undone.routes_left.iter().map(|network| format!("left the route for {network}: it is not in the ledger")),
    );
    if let Some(agent) = &undone.agent {
        lines.push(format!(
            "the running agent (process {}) withdrew its advice and is paused until `{}`",
            agent.pid,
            place.command("resume")
        ));
    }
    let others: BTreeSet<String> = undone.programs_left.iter().flatten().map(Attached::holder).collect();
    if undone.agent.is_some() {
        lines.extend(others.iter().map(|holder| format!("left the programs of another agent ({holder})")));
    }
    if whole {
        let nothing = if others.is_empty() { "nothing" } else { "nothing else" };
        lines.push(format!("{nothing} is in force"));
    }
    lines.join("\n")
}
