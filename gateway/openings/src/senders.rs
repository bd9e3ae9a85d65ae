//! The senders of one network that are under way, in order of age, and the clocks of their losses.
//!
//! A sender is under way from the beginning of a transfer to its end, or until it was silent for a retransmission timeout. Not kept over a
//! restart.

use std::num::NonZeroUsize;

use spand_core::opening::Openings;
use spand_core::types::{Phase, SenderId, SenderState};
use spand_proto::estimate::RuleKind;
use spand_proto::opening::Opening;
use spand_proto::units::{Micros, Timestamp, Window};

use crate::average::Average;
use crate::losses::{LossCount, LossTimes};
use crate::rules;

/// A sender under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveSender {
    /// Which.
    pub(crate) id: SenderId,
    /// When it was last reported.
    pub(crate) reported: Timestamp,
    /// As reported last.
    pub(crate) state: SenderState,
    /// Its window smoothed per acknowledged segment, in bytes.
    pub(crate) smoothed: Window,
    /// Of what has arrived, this is in `smoothed`.
    smoothed_to: u64,
    /// Its losses.
    pub(crate) losses: LossTimes,
}

/// Part of the window that one acknowledged segment adds to its smoothed value (ns-2's `awnd_`).
const SMOOTHING: f64 = 0.002;
/// From this many segments on, the smoothed value is the window to the last bit.
const SMOOTHED_OUT: u64 = 50_000;

impl LiveSender {
    fn new(at: Timestamp, id: SenderId, state: &SenderState) -> Self {
        // Half of the first window, as there.
        let smoothed = Window::from_bytes(state.window.bytes() / 2.0).unwrap_or(state.window);
        Self {
            id,
            reported: at,
            state: *state,
            smoothed,
            smoothed_to: state.delivered_bytes,
            losses: LossTimes::default(),
        }
    }

    fn report(&mut self, at: Timestamp, state: &SenderState) {
        self.reported = self.reported.max(at);
        self.state = *state;
        let mss = state.mss.0.max(1);
        let segments = state.delivered_bytes.saturating_sub(self.smoothed_to) / mss;
        self.smoothed_to = self.smoothed_to.saturating_add(segments.saturating_mul(mss));
        let segments = i32::try_from(segments.min(SMOOTHED_OUT)).unwrap_or(i32::MAX);
        let kept = (1.0 - SMOOTHING).powi(segments);
        let smoothed = kept * self.smoothed.bytes() + (1.0 - kept) * state.window.bytes();
        self.smoothed = Window::from_bytes(smoothed).unwrap_or(state.window);
    }

    /// Whether it is under way at `now`.
    fn is_live(&self, now: Timestamp) -> bool {
        now.since(self.reported) <= self.state.silence
    }

    /// Whether its window shows the share: in slow start it is on its way there.
    pub(crate) fn is_steady(&self) -> bool {
        self.state.phase != Phase::SlowStart
    }
}

const SECOND_NANOS: u64 = 1_000_000_000;

/// Senders beyond those that have a place: summed, not distinguished.
///
/// Each reports once a round trip, so a report stands for one round trip of one sender: all those of a second together are how many
/// there were on average. So nothing is kept of any of them, and those that leave need not say so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rest {
    /// The second under way.
    second: u64,
    now: Sums,
    /// Of the second before.
    before: Sums,
}

/// How many senders there are, and their windows in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    /// In slow start.
    slow_starting: f64,
    /// Their windows.
    slow_starting_bytes: f64,
    /// In congestion avoidance or recovery.
    in_avoidance: f64,
    /// Their windows.
    in_avoidance_bytes: f64,
}

impl Rest {
    /// Takes a report.
    fn add(&mut self, at: Timestamp, state: &SenderState) {
        let second = at.0 / SECOND_NANOS;
        if second > self.second {
            self.before = if second == self.second + 1 { self.now } else { Sums::default() };
            (self.now, self.second) = (Sums::default(), second);
        }
        // Never longer than the time over which it is averaged.
        let part = state.rtt.min(Micros::from_secs(1)).as_secs_f64();
        let bytes = part * state.window.bytes();
        if state.phase == Phase::SlowStart {
            self.now.slow_starting += part;
            self.now.slow_starting_bytes += bytes;
        } else {
            self.now.in_avoidance += part;
            self.now.in_avoidance_bytes += bytes;
        }
    }

    /// Of the last whole second.
    fn sums(&self, now: Timestamp) -> Sums {
        match (now.0 / SECOND_NANOS).saturating_sub(self.second) {
            0 => self.before,
            1 => self.now,
            _ => Sums::default(),
        }
    }
}

/// The senders of one network that are under way.
#[derive(Debug)]
pub(crate) struct LiveSenders {
    /// In order of age.
    senders: Vec<LiveSender>,
    rest: Rest,
    losses: LossTimes,
    average: Average,
    /// The threshold of the sender that left last, and when.
    left: Option<(Timestamp, Window)>,
    rule: RuleKind,
    /// Senders with a place of their own.
    places: NonZeroUsize,
    counted: LossCount,
}

