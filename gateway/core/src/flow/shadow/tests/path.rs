//! A sender, a bottleneck with a drop-tail queue, and a receiver that acknowledges every segment, in steps of events.
//!
//! The replica sees what passes at the sender's own link: segments out, acknowledgements in.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use spand_proto::units::{Bytes, Micros, Timestamp};

use super::super::Shadow;
use super::super::flavour::Flavour;
use super::super::observation::{Acked, LossKind, Newest, Sent, ShadowSample};
use super::congestion::Algorithm;
use crate::counters::Ignored;
use crate::types::Limiter;

pub(super) const MSS: u64 = 1_000;

/// What limits the sender beside its window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Segments the application has in all.
    pub(super) segments: u64,
    /// Segments it writes per second; `None`: all at once.
    pub(super) per_second: Option<f64>,
    /// The receiver's window in segments.
    pub(super) receiver: u64,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Happening {
    Ack { segment: u64 },
    Send,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    sent_us: u64,
    delivered_before: u64,
    sacked: bool,
    lost: bool,
    repeated: bool,
}

/// The path and its results.
pub(super) struct Path {
    pub(super) algorithm: Algorithm,
    rate_per_s: f64,
    one_way_us: u64,
    queue: f64,
    demand: Demand,
    now_us: u64,
    events: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    order: u64,
    /// When the bottleneck is free again.
    free_us: f64,
    outstanding: BTreeMap<u64, Segment>,
    next: u64,
    una: u64,
    expected: u64,
    received: BTreeSet<u64>,
    delivered: u64,
    round_end: u64,
    pub(super) window: f64,
    threshold: f64,
    before_loss: f64,
    recovery: Option<u64>,
    last_ack_us: Option<u64>,
    pace_us: f64,
    /// When it next looks for data on its own.
    wakes_us: Option<u64>,
    srtt_us: f64,
    pub(super) shadow: Shadow,
    /// Relative errors of the replica's window at each acknowledgement outside recovery.
    pub(super) errors: Vec<f64>,
    /// The sender's window before each loss, whether in slow start, and the replica's sample.
    pub(super) losses: Vec<(f64, bool, Result<ShadowSample, Ignored>)>,
    pub(super) limiters: BTreeMap<&'static str, u32>,
    /// Acknowledgements at which a wrong flavour was named.
    pub(super) wrong_flavour: u32,
}

impl Path {
    /// `rate_per_s` segments per second, `one_way_us` each way, `queue` segments of room.
    pub(super) fn new(algorithm: Algorithm, rate_per_s: f64, one_way_us: u64, queue: f64, demand: Demand) -> Self {
        let mut shadow = Shadow::new(0, false);
        shadow.on_open(Timestamp(0), Bytes(MSS), Some(Micros(2 * one_way_us)));
        let mut path = Self {
            algorithm,
            rate_per_s,
            one_way_us,
            queue,
            demand,
            now_us: 0,
            events: BinaryHeap::new(),
            order: 0,
            free_us: 0.0,
            outstanding: BTreeMap::new(),
            next: 0,
            una: 0,
            expected: 0,
            received: BTreeSet::new(),
            delivered: 0,
            round_end: 0,
            window: 10.0,
            threshold: f64::INFINITY,
            before_loss: 0.0,
            recovery: None,
            last_ack_us: None,
            pace_us: 0.0,
            wakes_us: None,
            srtt_us: 2.0 * one_way_us as f64,
            shadow,
            errors: Vec::new(),
            losses: Vec::new(),
            limiters: BTreeMap::new(),
            wrong_flavour: 0,
        };
        if let Algorithm::Bbr(bbr) = &mut path.algorithm {
            bbr.min_rtt_s = 2.0 * one_way_us as f64 / 1e6;
        }
        path.wake(5_000);
        path
    }

    /// Runs for `seconds` or until everything is acknowledged.
    pub(super) fn run(mut self, seconds: u64) -> Self {
        while let Some(Reverse((at, _, happening))) = self.events.pop() {
            self.now_us = at;
            if at > seconds * 1_000_000 {
                break;
            }
            match happening {
                Happening::Ack { segment } => self.acknowledge(segment),
                Happening::Send => {
                    self.wakes_us = None;
                    self.fill();
                }
            }
        }
        self
    }

    fn at(&mut self, at_us: u64, happening: Happening) {
        self.order += 1;
        self.events.push(Reverse((at_us, self.order, happening)));
    }

