//! Reported connections of QUIC on their way from the API's tasks to the engine of their network.
//!
//! A file of its own, since it is the only way from the API to an engine.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use spand_core::networks::reported::ReportedConnection;

use super::capture::Captures;
use super::engine_thread::EngineThread;
use crate::publisher::Published;

/// Reports that may wait for one engine; more are dropped, counted. An engine looks at them every tenth of a second at least.
const WAITING: usize = 4_096;
/// Packets wait for no more of them at a time.
const AT_ONCE: usize = 64;

/// Bytes of what may wait for N engines.
pub(crate) const fn reported_bytes(engines: usize) -> usize {
    (WAITING * size_of::<ReportedConnection>()).saturating_mul(engines)
}

/// Where reports come to each of the engines from now on.
pub(super) fn receivers(
    engines: usize,
    published: &Published,
    captures: &Arc<Captures>,
) -> Vec<Receiver<ReportedConnection>> {
    let (senders, receivers): (Vec<SyncSender<_>>, _) = (0..engines).map(|_| sync_channel(WAITING)).unzip();
    let captures = Arc::clone(captures);
    published.pass_reports_to(move |reported| {
        let owner = captures.grouping.in_force().partition.owner_of(reported.report.remote.ip());
        let sender = usize::try_from(owner).ok().and_then(|owner| senders.get(owner));
        sender.is_some_and(|sender| sender.try_send(reported).is_ok())
    });
    receivers
}

impl EngineThread {
    /// Takes some of the reports that wait. What becomes of each is counted by the engine.
    pub(super) fn take_reported(&mut self) {
        for _ in 0..AT_ONCE {
            match self.reported.try_recv() {
                Ok(reported) => drop(self.engine.take_reported(&reported, self.published.now())),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return self.take_events(),
            }
        }
        self.more_waits = true;
        self.take_events();
    }
}