impl Openings for LiveSenders {
    fn of_network(&self) -> Box<dyn Openings> {
        Box::new(Self::new(self.rule, self.places, self.counted))
    }

    fn report(&mut self, at: Timestamp, id: SenderId, state: &SenderState) -> bool {
        self.sample(at);
        let place = self.senders.iter().position(|sender| sender.id == id);
        if let Some(sender) = place.and_then(|place| self.senders.get_mut(place)).filter(|sender| sender.is_live(at)) {
            sender.report(at, state);
            return false;
        }
        // It comes, or comes back: the youngest, where those that fell silent leave room.
        if self.senders.len() >= self.places.get() || place.is_some() {
            self.drop_silent(at);
        }
        let shared = self.senders.len() >= self.places.get();
        if shared {
            self.rest.add(at, state);
        } else {
            self.senders.push(LiveSender::new(at, id, state));
        }
        shared
    }

    fn lose(&mut self, at: Timestamp, id: SenderId, rtt: Micros) {
        self.losses.add(at, rtt, self.counted);
        if let Some(sender) = self.senders.iter_mut().find(|sender| sender.id == id) {
            sender.losses.add(at, rtt, self.counted);
        }
    }

    fn end(&mut self, at: Timestamp, id: SenderId) {
        self.sample(at);
        if let Some(place) = self.senders.iter().position(|sender| sender.id == id) {
            self.left = latest(self.left, &self.senders.remove(place));
        }
    }

    fn opening(&self, now: Timestamp) -> Option<Opening> {
        rules::opening(self.rule, self, now)
    }

    fn compared(&self, rule: RuleKind, now: Timestamp) -> Option<Opening> {
        rules::opening(rule, self, now)
    }

    fn held_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.senders)
    }
}

impl LiveSenders {
    /// None yet, with these places for the oldest; others are only counted.
    pub(crate) fn new(rule: RuleKind, places: NonZeroUsize, counted: LossCount) -> Self {
        Self {
            senders: Vec::new(),
            rest: Rest::default(),
            losses: LossTimes::default(),
            average: Average::default(),
            left: None,
            rule,
            places,
            counted,
        }
    }

    /// Samples the seconds that began since the last change, as they were before this one.
    fn sample(&mut self, now: Timestamp) {
        let Self { senders, rest, average, .. } = self;
        average.advance(now, |moment| {
            let live = senders.iter().filter(|sender| sender.is_live(moment));
            let rest = rest.sums(moment);
            let beyond = (rest.slow_starting_bytes + rest.in_avoidance_bytes, rest.slow_starting + rest.in_avoidance);
            live.fold(beyond, |(bytes, count), sender| (bytes + sender.state.window.bytes(), count + 1.0))
        });
    }

    fn drop_silent(&mut self, now: Timestamp) {
        let mut left = self.left;
        self.senders.retain(|sender| {
            let live = sender.is_live(now);
            if !live {
                left = latest(left, sender);
            }
            live
        });
        self.left = left;
    }

    /// Those with a place of their own, the oldest first.
    pub(crate) fn senders(&self, now: Timestamp) -> impl Iterator<Item = &LiveSender> {
        self.senders.iter().filter(move |sender| sender.is_live(now))
    }

    /// The windows of those in slow start, in bytes, and the number of those in congestion avoidance, over all senders under way.
    pub(crate) fn crowd(&self, now: Timestamp) -> (f64, u32) {
        let rest = self.rest.sums(now);
        let (mut slow_starting, mut steady) = (rest.slow_starting_bytes, rounded(rest.in_avoidance));
        for sender in self.senders(now) {
            if sender.is_steady() {
                steady = steady.saturating_add(1);
            } else {
                slow_starting += sender.state.window.bytes();
            }
        }
        (slow_starting, steady)
    }

    /// The losses of all.
    pub(crate) fn losses(&self) -> LossTimes {
        self.losses
    }

    /// The threshold of the sender that left last, where that was within `age`.
    pub(crate) fn left_with(&self, age: Micros, now: Timestamp) -> Option<Window> {
        // Those that fell silent are dropped when their place is wanted.
        let silent = self.senders.iter().filter(|sender| !sender.is_live(now));
        let (at, ssthresh) = silent.fold(self.left, latest)?;
        (now.since(at) <= age).then_some(ssthresh)
    }

    /// The mean window of a sender over the last five whole minutes.
    pub(crate) fn mean_window(&self, now: Timestamp) -> Option<Window> {
        self.average.mean(now)
    }
}

/// The threshold reported later: that of `sender`, where it has one, or the one noted.
fn latest(noted: Option<(Timestamp, Window)>, sender: &LiveSender) -> Option<(Timestamp, Window)> {
    let own = sender.state.ssthresh.map(|ssthresh| (sender.reported, ssthresh));
    match (noted, own) {
        (Some(noted), Some(own)) if noted.0 > own.0 => Some(noted),
        (noted, own) => own.or(noted),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of parts that are not negative; `as` saturates at u32::MAX"
)]
fn rounded(count: f64) -> u32 {
    count.round() as u32
}
