//! The apply method `route` against real kernels: each test in a network namespace of its own, with the real program and a gateway
//! that sends what the test sets.

mod families;
mod lifetime;
mod pause;
mod surroundings;

use std::time::{Duration, Instant};

use crate::support::agent::{Agent, text};
use crate::support::gateway::{Gateway, Stream, announced, announced_late, estimate};
use crate::support::namespace::{eventually, in_namespace, in_served_namespace, ip, two_uplinks};
use nix::sys::signal::{Signal, kill};
use spand_proto::push::{UpdateEvent, WithdrawalReason};

const ROUTE: &str = "apply = \"route\"";

/// All routes with the agent's protocol number.
fn ours() -> String {
    ip("route show proto 83") + &ip("-6 route show proto 83")
}

/// An agent that has set these.
async fn agent_with(gateway: &mut Gateway, networks: &[&str]) -> (Agent, Stream) {
    let agent = Agent::start(gateway, ROUTE, "");
    let estimates: Vec<_> = networks.iter().map(|network| estimate(network, 40, 60)).collect();
    let stream = gateway.snapshot(&estimates).await;
    let all = |routes: &str| networks.iter().all(|network| routes.contains(network));
    eventually("routes are set", || all(&ours())).await;
    (agent, stream)
}

/// Kills the guard, and the agent before it can start another one.
fn kill_both(agent: &mut Agent) {
    kill(agent.pid(), Signal::SIGSTOP).unwrap();
    kill(agent.guard(), Signal::SIGKILL).unwrap();
    agent.kill();
}