    fn wake(&mut self, at_us: u64) {
        if self.wakes_us.is_none() {
            self.wakes_us = Some(at_us);
            self.at(at_us, Happening::Send);
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now_us)
    }

    fn pipe(&self) -> u64 {
        let counts = |s: &Segment| u64::from(!s.sacked && !s.lost) + u64::from(!s.sacked && s.lost && s.repeated);
        self.outstanding.values().map(counts).sum()
    }

    /// Segments the application has written by now.
    fn written(&self) -> u64 {
        let seconds = self.now_us as f64 / 1e6;
        self.demand.per_second.map_or(self.demand.segments, |rate| whole(seconds * rate)).min(self.demand.segments)
    }

    fn fill(&mut self) {
        loop {
            let lost = self.outstanding.iter().find(|(_, s)| s.lost && !s.repeated && !s.sacked).map(|(n, _)| *n);
            let room = (self.pipe() as f64) < self.window.floor().max(1.0);
            let fits = self.next < self.una + self.demand.receiver;
            if !room || (lost.is_none() && (!fits || self.next >= self.demand.segments)) {
                return;
            }
            if lost.is_none() && self.next >= self.written() {
                let rate = self.demand.per_second.unwrap_or(1.0);
                let next_us = whole((self.next + 1) as f64 / rate * 1e6);
                self.wake(next_us.max(self.now_us + 1));
                return;
            }
            if let Algorithm::Bbr(bbr) = &self.algorithm {
                let gap_us = 1e6 / bbr.pacing();
                if self.pace_us > self.now_us as f64 {
                    self.wake(whole(self.pace_us.ceil()));
                    return;
                }
                self.pace_us = self.pace_us.max(self.now_us as f64) + gap_us;
            }
            self.send(lost);
        }
    }

    fn send(&mut self, lost: Option<u64>) {
        let number = lost.unwrap_or(self.next);
        let is_new = lost.is_none();
        self.next += u64::from(is_new);
        let mut segment = self.outstanding.get(&number).copied().unwrap_or_default();
        segment.sent_us = self.now_us;
        segment.repeated = !is_new;
        segment.delivered_before = self.delivered;
        self.outstanding.insert(number, segment);
        let sent = Sent {
            new_bytes: if is_new { 1_000 } else { 0 },
            retransmitted_bytes: if is_new { 0 } else { 1_000 },
            full_sized: true,
            pipe: self.pipe() * MSS,
            flight: (self.next - self.una) * MSS,
            peer_window: Some(self.demand.receiver * MSS),
            since_ack: self.last_ack_us.map(|last| Micros(self.now_us - last)),
            ..Sent::default()
        };
        self.shadow.on_sent(self.now(), &sent);
        let start = self.free_us.max(self.now_us as f64);
        // Only new segments are dropped: the timeouts that follow a lost repetition are not simulated.
        if is_new && (start - self.now_us as f64) * self.rate_per_s / 1e6 > self.queue {
            return;
        }
        self.free_us = start + 1e6 / self.rate_per_s;
        let back = whole(self.free_us) + 2 * self.one_way_us;
        self.at(back, Happening::Ack { segment: number });
    }

    fn acknowledge(&mut self, number: u64) {
        let una_before = self.una;
        self.received.insert(number);
        while self.received.remove(&self.expected) {
            self.expected += 1;
        }
        self.una = self.una.max(self.expected);
        let arrived = self.outstanding.get(&number).copied();
        let mut newly = u64::from(arrived.is_some_and(|s| !s.sacked));
        let timed = arrived.filter(|s| !s.repeated).map(|s| self.now_us - s.sent_us);
        if let Some(segment) = self.outstanding.get_mut(&number) {
            segment.sacked = true;
        }
        let gone: Vec<u64> = self.outstanding.range(..self.una).map(|(n, _)| *n).collect();
        for n in gone {
            newly += u64::from(self.outstanding.remove(&n).is_some_and(|s| !s.sacked));
        }
        self.delivered += newly;
        if let Some(rtt) = timed {
            self.srtt_us += (rtt as f64 - self.srtt_us) / 8.0;
        }
        self.note_error();
        self.mark_lost();
        self.report_ack(una_before, timed, arrived);
        self.last_ack_us = Some(self.now_us);
        self.turn(newly, arrived);
        self.fill();
    }

