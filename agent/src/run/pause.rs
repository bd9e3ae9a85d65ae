//! Pausing and resuming: the caller is logged, and the reply shows what is in force then.

use std::time::Duration;

use tracing::{info, warn};

use super::agent::Agent;
use crate::apply::Applier;
use crate::control::{Paused, Peer, Reply};
use crate::pause::PauseError;

impl<A: Applier> Agent<A> {
    /// Withdraws everything; the reply comes when that is done.
    pub(super) async fn pause(&mut self, length_s: Option<u64>, peer: Peer) -> Reply {
        let was_paused = self.pause.pausing().is_paused();
        let kept = self.pause.pause(length_s.map(Duration::from_secs));
        let until = self.pause.until();
        info!(uid = peer.uid, pid = peer.pid, until = until.as_deref().unwrap_or("resumed"), "advice is paused");
        self.changed_pause(was_paused, kept.err()).await
    }

    /// Puts in force again what is held.
    pub(super) async fn resume(&mut self, peer: Peer) -> Reply {
        let was_paused = self.pause.pausing().is_paused();
        let kept = self.pause.resume();
        info!(uid = peer.uid, pid = peer.pid, was_paused, "advice is resumed");
        self.changed_pause(was_paused, kept.err()).await
    }

    async fn changed_pause(&mut self, was_paused: bool, not_kept: Option<PauseError>) -> Reply {
        if let Some(error) = &not_kept {
            warn!(%error, "this does not outlast the agent's process");
        }
        self.decide_everything();
        self.reconcile().await;
        Reply::Pause(Box::new(Paused {
            pid: std::process::id(),
            paused: self.pause.pausing().is_paused(),
            paused_until: self.pause.until(),
            was_paused,
            networks_in_force: self.applier.in_force().len(),
            not_kept: not_kept.map(|error| error.to_string()),
        }))
    }
}
