//! Simulates a SACK sender. It chooses what to send and when as Linux does (RFC 6675, 6937, 8985, 6298).

use std::collections::VecDeque;
use std::ops::Range;

use super::congestion::Algorithm;

/// How a transfer begins, in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Start {
    pub(crate) window: u32,
    pub(crate) threshold: f64,
    /// Segments that leave at once, and the time between those that follow.
    pub(crate) pacing: Option<(u32, f64)>,
}

impl Start {
    /// What Linux does without advice.
    pub(crate) const PLAIN: Self = Self { window: 10, threshold: f64::INFINITY, pacing: None };
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    order: u64,
    sent_us: u64,
    delivered_before: u64,
    sacked: bool,
    /// Lost and not sent again yet.
    lost: bool,
    again: bool,
}

/// What a sender may do now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    Send(u64),
    /// Pacing: not before this time.
    Wait(u64),
    Nothing,
}

/// The state of one transfer. Numbers are of segments.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    algorithm: Algorithm,
    start: Start,
    total: u64,
    outstanding: VecDeque<Segment>,
    pub(crate) una: u64,
    in_flight: u64,
    sacked: u64,
    lost: u64,
    order: u64,
    newest_delivered: u64,
    delivered: u64,
    round_end: u64,
    window: f64,
    threshold: f64,
    before_loss: f64,
    recovery: Option<u64>,
    timed_out: Option<u64>,
    probed: bool,
    pub(crate) srtt_us: f64,
    deviation_us: f64,
    min_rtt_us: f64,
    /// When BBR last drained the queue to measure that, and until when it does.
    drained_us: [u64; 2],
    /// The round trip at hand: its end, its smallest time and how many were measured (HyStart).
    round: (u64, f64, u32),
    backoff: u32,
    pub(crate) timer_us: u64,
    pace_us: f64,
    /// Segments of the first flight that had left at its last loss, and those that were lost.
    pub(crate) first_flight: (u32, u32),
    pub(crate) sent_again: u32,
    /// When each loss in congestion avoidance was met, and the window at it.
    pub(crate) at_losses: Vec<(u64, f64)>,
}

impl Sender {
    pub(crate) fn new(algorithm: Algorithm, total: u64, start: Start, rtt_us: u64, now_us: u64) -> Self {
        let rtt = rtt_us as f64;
        let mut sender = Self {
            algorithm,
            start,
            total,
            window: f64::from(start.window),
            threshold: start.threshold,
            srtt_us: rtt,
            deviation_us: rtt / 2.0,
            min_rtt_us: rtt,
            drained_us: [now_us, now_us],
            timer_us: now_us + 1_000_000,
            ..Self::default()
        };
        if let Algorithm::Bbr(bbr) = &mut sender.algorithm {
            bbr.min_rtt_s = rtt / 1e6;
        }
        sender
    }

    pub(crate) fn is_done(&self) -> bool {
        self.una >= self.total
    }

    /// All of the first flight was acknowledged.
    pub(crate) fn is_past_first_flight(&self) -> bool {
        self.una >= u64::from(self.start.window).min(self.total)
    }

    fn next(&self) -> u64 {
        self.una + self.outstanding.len() as u64
    }

    /// What leaves next.
    pub(crate) fn next_to_send(&mut self, now_us: u64) -> Next {
        let is_new = self.lost == 0;
        if self.in_flight as f64 >= self.window.floor().max(1.0) || is_new && self.next() >= self.total {
            return Next::Nothing;
        }
        let gap_us = match (&self.algorithm, self.start.pacing) {
            (_, Some((at_once, gap_us))) if self.una == 0 => (self.next() >= at_once.into()).then_some(gap_us),
            (Algorithm::Bbr(bbr), _) if self.una > 0 => Some(1e6 / bbr.pacing()),
            _ => None,
        };
        if let Some(gap_us) = gap_us {
            if self.pace_us > now_us as f64 {
                return Next::Wait(whole(self.pace_us.ceil()));
            }
            self.pace_us = self.pace_us.max(now_us as f64) + gap_us;
        }
        if is_new {
            self.outstanding.push_back(Segment::default());
            return Next::Send(self.sent(self.next() - 1, now_us));
        }
        let first = self.outstanding.iter().position(|segment| segment.lost).unwrap_or_default() as u64;
        self.lost -= 1;
        Next::Send(self.sent(self.una + first, now_us))
    }

