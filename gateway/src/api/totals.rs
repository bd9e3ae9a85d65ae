//! Reads the gateway as a whole once a second for its history, and keeps that in the store.

use std::sync::Weak;
use std::time::Duration;

use spand_proto::report::Arm;
use tokio::time::interval;

use super::Api;
use crate::store::StoreWriter;
use crate::totals::{Counts, Differences, Gauges, Point, Reading, Step};

/// Time between two saves: with the write behind, a crash loses ten seconds at most.
const SAVE: Duration = Duration::from_secs(8);

impl Api {
    /// Takes the history that a store held. It is called before anyone is answered.
    pub fn continue_totals(&self, points: impl IntoIterator<Item = (Step, Point)>) {
        self.shared.totals.lock().restore(points, self.shared.published.now());
    }

    /// Hands over the steps that changed, every few seconds. Never ends.
    pub async fn keep_totals(&self, store: Weak<StoreWriter>) {
        let mut saves = interval(SAVE);
        loop {
            saves.tick().await;
            // What waits already is not on the disk: a store that fails is not handed more.
            if let Some(store) = store.upgrade().filter(|store| !store.totals_wait()) {
                self.save_totals(&store);
            }
        }
    }

    /// Hands over the steps that changed.
    pub fn save_totals(&self, store: &StoreWriter) {
        store.submit_totals(self.shared.totals.lock().changes());
    }

    /// Reads everything.
    pub(super) fn take_totals(&self) {
        let reading = self.reading();
        self.shared.totals.lock().take(self.shared.published.now(), &reading);
    }

    fn reading(&self) -> Reading {
        let (published, reports) = (&self.shared.published, &self.shared.reports);
        let engine = published.engine().counters;
        let counts = Counts {
            packets: engine.frames,
            wire_bytes: engine.wire_bytes,
            connections_ended: engine.connections_ended,
            connections_one_sided: engine.connections_one_sided,
            window_samples: engine.window_samples,
            losses: engine.loss_events,
            starts_pushed: published.measures().starts_pushed.get(),
            transfers_advised: reports.measures().transfers(Arm::Advised),
            transfers_control: reports.measures().transfers(Arm::Control),
            ..Counts::default()
        };
        let counts = published.captures().iter().fold(counts, |sum, capture| Counts {
            dropped_kernel: sum.dropped_kernel + capture.dropped_kernel,
            dropped_interface: sum.dropped_interface + capture.dropped_interface,
            dropped_queue: sum.dropped_queue + capture.dropped_queue,
            ..sum
        });
        let gauges = Gauges {
            networks: published.network_count() as u64,
            estimates: published.estimate_count() as u64,
            agents: published.subscriber_count() as u64,
        };
        let mut differences = Differences::default();
        for (place, found) in differences.iter_mut().zip(reports.completion_differences()) {
            *place = found.and_then(|found| found.percent);
        }
        Reading { counts, gauges, differences }
    }
}
