//! The apply method `route` against real kernels: each test in a network namespace of its own, with the real program and a gateway
//! that sends what the test sets.

mod families;
mod lifetime;
mod pause;
mod surroundings;

use std::time::{Duration, Instant};

use crate::support::agent::{Agent, assert_has, printed, text};
use crate::support::gateway::{Gateway, Stream, advised, announced, announced_late, estimate};
use crate::support::namespace::{eventually, in_namespace, in_served_namespace, ip, two_uplinks};
use nix::sys::signal::{Signal, kill};

const ROUTE: &str = "apply = \"route\"";

/// All routes with the agent's protocol number.
fn ours() -> String {
    ip("route show proto 83") + &ip("-6 route show proto 83")
}

fn all_routes() -> String {
    ip("route show") + &ip("-6 route show")
}

/// Runs a test in a namespace of its own with two uplinks and an agent that has set routes for these networks.
fn on_routes(networks: &[&str], test: impl AsyncFnOnce(Gateway, Agent, Stream) + Send) {
    in_namespace(|| async {
        two_uplinks();
        let (gateway, agent, stream) = agent_with(networks).await;
        test(gateway, agent, stream).await;
    });
}

/// An agent that has set these.
async fn agent_with(networks: &[&str]) -> (Gateway, Agent, Stream) {
    let estimates: Vec<_> = networks.iter().map(|network| estimate(network, 40, 60)).collect();
    let advised = advised(ROUTE, "", &estimates).await;
    eventually("routes are set", || networks.iter().all(|network| ours().contains(network))).await;
    advised
}

/// Kills the guard, and the agent before it can start another one.
fn kill_both(agent: &mut Agent) {
    kill(agent.pid(), Signal::SIGSTOP).unwrap();
    kill(agent.guard(), Signal::SIGKILL).unwrap();
    agent.kill();
}
