//! Hands messages over to the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spand_core::sharing::GatewayId;
use tokio::sync::mpsc;

use super::subjects::Subjects;
use crate::exchange::{Incoming, MESSAGE_BYTES, Topic};

/// Hands over messages of other gateways.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    subjects: Arc<Subjects>,
    cells: mpsc::Sender<Incoming>,
    others: mpsc::Sender<Incoming>,
    warned_unknown: Arc<AtomicBool>,
    /// The site of each gateway, and when it last sent who it is.
    sites: Arc<Mutex<BTreeMap<GatewayId, (String, Instant)>>>,
}

/// Nobody takes messages any more.
#[derive(Debug)]
pub(super) struct Closed;

impl Inbox {
    pub(super) fn new(subjects: Arc<Subjects>, cells: mpsc::Sender<Incoming>, others: mpsc::Sender<Incoming>) -> Self {
        Self { subjects, cells, others, warned_unknown: Arc::default(), sites: Arc::default() }
    }

    /// Sites of the gateways that were heard within this time.
    pub(super) fn sites(&self, within: Duration) -> BTreeSet<String> {
        let sites = self.sites.lock();
        sites.values().filter(|(_, heard)| heard.elapsed() < within).map(|(site, _)| site.clone()).collect()
    }

    /// Hands a message over, and waits where there is no room. Own ones, empty ones and those of nobody are dropped,
    /// but not what says who has the own number: that may be another gateway.
    pub(super) async fn take(&self, subject: &str, payload: &[u8]) -> Result<(), Closed> {
        let Some((gateway, topic)) = self.subjects.author(subject) else {
            if !self.warned_unknown.swap(true, Ordering::Relaxed) {
                tracing::warn!(subject, "messages whose subject names no gateway are dropped; this is logged once");
            }
            return Ok(());
        };
        // An empty one only asks whether it gets through.
        if (self.subjects.is_own(gateway) && topic != Topic::Member) || payload.is_empty() {
            return Ok(());
        }
        if topic == Topic::Member
            && !self.subjects.is_own(gateway)
            && let Some(site) = Subjects::site_of(subject)
        {
            self.sites.lock().insert(gateway, (site.to_owned(), Instant::now()));
        }
        // Of one that is too long as much is kept as shows that: what waits is bounded by the number of messages.
        let payload = payload.get(..MESSAGE_BYTES + 1).unwrap_or(payload).to_vec();
        let incoming = Incoming { gateway, topic, payload };
        let channel = if topic.has_cells() { &self.cells } else { &self.others };
        channel.send(incoming).await.map_err(|_| Closed)
    }
}