    fn note_error(&mut self) {
        let limiter = self.shadow.limiter(self.now());
        *self.limiters.entry(limiter.name()).or_default() += u32::from(limiter != Limiter::Unknown);
        let right = match &self.algorithm {
            Algorithm::Reno => Flavour::Reno,
            Algorithm::Cubic(_) => Flavour::Cubic,
            Algorithm::Bbr(_) => Flavour::Bbr,
        };
        self.wrong_flavour += u32::from(![Flavour::Unknown, right].contains(&self.shadow.flavour()));
        if self.recovery.is_none()
            && let Some(window) = self.shadow.window()
        {
            let window = (window.bytes() / MSS as f64).floor();
            self.errors.push((window - self.window.floor()).abs() / self.window.floor());
        }
    }

    fn mark_lost(&mut self) {
        let sacked = self.outstanding.values().filter(|s| s.sacked).count();
        if sacked >= 3 || (self.recovery.is_some() && sacked > 0) {
            let latest = self.outstanding.values().filter(|s| s.sacked).map(|s| s.sent_us).max().unwrap_or(0);
            for segment in self.outstanding.values_mut().filter(|s| !s.sacked && !s.repeated && s.sent_us < latest) {
                segment.lost = true;
            }
        }
    }

    fn report_ack(&mut self, una_before: u64, timed: Option<u64>, arrived: Option<Segment>) {
        let advanced = self.una - una_before;
        let acked = Acked {
            acked_bytes: advanced * MSS,
            pipe: self.pipe() * MSS,
            flight: (self.next - self.una) * MSS,
            rtt: timed.map(Micros),
            newest: arrived.map(|s| Newest { sent_at: Timestamp::from_micros(s.sent_us), again: s.repeated }),
            delivered_bytes: self.delivered * MSS,
            ..Acked::default()
        };
        self.shadow.on_ack(self.now(), &acked);
    }

    fn turn(&mut self, newly: u64, arrived: Option<Segment>) {
        let now_s = self.now_us as f64 / 1e6;
        if self.recovery.is_some_and(|point| self.una >= point) {
            self.recovery = None;
            if !matches!(self.algorithm, Algorithm::Bbr(_)) {
                self.window = self.threshold;
            }
            self.shadow.on_recovery_end(self.now(), self.pipe() * MSS);
        }
        if self.recovery.is_none() && self.outstanding.values().any(|s| s.lost && !s.repeated) {
            self.lose();
        }
        let pipe = self.pipe();
        let filled = pipe + newly + 1 >= whole(self.window);
        let round = arrived.filter(|s| s.delivered_before >= self.round_end);
        match &mut self.algorithm {
            Algorithm::Bbr(bbr) => {
                if let Some(segment) = round {
                    let rate = (self.delivered - segment.delivered_before) as f64;
                    bbr.round(now_s, rate * 1e6 / (self.now_us - segment.sent_us) as f64, pipe as f64);
                    self.round_end = self.delivered;
                }
                self.window = bbr.window(self.delivered as f64);
            }
            // Proportional rate reduction (RFC 6937): down to the threshold over a round trip, then up to it.
            _ if self.recovery.is_some() => {
                let (pipe, newly) = (pipe as f64, newly as f64);
                let down = pipe + newly * self.threshold / self.before_loss;
                self.window = if pipe > self.threshold { down } else { (pipe + 2.0 * newly).min(self.threshold) };
            }
            _ if !filled => {}
            _ if self.window < self.threshold => self.window += newly as f64,
            Algorithm::Reno => self.window += newly as f64 / self.window,
            Algorithm::Cubic(cubic) => {
                self.window = cubic.grow(now_s, self.srtt_us / 1e6, self.window, newly as f64);
            }
        }
    }

    fn lose(&mut self) {
        let slow_start = self.window < self.threshold && self.threshold.is_infinite();
        let before = self.window;
        let pipe = self.outstanding.values().filter(|s| !s.sacked).count() as u64;
        let sample =
            self.shadow.on_loss(self.now(), LossKind::FastRetransmit, pipe * MSS, (self.next - self.una) * MSS);
        self.losses.push((before, slow_start, sample));
        self.recovery = Some(self.next);
        self.before_loss = before;
        match &mut self.algorithm {
            Algorithm::Reno => self.threshold = (self.window / 2.0).max(2.0),
            Algorithm::Cubic(cubic) => self.threshold = cubic.reduce(self.window),
            Algorithm::Bbr(_) => {}
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times and counts, never negative")]
fn whole(number: f64) -> u64 {
    number as u64
}
