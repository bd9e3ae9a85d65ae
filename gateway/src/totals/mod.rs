//! The gateway as a whole over time: minutes of a day, ten minutes of a week, hours of thirty days.
//!
//! Each reading counts in one step of each resolution. A step in which the gateway did not run has no point. Where the clock was
//! set back, a step that is there already counts on, so that sums stay right and its observed time exceeds the step.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use spand_proto::comparison::CLASSES;
use spand_proto::units::{Micros, Timestamp};
use strum::VariantArray;

/// Takes the struct of counts as it is to be; writes with it what every count takes part in, so that none is left out.
macro_rules! counted {
    ($(#[$of_all:meta])* pub struct $counts:ident { $($(#[$of_one:meta])* pub $name:ident: u64,)+ }) => {
        $(#[$of_all])*
        pub struct $counts {
            $($(#[$of_one])* pub $name: u64,)+
        }

        impl $counts {
            /// Every count with its stable name, in the order of declaration.
            pub fn named(&self) -> [(&'static str, u64); [$(stringify!($name)),+].len()] {
                [$((stringify!($name), self.$name)),+]
            }

            fn with(&self, other: &Self, combined: fn(u64, u64) -> u64) -> Self {
                Self { $($name: combined(self.$name, other.$name)),+ }
            }
        }
    };
}

counted! {
    /// What rises: since the start in a reading, of the step in a point.
    #[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
    pub struct Counts {
        /// Packets that reached the engine.
        pub packets: u64,
        /// Bytes of them on the wire.
        pub wire_bytes: u64,
        /// Packets that the kernel dropped.
        pub dropped_kernel: u64,
        /// Packets that the interface or its driver dropped.
        pub dropped_interface: u64,
        /// Packets dropped because the engine did not keep up.
        pub dropped_queue: u64,
        /// Connections that ended.
        pub connections_ended: u64,
        /// Those of which only one direction was seen.
        pub connections_one_sided: u64,
        /// Window samples.
        pub window_samples: u64,
        /// Loss events.
        pub losses: u64,
        /// Starts handed to subscribers.
        pub starts_pushed: u64,
        /// Transfers of the advised arm that hosts reported.
        pub transfers_advised: u64,
        /// Those of the control group.
        pub transfers_control: u64,
    }
}

/// What rises and falls: as it was last.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Gauges {
    /// Networks published.
    pub networks: u64,
    /// Those with an estimate.
    pub estimates: u64,
    /// Agents subscribed.
    pub agents: u64,
}

impl Gauges {
    /// Each with its stable name, in the order of declaration.
    pub fn named(&self) -> [(&'static str, u64); 3] {
        [("networks", self.networks), ("estimates", self.estimates), ("agents", self.agents)]
    }
}

/// Completion time, advised less control, in percent of the control's mean, by size class: the mean and the ends of its 95 %
/// interval. None where both arms have too few transfers.
pub type Differences = [Option<[f64; 3]>; CLASSES.len()];

/// The gateway at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Counted since the start of the gateway.
    pub counts: Counts,
    /// As they are.
    pub gauges: Gauges,
    /// As it is.
    pub differences: Differences,
}

/// One step.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Point {
    /// Its beginning: a whole number of steps since 1970.
    pub at: Timestamp,
    /// The time of it in which the gateway ran.
    pub observed: Micros,
    /// What was counted in it.
    pub counts: Counts,
    /// As they were at its end.
    pub gauges: Gauges,
    /// As it was at its end.
    pub differences: Differences,
}

/// A resolution.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, VariantArray)]
pub enum Step {
    /// Minutes of a day.
    Minute,
    /// Ten minutes of a week.
    TenMinutes,
    /// Hours of thirty days.
    Hour,
}

impl Step {
    /// Its length.
    pub const fn length(self) -> Micros {
        Micros::from_secs(match self {
            Self::Minute => 60,
            Self::TenMinutes => 600,
            Self::Hour => 3_600,
        })
    }

    /// Points that are kept.
    pub const fn points(self) -> usize {
        match self {
            Self::Minute => 24 * 60,
            Self::TenMinutes => 7 * 24 * 6,
            Self::Hour => 30 * 24,
        }
    }

    /// The time that they cover.
    pub const fn span(self) -> Micros {
        Micros(self.length().0 * self.points() as u64)
    }

    /// The beginning of the step that holds a moment.
    pub const fn beginning(self, at: Timestamp) -> Timestamp {
        let nanos = self.length().0 * 1_000;
        Timestamp(at.0 / nanos * nanos)
    }
}

/// Steps that changed, for a store: `None` where one is gone.
pub type TotalsChange = BTreeMap<(Step, Timestamp), Option<Point>>;

/// Keeps points.
#[derive(Debug)]
pub struct Totals {
    before: Option<(Timestamp, Counts)>,
    rings: [Ring; Step::VARIANTS.len()],
}

impl Default for Totals {
    fn default() -> Self {
        let ring = |step: Step| {
            // One more while the oldest has not gone yet.
            Ring { step, points: VecDeque::with_capacity(step.points() + 1), changed: BTreeSet::new() }
        };
        Self { before: None, rings: [ring(Step::Minute), ring(Step::TenMinutes), ring(Step::Hour)] }
    }
}

impl Totals {
    /// Takes a reading; what rose since the one before counts in the steps of this moment. Before the first one nothing is counted.
    pub fn take(&mut self, now: Timestamp, reading: &Reading) {
        let Reading { counts, gauges, differences } = *reading;
        let Some((before, counted)) = self.before.replace((now, counts)) else { return };
        let counts = counts.with(&counted, u64::saturating_sub);
        let part = Point { at: now, observed: now.since(before), counts, gauges, differences };
        for ring in &mut self.rings {
            ring.add(&part);
        }
    }

    /// Takes what a store held. It is called before the first reading.
    pub fn restore(&mut self, points: impl IntoIterator<Item = (Step, Point)>, now: Timestamp) {
        for (step, point) in points {
            let Some(ring) = self.rings.iter_mut().find(|ring| ring.step == step) else { continue };
            ring.put(&point, now);
        }
    }

    /// The points of a resolution that begin at `from` or later and before `to`, the oldest first; with each, whether the step
    /// before it is missing, where points are older.
    pub fn points(&self, step: Step, from: Timestamp, to: Timestamp) -> Vec<(Point, bool)> {
        let Some(ring) = self.rings.iter().find(|ring| ring.step == step) else { return Vec::new() };
        let all = ring.points.iter();
        let before = std::iter::once(None).chain(all.clone().map(|point| Some(point.at.after(step.length()))));
        let points = all.zip(before).map(|(point, end)| (*point, end.is_some_and(|end| end < point.at)));
        points.filter(|(point, _)| point.at >= from && point.at < to).collect()
    }

    /// What changed since the last call.
    pub fn changes(&mut self) -> TotalsChange {
        let mut change = TotalsChange::new();
        for ring in &mut self.rings {
            for at in std::mem::take(&mut ring.changed) {
                change.insert((ring.step, at), ring.get(at).copied());
            }
        }
        change
    }
}

/// The points of one resolution, in order of time.
#[derive(Debug)]
struct Ring {
    step: Step,
    points: VecDeque<Point>,
    /// Steps that changed or went since they were handed to the store.
    changed: BTreeSet<Timestamp>,
}

impl Ring {
    fn place(&self, at: Timestamp) -> usize {
        self.points.partition_point(|point| point.at < at)
    }

    fn get(&self, at: Timestamp) -> Option<&Point> {
        self.points.get(self.place(at)).filter(|point| point.at == at)
    }

    fn add(&mut self, part: &Point) {
        let at = self.step.beginning(part.at);
        let place = self.place(at);
        match self.points.get_mut(place).filter(|point| point.at == at) {
            Some(point) => {
                let observed = Micros(point.observed.0.saturating_add(part.observed.0));
                let counts = point.counts.with(&part.counts, u64::saturating_add);
                *point = Point { at, observed, counts, ..*part };
            }
            None => self.points.insert(place, Point { at, ..*part }),
        }
        self.note(at);
        self.trim(at);
    }

    fn put(&mut self, point: &Point, now: Timestamp) {
        let place = self.place(point.at);
        self.points.insert(place, *point);
        self.trim(self.step.beginning(now));
    }

    /// Lets go of what is older than the span; beyond the limit, of what a clock that was ahead left in the future first.
    fn trim(&mut self, now: Timestamp) {
        loop {
            let is_old = self.points.front().is_some_and(|point| now.since(point.at) >= self.step.span());
            let is_full = self.points.len() > self.step.points();
            let is_ahead = self.points.back().is_some_and(|point| point.at > now);
            let gone = match (is_old, is_full, is_ahead) {
                (true, ..) | (_, true, false) => self.points.pop_front(),
                (_, true, true) => self.points.pop_back(),
                (false, false, _) => return,
            };
            let Some(point) = gone else { return };
            self.note(point.at);
        }
    }

    /// While a store fails more may go than are kept: those remain in the store until the next start.
    fn note(&mut self, at: Timestamp) {
        self.changed.insert(at);
        if self.changed.len() > 2 * self.step.points() {
            self.changed.pop_first();
        }
    }
}
