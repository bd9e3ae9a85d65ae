//! The agent's decisions for connections to a place.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use spand_agent::control::{Explained, Reply, Request, Status, ask};

use super::daemon::Agent;
use super::running::wait;
use crate::ending::TooBusy;
use crate::patience::PATIENCE;

/// Time that the agent gets from its first answer on to apply what the gateway measured.
const ADVICE_MAX: Duration = Duration::from_secs(6);

impl Agent {
    /// Waits until the agent has subscribed to a gateway.
    pub fn wait_for_subscription(&mut self) -> Result<()> {
        self.subscribed_within(PATIENCE)
    }

    fn subscribed_within(&mut self, within: Duration) -> Result<()> {
        wait("the agent's subscription", within, || {
            self.check()?;
            // It has just started: it may not answer yet.
            Ok(self.status().is_ok_and(|status| status.gateway.connected).then_some(()))
        })
    }

    /// The agent's decision for a connection now.
    pub fn explained(&self, destination: IpAddr, bytes: Option<u64>, mss: Option<u64>) -> Result<Explained> {
        match ask(&self.socket(), &Request::Explain { destination, bytes, mss })
            .context("the agent does not explain")?
        {
            Reply::Explained(explained) => Ok(*explained),
            other => Err(another_answer(other)),
        }
    }

    /// What the agent's method has met so far, by its counters' names: connections that it started, and those that it did not.
    pub fn method_events(&self) -> Result<BTreeMap<String, u64>> {
        Ok(self.status()?.method_events)
    }

    /// Its state now.
    pub fn status(&self) -> Result<Status> {
        match ask(&self.socket(), &Request::Status).context("the agent does not tell its state")? {
            Reply::Status(status) => Ok(*status),
            other => Err(another_answer(other)),
        }
    }

    /// Waits until the agent applies advice to connections to all these places, or a little: what it does not apply stays
    /// so.
    pub fn wait_for_advice(&mut self, places: &[(IpAddr, Option<u64>)]) -> Result<Vec<Explained>> {
        self.wait_for_subscription()?;
        let mut answered = None;
        wait("the agent's decision", PATIENCE, || {
            self.check()?;
            let explained = places.iter().map(|(destination, mss)| self.explained(*destination, None, *mss));
            let Ok(explained) = explained.collect::<Result<Vec<Explained>>>() else { return Ok(None) };
            let is_late = answered.get_or_insert_with(Instant::now).elapsed() > ADVICE_MAX;
            let is_over = is_late || explained.iter().all(|one| one.on_advice);
            Ok(is_over.then_some(explained))
        })
    }
}

/// The windows that new connections get, where the agent starts all of them on advice.
pub fn granted(explained: &[Explained]) -> Result<Vec<u32>> {
    if let Some(one) = explained.iter().find(|one| !one.on_advice) {
        // It has decided, and not set it yet.
        if one.outcome == "pending" {
            return Err(
                TooBusy::new(format!("the agent's start of connections to {}", one.destination), ADVICE_MAX).into()
            );
        }
        bail!("the agent applies nothing to {}: {}", one.destination, one.decision);
    }
    Ok(explained.iter().map(|one| one.cwnd_segments).collect())
}

fn another_answer(reply: Reply) -> anyhow::Error {
    match reply {
        Reply::Error(sentence) => anyhow!("the agent answered: {sentence}"),
        _ => anyhow!("the agent answered another question"),
    }
}

#[cfg(test)]
mod tests {
    use spand_needs::{Need, needs};
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::lab::namespace::Namespace;
    use crate::product::{AgentSetup, ApplyMethod, Ended, Mode};

    /// What becomes of the wait for an agent that is this script.
    fn waited(script: &str) -> anyhow::Error {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("agent");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
        let setup = AgentSetup {
            method: ApplyMethod::Route,
            mode: Mode::Careful,
            include: Vec::new(),
            cgroup: None,
            control_fraction: 0.0,
            number: 0,
            gateways: Vec::new(),
            more: String::new(),
        };
        let host = Namespace::create("slow").unwrap();
        let mut agent = Agent::start(&host, &program, &setup, folder.path()).unwrap();
        agent.subscribed_within(Duration::from_secs(1)).unwrap_err()
    }

    #[test]
    fn an_agent_that_is_slow_is_not_one_that_ended() {
        if !needs(Need::Root) {
            return;
        }
        let slow = waited("exec sleep 60");
        assert_eq!(slow.to_string(), "this machine was too busy: the agent's subscription did not happen within 1 s");
        assert!(slow.is::<TooBusy>() && !slow.is::<Ended>());
        let ended = waited("echo error: the kernel refused the programs; exit 1");
        assert!(ended.is::<Ended>() && ended.to_string().contains("the kernel refused the programs"), "{ended}");
    }
}
