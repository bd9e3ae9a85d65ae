//! What the engine's thread hands over from time to time: changed networks, as far as it is their turn, and the numbers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spand_core::counters::Ignored;
use spand_proto::units::Timestamp;

use super::{EngineThread, Transfers};
use crate::publisher::{Batch, EngineStatus, Part, Trend};

/// The fraction (one in N) of waiting changed networks that is taken each time, so that one that changes continuously is taken about once a
/// second: what a network costs grows with its window, to some 50 µs.
const TURNS: usize = 8;
/// So few that wait are all taken at once.
const FEW_NETWORKS: usize = 64;
/// Packets wait for changed networks no longer than this, and for one portion of [`FEW_NETWORKS`].
const CHANGED_FOR: Duration = Duration::from_millis(20);

impl EngineThread {
    /// Hands over what changed, as far as it is its turn, and the numbers.
    pub(in crate::run) fn publish_state(&mut self) {
        let now = self.published.now();
        self.publish_again_after_loss(now);
        self.take_turns(now);
        self.batch.samples = self.engine.networks_mut().take_samples();
        self.batch.engine = Some(EngineStatus {
            shard: self.shard,
            counters: self.engine.counters().clone(),
            reports: self.engine.networks().report_counts().clone(),
            connections: self.engine.connections(),
            networks: self.engine.networks().len(),
            oldest: self.oldest,
            newest: self.newest,
            samples_dropped: self.engine.networks().samples_dropped(),
            networks_changed: self.engine.networks().changed(),
            memory: self.engine.memory(),
            shed: 1.0 - self.engine.kept().share(),
        });
        self.hand_over();
        if self.shard == 0 {
            self.report_captures();
            self.report_store();
        }
    }

    /// Where events were lost, the current state is read from the engine.
    fn publish_again_after_loss(&mut self, now: Timestamp) {
        let lost = self.engine.counters().ignored(Ignored::EventQueueFull);
        if lost != self.events_lost {
            tracing::warn!(events = lost - self.events_lost, "events were lost; publishing the whole state again");
            self.events_lost = lost;
            self.batch = Batch::new();
            let sizes = matches!(self.transfers, Transfers::Keep(_)).then(|| self.engine.services());
            let own = |network| self.engine.owns(network);
            self.published.replace(self.engine.networks().views(now), own, sizes);
        }
    }

    /// Networks that changed, as far as it is their turn, go to the publisher as views and to the store as records.
    fn take_turns(&mut self, now: Timestamp) {
        let begun = Instant::now();
        let mut left = self.engine.networks().changed().div_ceil(TURNS).max(FEW_NETWORKS);
        while left > 0 && begun.elapsed() < CHANGED_FOR {
            left = match self.save_changed(now) {
                0 => 0,
                taken => left.saturating_sub(taken),
            };
        }
    }

    /// The next few of them. Gives how many there were.
    fn save_changed(&mut self, now: Timestamp) -> usize {
        let changed = self.engine.changed_networks(FEW_NETWORKS, now);
        self.take_events();
        let count = changed.len();
        let trends = changed.iter().filter_map(|(network, record)| Some(Trend::of(*network, record.as_ref()?)));
        self.batch.trends.extend(trends);
        if let Some(store) = &self.store {
            store.submit(changed);
        }
        count
    }

    /// Saves everything known.
    pub(super) fn save_all(mut self) {
        let now = self.published.now();
        while self.save_changed(now) > 0 {
            self.hand_over();
        }
        // The last thread to end ends the store.
        if let Some(store) = self.store.take().and_then(Arc::into_inner)
            && let Err(error) = store.stop()
        {
            tracing::error!(%error, "the last changes were not saved");
        }
    }

    fn report_captures(&self) {
        let states = self.captures.states();
        let faults: Vec<_> = states.iter().filter_map(|state| state.fault.clone()).collect();
        if faults.is_empty() {
            self.published.readiness().ready(Part::Capture);
        } else {
            self.published.readiness().not_ready(Part::Capture, faults.join("; "));
        }
        self.published.set_captures(states.into_iter().map(|state| state.status).collect());
    }

    fn report_store(&self) {
        match self.store.as_ref().and_then(|store| store.last_error()) {
            Some(error) => self.published.readiness().not_ready(Part::Store, error.to_string()),
            None => self.published.readiness().ready(Part::Store),
        }
    }
}
