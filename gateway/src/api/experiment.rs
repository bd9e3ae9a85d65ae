//! Keeps the experiment of `/v1/benefit` in the store, so that a restart does not end it.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Api;
use crate::store::{SavedExperiment, StoreWriter};

/// How often it is looked whether something changed.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two saves: what a crash loses of the experiment is no more, and what the writer needs.
const SAVE: Duration = Duration::from_secs(10);

impl Api {
    /// Continues an experiment that a store held. Before anyone is answered.
    pub fn continue_experiment(&self, saved: SavedExperiment) {
        self.shared.reports.continue_experiment(saved, self.shared.published.now());
    }

    /// Whether the experiment goes on after a restart: a store keeps it.
    pub(super) fn experiment_survives(&self) -> bool {
        self.shared.store.as_ref().is_some_and(|store| !store.is_broken())
    }

    /// Hands the experiment over to be saved: soon after something changed, and at most every ten seconds. Never ends.
    pub async fn keep_experiment(&self, store: Weak<StoreWriter>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = Instant::now();
        loop {
            looks.tick().await;
            // What waits already is not on the disk: a store that fails is not handed more.
            if let Some(store) = store.upgrade().filter(|store| Instant::now() >= next && !store.experiment_waits())
                && self.save_experiment(&store)
            {
                next = Instant::now() + SAVE;
            }
        }
    }

    /// Hands over what changed of the experiment. Gives whether something did.
    pub fn save_experiment(&self, store: &StoreWriter) -> bool {
        let change = self.shared.reports.experiment_change(store.lacks_hosts(), self.shared.published.now());
        let Some(change) = change else { return false };
        store.submit_experiment(change);
        true
    }
}
