//! The agent's decisions for connections to a place.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use spand_agent::control::{Explained, Reply, Request, Status, ask};

use super::agent::Agent;
use crate::patience::PATIENCE;

/// Time that the agent gets from its first answer on to apply what the gateway measured.
const ADVICE_MAX: Duration = Duration::from_secs(6);

impl Agent {
    /// Waits until the agent has subscribed to a gateway.
    pub fn wait_for_subscription(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.check()?;
            match ask(&self.socket(), &Request::Status) {
                Ok(Reply::Status(status)) if status.gateway.connected => return Ok(()),
                other if begin.elapsed() > PATIENCE => {
                    bail!("the agent did not subscribe within {PATIENCE:?}: {other:?}")
                }
                // It has just started.
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// The agent's decision for a connection now.
    pub fn explained(&self, destination: IpAddr, bytes: Option<u64>, mss: Option<u64>) -> Result<Explained> {
        match ask(&self.socket(), &Request::Explain { destination, bytes, mss }) {
            Ok(Reply::Explained(explained)) => Ok(*explained),
            Ok(other) => bail!("the agent answered another question: {other:?}"),
            Err(failure) => bail!("the agent does not explain: {failure:?}"),
        }
    }

    /// What the agent's method has met so far, by its counters' names: connections that it started, and those that it did not.
    pub fn method_events(&self) -> Result<BTreeMap<String, u64>> {
        Ok(self.status()?.method_events)
    }

    /// Its state now.
    pub fn status(&self) -> Result<Status> {
        match ask(&self.socket(), &Request::Status) {
            Ok(Reply::Status(status)) => Ok(*status),
            Ok(other) => bail!("the agent answered another question: {other:?}"),
            Err(failure) => bail!("the agent does not tell its state: {failure:?}"),
        }
    }

    /// Waits until the agent applies advice to connections to all these places, or a little: what it does not apply stays
    /// so.
    pub fn wait_for_advice(&self, places: &[(IpAddr, Option<u64>)]) -> Result<Vec<Explained>> {
        let begin = Instant::now();
        let mut answered = None;
        loop {
            let explained: Result<Vec<Explained>> =
                places.iter().map(|(destination, mss)| self.explained(*destination, None, *mss)).collect();
            match explained {
                Ok(explained) => {
                    let is_late = answered.get_or_insert_with(Instant::now).elapsed() > ADVICE_MAX;
                    if is_late || explained.iter().all(|one| one.on_advice) {
                        return Ok(explained);
                    }
                }
                Err(error) if begin.elapsed() > PATIENCE => return Err(error),
                // It has just started.
                Err(_) => {}
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