    fn sent(&mut self, number: u64, now_us: u64) -> u64 {
        self.order += 1;
        if self.in_flight == 0 {
            self.restart_timer(now_us);
        }
        self.in_flight += 1;
        let (order, delivered_before) = (self.order, self.delivered);
        if let Some(segment) = self.outstanding.get_mut(index(number - self.una)) {
            let again = segment.order > 0;
            self.sent_again += u32::from(again);
            *segment = Segment { order, sent_us: now_us, delivered_before, sacked: false, lost: false, again };
        }
        number
    }

    fn restart_timer(&mut self, now_us: u64) {
        let timeout_us = (self.srtt_us + 4.0 * self.deviation_us).max(200_000.0);
        let is_probe = !self.probed && self.recovery.is_none() && self.timed_out.is_none();
        let us =
            if is_probe { (2.0 * self.srtt_us).min(timeout_us) } else { timeout_us * f64::from(1 << self.backoff) };
        self.timer_us = now_us + whole(us);
    }

    /// The timer has run out: a tail loss probe first, which is the segment returned, then a timeout.
    pub(crate) fn on_timer(&mut self, now_us: u64) -> Option<u64> {
        if self.outstanding.is_empty() {
            self.timer_us = now_us + 1_000_000;
            return None;
        }
        if !self.probed && self.recovery.is_none() && self.timed_out.is_none() {
            self.probed = true;
            let last = self.next() - 1;
            if self.outstanding.back().is_some_and(|segment| !segment.sacked && !segment.lost) {
                self.in_flight -= 1;
                let number = self.sent(last, now_us);
                self.restart_timer(now_us);
                return Some(number);
            }
        }
        if self.timed_out.is_none() {
            self.threshold = self.reduced();
        }
        (self.timed_out, self.recovery) = (Some(self.next()), None);
        self.window = 1.0;
        self.backoff = (self.backoff + 1).min(6);
        for at in 0..self.outstanding.len() {
            self.deem_lost(at);
        }
        self.restart_timer(now_us);
        None
    }

    fn deem_lost(&mut self, at: usize) {
        let number = self.una + at as u64;
        let next = self.next();
        let Some(segment) = self.outstanding.get_mut(at).filter(|segment| !segment.sacked && !segment.lost) else {
            return;
        };
        segment.lost = true;
        self.in_flight -= 1;
        self.lost += 1;
        let flight = u64::from(self.start.window);
        if number < flight && !segment.again {
            self.first_flight.0 = u32::try_from(flight.min(next)).unwrap_or(u32::MAX);
            self.first_flight.1 += 1;
        }
    }

    fn reduced(&mut self) -> f64 {
        match &mut self.algorithm {
            Algorithm::Reno => (self.window / 2.0).max(2.0),
            Algorithm::Cubic(cubic) => cubic.reduce(self.window),
            Algorithm::Bbr(_) => self.threshold,
        }
    }

    /// An acknowledgement of all before `una` and of what lies in `sack`.
    pub(crate) fn on_ack(&mut self, now_us: u64, una: u64, sack: impl Iterator<Item = Range<u64>>) {
        let before = self.delivered;
        let mut newest: Option<Segment> = None;
        let advanced = una > self.una;
        while self.una < una {
            let Some(segment) = self.outstanding.pop_front() else { break };
            self.una += 1;
            self.sacked -= u64::from(segment.sacked);
            self.arrived(segment, &mut newest);
        }
        for range in sack {
            for number in range.start.max(self.una)..range.end.min(self.next()) {
                let at = index(number - self.una);
                let Some(segment) = self.outstanding.get(at).copied() else { break };
                if !segment.sacked {
                    self.arrived(segment, &mut newest);
                    self.sacked += 1;
                    self.outstanding[at] = Segment { sacked: true, lost: false, ..segment };
                }
            }
        }
        if advanced || self.delivered > before {
            // Karn's rule.
            if let Some(segment) = newest.filter(|newest| !newest.again) {
                self.measure(now_us, (now_us - segment.sent_us) as f64);
            }
            (self.backoff, self.probed) = (0, self.probed && !advanced);
            self.restart_timer(now_us);
        }
        if self.sacked >= 3 || self.sacked > 0 && (self.recovery.is_some() || self.timed_out.is_some() || self.probed) {
            for at in 0..self.outstanding.len() {
                if self.outstanding[at].order < self.newest_delivered {
                    self.deem_lost(at);
                }
            }
        }
        self.turn(now_us, self.delivered - before, newest);
    }

