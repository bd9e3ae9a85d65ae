//! The agent's decisions for connections to a place.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use spand_agent::control::{Explained, Reply, Request, ask};

use super::running::Product;

/// Time that the agent gets to apply what the gateway measured.
const ADVICE_MAX: Duration = Duration::from_secs(6);

impl Product {
    /// The agent's decision for a connection now.
    pub fn explained(&self, destination: IpAddr, bytes: Option<u64>, mss: Option<u64>) -> Result<Explained> {
        match ask(&self.agent_socket(), &Request::Explain { destination, bytes, mss }) {
            Ok(Reply::Explained(explained)) => Ok(*explained),
            Ok(other) => bail!("the agent answered another question: {other:?}"),
            Err(failure) => bail!("the agent does not explain: {failure:?}"),
        }
    }

    /// Waits until the agent applies advice to connections to all these places, or a little: what it does not apply stays
    /// so.
    pub fn wait_for_advice(&self, places: &[(IpAddr, Option<u64>)]) -> Result<Vec<Explained>> {
        let begin = Instant::now();
        loop {
            let explained: Result<Vec<Explained>> =
                places.iter().map(|(destination, mss)| self.explained(*destination, None, *mss)).collect();
            let is_late = begin.elapsed() > ADVICE_MAX;
            match explained {
                Ok(explained) if is_late || explained.iter().all(|one| one.on_advice) => return Ok(explained),
                Err(error) if is_late => return Err(error),
                // It has just started, or has not heard of all of them yet.
                _ => {}
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
