//! Looks at the agent all the time: at which gateway it is subscribed, and whether its advice is in force for every network.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ipnet::IpNet;
use parking_lot::Mutex;
use spand_agent::control::{Reply, Request, Status, ask};
use spand_proto::network::Network;
use spand_proto::operator::Failure;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(20);

/// Outcomes of a decision about a network for which there is advice, though nothing is applied at the moment.
const HAS_ADVICE: [&str; 2] = ["same_as_default", "pending"];

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Looks that the agent answered.
    pub(crate) looks: u64,
    /// Looks at which there was no advice for a network.
    pub(crate) without_advice: u64,
    /// Looks at which there was advice for all, and none was applied to one of them: its start was no larger than the host's own, or had just become so.
    pub(crate) no_larger: u64,
    /// What the agent answered the first time when it was asked why there was none.
    pub(crate) why: Option<String>,
    /// The longest time between two answered looks.
    pub(crate) longest_gap: Duration,
    /// Advice that expired, was withdrawn or was dropped between the first look and the last: it shows what falls between two looks.
    pub(crate) ended: u64,
    /// The gateways in use, each with the last look before it and the first that showed it.
    pub(crate) gateways: Vec<([Instant; 2], String)>,
    /// The last answered look.
    pub(crate) last: Option<Instant>,
    /// What had ended at the first.
    pub(crate) ended_before: Option<u64>,
}

/// A thread that looks until it is stopped.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Looks at the agent behind this control socket, which is to have advice in force for the networks of these clients.
    pub(crate) fn start(socket: PathBuf, clients: &[(IpNet, IpAddr)]) -> Result<Self> {
        let clients: Vec<(Network, IpAddr)> =
            clients.iter().map(|(network, client)| (Network::new(*network), *client)).collect();
        let (seen, stop) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let (noting, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Ok(Reply::Status(status)) = ask(&socket, &Request::Status) {
                    let missing = noting.lock().note(Instant::now(), &status, &clients);
                    if let Some(client) = missing {
                        let explained = ask(&socket, &Request::Explain { destination: client, bytes: None, mss: None });
                        noting.lock().note_missing(&explained);
                    }
                }
                thread::sleep(EVERY);
            }
        })?;
        Ok(Self { seen, stop, thread })
    }

    /// What was seen so far.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// Ends it.
    pub(crate) fn stop(self) -> Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the watching thread panicked"))?;
        Ok(self.seen.lock().clone())
    }
}

impl Seen {
    /// Takes a look, and returns a client without advice.
    fn note(&mut self, at: Instant, status: &Status, clients: &[(Network, IpAddr)]) -> Option<IpAddr> {
        let in_force = |network: &Network| status.in_force.iter().any(|one| one.prefix == *network);
        let missing = clients.iter().find(|(network, _)| !in_force(network)).map(|(_, client)| *client);
        self.looks += 1;
        let before = self.last.replace(at).unwrap_or(at);
        self.longest_gap = self.longest_gap.max(at - before);
        let ended = status.advice.expired + status.advice.withdrawn + status.advice.dropped_by_snapshot;
        self.ended = ended - *self.ended_before.get_or_insert(ended);
        let url = &status.gateway.url;
        if status.gateway.connected && self.gateways.last().is_none_or(|(_, last)| last != url) {
            self.gateways.push(([before, at], url.clone()));
        }
        missing
    }

    /// Notes what the agent answers about a network for which nothing is in force.
    fn note_missing(&mut self, explained: &Result<Reply, Failure>) {
        match explained {
            // Applied by the time of the question, about to be, or no different from what the host does anyway: there is advice.
            Ok(Reply::Explained(one)) if one.on_advice || HAS_ADVICE.contains(&one.outcome.as_str()) => {
                self.no_larger += 1;
            }
            Ok(Reply::Explained(one)) => {
                self.without_advice += 1;
                self.why.get_or_insert_with(|| format!("{}: {}", one.destination, one.decision));
            }
            other => {
                self.without_advice += 1;
                self.why.get_or_insert_with(|| match other {
                    Err(failure) => failure.to_string(),
                    Ok(_) => "the agent answered another question".to_owned(),
                });
            }
        }
    }

    /// When the agent was last seen before it was subscribed at a gateway other than this one, and when it first was.
    pub(crate) fn changed_from(&self, url: &str) -> Option<[Instant; 2]> {
        let place = self.gateways.iter().rposition(|(_, one)| one == url)?;
        self.gateways.get(place + 1).map(|(looks, _)| *looks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_lies_between_two_looks_and_needs_another_gateway() {
        let begin = Instant::now();
        let looks = |ms: u64| [begin + Duration::from_millis(ms), begin + Duration::from_millis(ms + 20)];
        let mut seen = Seen::default();
        assert_eq!(seen.changed_from("one"), None);
        seen.gateways.push((looks(0), "one".to_owned()));
        assert_eq!(seen.changed_from("one"), None);
        seen.gateways.push((looks(500), "two".to_owned()));
        assert_eq!(seen.changed_from("one"), Some(looks(500)));
        assert_eq!(seen.changed_from("two"), None);
    }
}
