//! Pausing, resuming and SIGHUP: the caller of a pause is logged, and the reply shows what is in force then; a configuration that is read
//! again brings into force what of it decides about starts.

use std::time::Duration;

use spand_proto::operator::rfc3339_unix_s;
use tracing::{error, info, warn};

use super::agent::Agent;
use crate::apply::Applier;
use crate::clock;
use crate::config::{Config, Reloaded};
use crate::control::{LastReload, Paused, Peer, Reply};
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

    /// Takes over what can change while the agent runs; a file that cannot be used leaves everything as it is.
    pub(super) async fn reload(&mut self) {
        let mut last = LastReload { at: rfc3339_unix_s(clock::wall_unix_s()), ..LastReload::default() };
        match Config::load(&self.file) {
            Ok(new) => {
                for warning in &new.renamed {
                    warn!("{}: {warning}", self.file.display());
                }
                let Reloaded { config, in_force, needs_restart } = self.config.reloaded(&self.taken.of(&new));
                self.policy = config.policy();
                self.config = config;
                self.reloads.succeeded += 1;
                self.applier.set_policy(&self.config, &self.policy);
                if let Some(applications) = &mut self.applications {
                    applications.set_policy(&self.config, self.clock.now());
                }
                self.decide_everything();
                self.reconcile().await;
                self.change_mode.send_if_modified(|mode| std::mem::replace(mode, self.config.mode) != self.config.mode);
                info!(file = %self.file.display(), changed = in_force.join(", "), "SIGHUP: the configuration is in force");
                if !needs_restart.is_empty() {
                    warn!("changed but needs a restart: {}", needs_restart.join(", "));
                }
                last.took_effect = in_force;
                last.needs_restart = needs_restart;
            }
            Err(fault) => {
                self.reloads.failed += 1;
                error!("SIGHUP: {fault}; what was in force stays in force");
                last.error = Some(fault.to_string());
            }
        }
        self.reloads.last = Some(last);
    }
}
