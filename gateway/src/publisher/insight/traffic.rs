//! The traffic of the last minutes, one point per second.

use std::collections::VecDeque;

use spand_core::counters::{Counters, Ignored, ProtocolNumber};
use spand_proto::units::{Micros, Timestamp};
use strum::VariantArray;

use crate::publisher::{CaptureStatus, EngineStatus};

/// Points kept: ten minutes.
const POINTS: usize = 600;
/// Time between two points, at least.
const STEP: Micros = Micros::from_secs(1);
/// Counters kept, one every ten seconds, to compute the increase over the last minute.
const LAST: usize = 7;
const LAST_STEP: Micros = Micros::from_secs(10);

/// One second of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrafficPoint {
    /// Its end.
    pub at: Timestamp,
    /// Packets per second that reached the engine.
    pub packets_per_s: f64,
    /// Bits per second of them on the wire.
    pub bits_per_s: f64,
    /// Packets per second lost before the engine, wherever.
    pub dropped_per_s: f64,
    /// Window samples per second.
    pub samples_per_s: f64,
}

/// The traffic as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// The last whole second, if recent.
    pub last: Option<TrafficPoint>,
    /// Connections that ended in the last minute, and those of which only one direction was seen.
    pub ended: u64,
    /// The second of them.
    pub one_sided: u64,
    /// Payload bytes towards networks in the last minute, and those of them towards networks that had an estimate.
    pub out_bytes: u64,
    /// The second of them.
    pub out_covered_bytes: u64,
    /// The span that these and [`Traffic::ignored`] are about: a minute, less at first.
    pub span: Micros,
    /// What was ignored in that span, and since the start: reasons that occurred.
    pub ignored: Vec<(Ignored, u64, u64)>,
    /// Frames without IP or TCP since the start, by the well-known protocol that they held; those that occurred.
    pub other_protocols: Vec<(ProtocolNumber, u64)>,
}

/// Keeps points.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    before: Option<Before>,
    points: VecDeque<TrafficPoint>,
    last: VecDeque<(Timestamp, Counters)>,
    now: Counters,
    at: Timestamp,
}

#[derive(Debug)]
struct Before {
    at: Timestamp,
    frames: u64,
    wire_bytes: u64,
    samples: u64,
    dropped: u64,
}

impl Recorder {
    pub(super) fn take(&mut self, at: Timestamp, engine: &EngineStatus, captures: &[CaptureStatus]) {
        self.now.clone_from(&engine.counters);
        self.at = at;
        if self.last.back().is_none_or(|(before, _)| at.since(*before) >= LAST_STEP) {
            if self.last.len() >= LAST {
                self.last.pop_front();
            }
            self.last.push_back((at, engine.counters.clone()));
        }
        let dropped = |one: &CaptureStatus| one.dropped_kernel + one.dropped_interface + one.dropped_queue;
        let now = Before {
            at,
            frames: engine.counters.frames,
            wire_bytes: engine.counters.wire_bytes,
            samples: engine.counters.window_samples,
            dropped: captures.iter().map(dropped).sum(),
        };
        let Some(before) = &self.before else {
            self.before = Some(now);
            return;
        };
        let span = at.since(before.at);
        if span < STEP {
            return;
        }
        let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 / span.as_secs_f64();
        let point = TrafficPoint {
            at,
            packets_per_s: per_s(now.frames, before.frames),
            bits_per_s: per_s(now.wire_bytes, before.wire_bytes) * 8.0,
            dropped_per_s: per_s(now.dropped, before.dropped),
            samples_per_s: per_s(now.samples, before.samples),
        };
        if self.points.len() >= POINTS {
            self.points.pop_front();
        }
        self.points.push_back(point);
        self.before = Some(now);
    }

    pub(super) fn summary(&self, now: Timestamp) -> Traffic {
        let Some((since, before)) = self.last.front() else { return Traffic::default() };
        let ignored = Ignored::VARIANTS.iter().copied().filter_map(|reason| {
            let all = self.now.ignored(reason);
            (all > 0).then(|| (reason, all.saturating_sub(before.ignored(reason)), all))
        });
        Traffic {
            last: self.points.back().copied().filter(|point| now.since(point.at) < LAST_STEP),
            ended: self.now.connections_ended.saturating_sub(before.connections_ended),
            one_sided: self.now.connections_one_sided.saturating_sub(before.connections_one_sided),
            out_bytes: self.now.traffic_out_bytes.saturating_sub(before.traffic_out_bytes),
            out_covered_bytes: self.now.traffic_out_covered_bytes.saturating_sub(before.traffic_out_covered_bytes),
            span: self.at.since(*since),
            ignored: ignored.collect(),
            other_protocols: self
                .now
                .other_protocols()
                .filter_map(|(protocol, count)| (count > 0).then_some((protocol.number, count)))
                .collect(),
        }
    }

    pub(super) fn points(&self) -> Vec<TrafficPoint> {
        self.points.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_second_and_sums_of_the_last_minute() {
        let mut recorder = Recorder::default();
        let at = |ms: u64| Timestamp(ms * 1_000_000);
        let mut engine = EngineStatus::default();
        for tenth in 0..=1_200 {
            engine.counters.frames += 100;
            engine.counters.wire_bytes += 100_000;
            engine.counters.connections_ended += 2;
            engine.counters.connections_one_sided += 1;
            engine.counters.traffic_out_bytes += 1_000;
            engine.counters.traffic_out_covered_bytes += 250;
            let dropped = CaptureStatus { dropped_kernel: tenth, dropped_queue: tenth, ..CaptureStatus::default() };
            recorder.take(at(tenth * 100), &engine, &[dropped]);
        }
        let traffic = recorder.summary(at(120_000));
        let last = traffic.last.unwrap();
        assert!((last.packets_per_s - 1_000.0).abs() < 1e-9, "{last:?}");
        assert!((last.bits_per_s - 8e6).abs() < 1e-3 && (last.dropped_per_s - 20.0).abs() < 1e-9, "{last:?}");
        assert_eq!((traffic.ended, traffic.one_sided, traffic.span), (1_200, 600, Micros::from_secs(60)));
        assert_eq!((traffic.out_bytes, traffic.out_covered_bytes), (600_000, 150_000));
        assert_eq!(recorder.points().len(), 120);
        assert_eq!(recorder.summary(at(135_000)).last, None, "no current value without a reading");
    }
}
