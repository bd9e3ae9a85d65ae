//! Keeps the experiment of `/v1/benefit` and the history of `/v1/totals` in the store, so that a restart does not end them.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Api;
use crate::store::{SavedExperiment, StoreWriter};

/// How often it is looked whether something changed.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two saves: what a crash loses of the experiment is no more, and what the writer needs.
const SAVE: Duration = Duration::from_secs(10);
/// The same for the history: with the look before and the write behind, a crash loses ten seconds at most.
const SAVE_TOTALS: Duration = Duration::from_secs(8);

impl Api {
    /// Continues an experiment that a store held. It is called before anyone is answered.
    pub fn continue_experiment(&self, saved: SavedExperiment) {
        self.shared.reports.continue_experiment(saved, self.shared.published.now());
    }

    /// Whether the experiment goes on after a restart: a store keeps it.
    pub(super) fn experiment_survives(&self) -> bool {
        self.shared.store.as_ref().is_some_and(|store| !store.is_broken())
    }

    /// Hands the experiment over to be saved: soon after something changed, and at most every ten seconds. The history too. Never ends.
    pub async fn keep_experiment(&self, store: Weak<StoreWriter>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut next, mut next_totals) = (Instant::now(), Instant::now() + SAVE_TOTALS);
        loop {
            looks.tick().await;
            let (Some(store), now) = (store.upgrade(), Instant::now()) else { continue };
            // What waits already is not on the disk: a store that fails is not handed more.
            if now >= next && !store.experiment_waits() && self.save_experiment(&store) {
                next = now + SAVE;
            }
            if now >= next_totals && !store.totals_wait() {
                self.save_totals(&store);
                next_totals = now + SAVE_TOTALS;
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
