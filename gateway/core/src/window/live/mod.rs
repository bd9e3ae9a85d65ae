//! The senders of one network that are under way, in order of age, and the clocks of their losses: what the rules of Yu & Newman
//! ([`crate::estimate`]) are computed from.
//!
//! Kept only where a rule in force, or one compared with it, asks for it. A sender is under way from the beginning of a transfer
//! to its end, or until it was silent for a retransmission timeout. Not kept over a restart.

mod average;
pub mod losses;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;

use spand_proto::units::{Micros, Timestamp, Window};

use self::average::Average;
use self::losses::{LossCount, LossTimes};
use crate::mem::{allocated_for, boxed};
use crate::types::{Phase, SenderId, SenderState};
use crate::window::delivery::Delivery;

/// A sender under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveSender {
    /// Which.
    pub id: SenderId,
    /// When it was first reported.
    pub began: Timestamp,
    /// When it was last reported.
    pub reported: Timestamp,
    /// As reported last.
    pub state: SenderState,
    /// Its window smoothed per acknowledged segment, in bytes.
    pub smoothed: Window,
    /// Of what has arrived, this is in `smoothed`.
    smoothed_to: u64,
    /// Its losses.
    pub losses: LossTimes,
}

/// Part of the window that one acknowledged segment adds to its smoothed value (ns-2's `awnd_`).
const SMOOTHING: f64 = 0.002;
/// From this many segments on, the smoothed value is the window to the last bit.
const SMOOTHED_OUT: u64 = 50_000;

impl LiveSender {
    fn new(at: Timestamp, id: SenderId, state: &SenderState) -> Self {
        // Half of the first window, as there.
        let smoothed = Window::from_bytes(state.window.bytes() / 2.0).unwrap_or(state.window);
        let (began, reported, smoothed_to) = (at, at, state.delivered_bytes);
        Self { id, began, reported, state: *state, smoothed, smoothed_to, losses: LossTimes::default() }
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
    pub fn is_steady(&self) -> bool {
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveSenders {
    /// In order of age.
    senders: Vec<LiveSender>,
    rest: Rest,
    losses: LossTimes,
    average: Average,
    /// The threshold of the sender that left last, and when.
    left: Option<(Timestamp, Window)>,
}

impl LiveSenders {
    /// Takes a report. Says whether the sender has no place of its own, because there are `limit` older ones: it counts in the
    /// sums only.
    pub(crate) fn report(&mut self, at: Timestamp, id: SenderId, state: &SenderState, limit: NonZeroUsize) -> bool {
        self.sample(at);
        let place = self.senders.iter().position(|sender| sender.id == id);
        if let Some(sender) = place.and_then(|place| self.senders.get_mut(place)).filter(|sender| sender.is_live(at)) {
            sender.report(at, state);
            return false;
        }
        // It comes, or comes back: the youngest, where those that fell silent leave room.
        if self.senders.len() >= limit.get() || place.is_some() {
            self.drop_silent(at);
        }
        let shared = self.senders.len() >= limit.get();
        if shared {
            self.rest.add(at, state);
        } else {
            self.senders.push(LiveSender::new(at, id, state));
        }
        shared
    }

    /// A sender's transfer ended.
    pub(crate) fn end(&mut self, at: Timestamp, id: SenderId) {
        self.sample(at);
        if let Some(place) = self.senders.iter().position(|sender| sender.id == id) {
            let sender = self.senders.remove(place);
            self.note_left(&sender);
        }
    }

    /// A sender whose round trip is `rtt` lost something.
    pub(crate) fn lose(&mut self, at: Timestamp, id: SenderId, rtt: Micros, counted: LossCount) {
        self.losses.add(at, rtt, counted);
        if let Some(sender) = self.senders.iter_mut().find(|sender| sender.id == id) {
            sender.losses.add(at, rtt, counted);
        }
    }

    /// Heap memory, its own included.
    pub(crate) fn held_bytes(&self) -> usize {
        boxed::<Self>() + allocated_for::<LiveSender>(self.senders.capacity())
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

    fn note_left(&mut self, sender: &LiveSender) {
        self.left = latest(self.left, sender);
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

/// What a rule sees of the senders under way at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LiveView<'a> {
    senders: Option<&'a LiveSenders>,
    delivery: Option<&'a Delivery>,
    now: Timestamp,
}

impl<'a> LiveView<'a> {
    /// Of a network at `now`; nothing where nothing is kept of its senders.
    pub fn new(senders: Option<&'a LiveSenders>, now: Timestamp) -> Self {
        Self { senders, delivery: None, now }
    }

    /// The same with what they delivered together.
    pub(crate) fn with_delivery(self, delivery: &'a Delivery) -> Self {
        Self { delivery: Some(delivery), ..self }
    }

    /// What the empty path holds at this least round trip, as far as its senders filled it.
    pub fn bdp(self, rtt_min: Option<Micros>) -> Option<Window> {
        self.delivery?.bdp(self.now, rtt_min?)
    }

    /// Those with a place of their own, the oldest first.
    pub fn senders(self) -> impl Iterator<Item = &'a LiveSender> {
        self.senders.into_iter().flat_map(|live| &live.senders).filter(move |sender| sender.is_live(self.now))
    }

    /// The windows of those in slow start, in bytes, and the number of those in congestion avoidance, over all senders under way.
    pub fn crowd(self) -> (f64, u32) {
        let rest = self.senders.map_or_else(Sums::default, |live| live.rest.sums(self.now));
        let (mut slow_starting, mut steady) = (rest.slow_starting_bytes, rounded(rest.in_avoidance));
        for sender in self.senders() {
            if sender.is_steady() {
                steady = steady.saturating_add(1);
            } else {
                slow_starting += sender.state.window.bytes();
            }
        }
        (slow_starting, steady)
    }

    /// The losses of all.
    pub fn losses(self) -> LossTimes {
        self.senders.map_or_else(LossTimes::default, |live| live.losses)
    }

    /// The threshold of the sender that left last, where that was within `age`.
    pub fn left_with(self, age: Micros) -> Option<Window> {
        let live = self.senders?;
        // Those that fell silent are dropped when their place is wanted.
        let silent = live.senders.iter().filter(|sender| !sender.is_live(self.now));
        let (at, ssthresh) = silent.fold(live.left, latest)?;
        (self.now.since(at) <= age).then_some(ssthresh)
    }

    /// The mean window of a sender over the last five whole minutes.
    pub fn mean_window(self) -> Option<Window> {
        self.senders?.average.mean(self.now)
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