    fn arrived(&mut self, segment: Segment, newest: &mut Option<Segment>) {
        if segment.sacked {
            return;
        }
        self.delivered += 1;
        if segment.lost {
            self.lost -= 1;
        } else {
            self.in_flight -= 1;
        }
        if segment.order >= self.newest_delivered {
            self.newest_delivered = segment.order;
            *newest = Some(segment);
        }
    }

    fn measure(&mut self, now_us: u64, rtt_us: f64) {
        self.deviation_us += ((rtt_us - self.srtt_us).abs() - self.deviation_us) / 4.0;
        self.srtt_us += (rtt_us - self.srtt_us) / 8.0;
        self.min_rtt_us = self.min_rtt_us.min(rtt_us);
        if matches!(self.algorithm, Algorithm::Bbr(_)) && now_us - self.drained_us[0] > 10_000_000 {
            self.drained_us = [now_us, now_us + 200_000 + whole(rtt_us)];
            self.min_rtt_us = rtt_us;
        }
        if self.una >= self.round.0 {
            self.round = (self.next(), f64::INFINITY, 0);
        }
        self.round = (self.round.0, self.round.1.min(rtt_us), self.round.2 + 1);
        // HyStart's delay, as in net/ipv4/tcp_cubic.c.
        let longer_us = (self.min_rtt_us / 8.0).clamp(4_000.0, 16_000.0);
        if matches!(self.algorithm, Algorithm::Cubic(_))
            && self.window >= 16.0
            && self.window < self.threshold
            && (8..=9).contains(&self.round.2)
            && self.round.1 >= self.min_rtt_us + longer_us
        {
            self.threshold = self.window;
        }
    }

    fn turn(&mut self, now_us: u64, newly: u64, newest: Option<Segment>) {
        if self.timed_out.is_some_and(|end| self.una >= end) {
            self.timed_out = None;
        }
        if self.recovery.is_some_and(|end| self.una >= end) {
            self.recovery = None;
            if !matches!(self.algorithm, Algorithm::Bbr(_)) {
                self.window = self.threshold;
            }
        }
        if self.recovery.is_none() && self.timed_out.is_none() && self.lost > 0 {
            if self.window >= self.threshold {
                self.at_losses.push((now_us, self.window));
            }
            self.recovery = Some(self.next());
            self.before_loss = self.window;
            self.threshold = self.reduced();
        }
        let (pipe, new) = (self.in_flight as f64, newly as f64);
        let in_slow_start = self.window < self.threshold;
        let is_limited = if in_slow_start { 2.0 * (pipe + new) > self.window } else { pipe + new + 1.0 >= self.window };
        match &mut self.algorithm {
            Algorithm::Bbr(bbr) => {
                if let Some(segment) = newest.filter(|newest| newest.delivered_before >= self.round_end) {
                    let rate = (self.delivered - segment.delivered_before) as f64;
                    bbr.min_rtt_s = self.min_rtt_us / 1e6;
                    bbr.round(now_us as f64 / 1e6, rate * 1e6 / (now_us - segment.sent_us).max(1) as f64, pipe);
                    self.round_end = self.delivered;
                }
                let ahead = f64::from(self.start.window) - 10.0;
                self.window = match self.timed_out {
                    _ if now_us < self.drained_us[1] => 4.0,
                    Some(_) => pipe + new,
                    None => bbr.window(self.delivered as f64 + ahead),
                };
            }
            // Proportional rate reduction (RFC 6937): down to the threshold over a round trip, then up to it.
            _ if self.recovery.is_some() => {
                let down = pipe + new * self.threshold / self.before_loss;
                self.window = if pipe > self.threshold { down } else { (pipe + 2.0 * new).min(self.threshold) };
            }
            _ if !is_limited => {}
            _ if in_slow_start => self.window += new,
            Algorithm::Reno => self.window += new / self.window,
            Algorithm::Cubic(cubic) => {
                self.window = cubic.grow(now_us as f64 / 1e6, self.srtt_us / 1e6, self.window, new);
            }
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times, never negative")]
fn whole(number: f64) -> u64 {
    number as u64
}
