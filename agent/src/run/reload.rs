//! SIGHUP: the configuration is read again, and what of it decides about starts comes into force.

use spand_proto::operator::rfc3339_unix_s;
use tracing::{error, info, warn};

use super::agent::Agent;
use crate::apply::Applier;
use crate::clock;
use crate::config::{Config, Reloaded};
use crate::control::LastReload;

impl<A: Applier> Agent<A> {
    /// Takes over what can change while the agent runs; a file that cannot be used leaves everything as it is.
    pub(super) async fn reload(&mut self) {
        let mut last = LastReload { at: rfc3339_unix_s(clock::wall_unix_s()), ..LastReload::default() };
        match Config::load(&self.file) {
            Ok(new) => {
                for warning in &new.renamed {
                    warn!("{}: {warning}", self.file.display());
                }
                let Reloaded { config, in_force, needs_restart } = self.config.reloaded(&new);
                self.policy = config.policy();
                self.config = config;
                self.reloads.succeeded += 1;
                self.applier.set_policy(&self.config, &self.policy);
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
