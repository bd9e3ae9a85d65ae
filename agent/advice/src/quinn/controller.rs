//! The controller of one connection: it asks for the start, decides which window holds, and reports what the connection met. Does not
//! pace: quinn does, and the application by `Handle::pace`.

use std::any::Any;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerMetrics};
use spand_proto::report::LimitedBy;
use spand_proto::resume::{Jump, Phase, Transition};

use super::resuming::{Batch, Resuming};
use super::{Base, Handle};
use crate::{Adviser, Connection, Outcome, Pace, Pacing, Question};

/// CUBIC's constants (RFC 9438, sections 4.1 and 4.3), for a window that no loss has set.
const CUBIC_C: f64 = 0.4;
const CUBIC_ALPHA: f64 = 0.53;

/// Packets after the first round trip that still belong to the handshake: session tickets, settings and acknowledgements.
const HANDSHAKE_PACKETS: u64 = 3;

/// Most bytes of a packet that are no payload of its stream: header, frames' headers, an acknowledgement and the tag.
const PACKET_OVERHEAD: u64 = 48;

/// The controller.
pub(super) struct Started {
    pub(super) adviser: Adviser,
    pub(super) question: Question,
    pub(super) kind: Base,
    pub(super) handle: Handle,
    /// The size that the start was asked for with.
    pub(super) asked_bytes: Option<u64>,
    pub(super) mtu: u16,
    pub(super) stage: Stage,
    pub(super) base: Box<dyn Controller>,
    pub(super) connection: Option<Connection>,
    pub(super) flight: Option<Flight>,
    pub(super) met: Met,
}

/// Who decides about the window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// quinn's algorithm with its own first window, until the first round trip is measured.
    Waiting,
    /// The start, until the first congestion event.
    Own(Own),
    /// Careful Resume, until its last phase is over. In `Reconnaissance` and `Validating` quinn's algorithm goes on.
    Resume(Resuming),
    /// quinn's algorithm.
    Base,
}

/// The window of a start with a threshold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    window: u64,
    threshold: u64,
    /// Where congestion avoidance began: its window and moment.
    avoiding: Option<(u64, Instant)>,
    /// What New Reno has acknowledged since the last increase.
    acknowledged: u64,
}

/// The first flight of a start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    granted: u64,
    began: Instant,
    sent: u64,
    acknowledged: u64,
    lost: u64,
}

/// What the connection met so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    began: Option<Instant>,
    last_acknowledged: Option<Instant>,
    window_limited: Option<Instant>,
    recovery: Option<Instant>,
    acknowledged: u64,
    lost: u64,
    events: u32,
    loss_window: Option<u64>,
    srtt: Option<Duration>,
    rtt_min: Option<Duration>,
    /// The last phase of Careful Resume.
    resumed: Option<Phase>,
    /// Segments of the first flight that had left when it was over, and those that were lost.
    first_flight: Option<(u32, u32)>,
}

impl Own {
    fn on_ack(&mut self, bytes: u64, now: Instant, rtt: Duration, mtu: u64, kind: Base) {
        if self.window < self.threshold {
            self.window = (self.window + bytes).min(self.threshold.max(self.window));
            return;
        }
        let (from, began) = *self.avoiding.get_or_insert((self.window, now));
        if kind == Base::NewReno {
            self.acknowledged += bytes;
            if self.acknowledged >= self.window {
                self.acknowledged -= self.window;
                self.window += mtu;
            }
            return;
        }
        let time = now.duration_since(began).as_secs_f64();
        let rounds = time / rtt.as_secs_f64().max(1e-6);
        let grown = (CUBIC_C * time.powi(3)).max(CUBIC_ALPHA * rounds) * mtu as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float that is too large saturates"
        )]
        let target = from.saturating_add(grown as u64);
        // No more than one packet for each that is acknowledged.
        self.window = target.min(self.window + bytes).max(self.window);
    }
}

impl Started {
    /// Asks for the start, with the round trip that was just measured.
    fn ask(&mut self, now: Instant, rtt: Duration) {
        self.asked_bytes = self.handle.bytes();
        let arm = self.connection.as_ref().and_then(Connection::arm);
        // The window is counted in segments of the estimate's size. quinn's first packets are smaller, but take as many places in a queue.
        let question = Question { bytes: self.asked_bytes, arm, ..self.question.rtt(rtt) };
        self.handle.set_pace(None);
        // What an earlier answer reserved is free again.
        self.connection = None;
        let connection = self.adviser.start(&question);
        self.stage = Stage::Base;
        if let Ok(start) = connection.start() {
            let mtu = u64::from(self.mtu);
            let window = start.window_bytes.min(u64::from(start.window_segments) * mtu).max(2 * mtu);
            let pace = start.pacing.map(|pacing| {
                // Packets of the handshake's end leave with the burst, and take places in the same queue.
                let burst = pacing.burst_bytes / start.mss_bytes.max(1);
                let own = burst.saturating_sub(HANDSHAKE_PACKETS).max(2);
                let rest = |burst: u64| u64::from(start.window_segments).saturating_sub(burst).max(1);
                let bytes_per_s = pacing.bytes_per_s.saturating_mul(rest(own)) / rest(burst);
                let packet = mtu.saturating_sub(PACKET_OVERHEAD).max(1);
                Pace::new(Pacing { burst_bytes: own * packet, bytes_per_s }, packet, window, rtt)
            });
            self.handle.set_pace(pace);
            self.flight = Some(Flight { granted: window, began: now, sent: 0, acknowledged: 0, lost: 0 });
            match (start.resume, start.threshold_bytes) {
                (Some(resume), _) if self.kind != Base::Bbr => {
                    let jump = Jump {
                        window: resume.window_bytes / start.mss_bytes.max(1) * mtu,
                        saved_rtt: resume.rtt.into(),
                    };
                    // Its first flight is the host's own.
                    self.flight = None;
                    let (window, began) = (self.base.initial_window(), self.position(now));
                    self.stage = Stage::Resume(Resuming::new(window, jump, began, self.mtu));
                    self.base = self.kind.build(None, now, self.mtu);
                }
                (None, Some(threshold)) if self.kind != Base::Bbr => {
                    self.stage = Stage::Own(Own { window, threshold, avoiding: None, acknowledged: 0 });
                }
                _ if start.shape.keeps_window() => {}
                _ => self.base = self.kind.build(Some(window), now, self.mtu),
            }
        }
        self.connection = Some(connection);
    }

    /// Whether the first flight has not begun, and either the transfer's size has become known since the answer, or the answer holds no
    /// longer.
    fn answer_is_old(&self, now: Instant) -> bool {
        let (Some(flight), Some(connection)) = (self.flight, &self.connection) else { return false };
        let lifetime = connection.start().map(|start| start.lifetime).unwrap_or_default();
        let is_over = now.saturating_duration_since(flight.began) >= lifetime;
        flight.sent <= HANDSHAKE_PACKETS * u64::from(self.mtu) && (is_over || self.handle.bytes() != self.asked_bytes)
    }

    /// The first flight, where it is over by now.
    fn end_flight(&mut self) {
        let Some(flight) = self.flight else { return };
        let mostly_lost = flight.lost > flight.sent / 2 && flight.lost > 0;
        if flight.acknowledged + flight.lost < flight.granted && !mostly_lost {
            return;
        }
        self.flight = None;
        let (sent, lost) = (self.segments(flight.sent), self.segments(flight.lost));
        if let Some(connection) = &mut self.connection {
            connection.first_flight(sent, lost);
        }
        self.met.first_flight = Some((sent, lost));
    }

    /// A moment as a position.
    fn position(&self, at: Instant) -> u64 {
        let since = self.met.began.map_or(Duration::ZERO, |began| at.saturating_duration_since(began));
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Careful Resume after a batch of acknowledgements.
    fn resume(&mut self, now: Instant, flight: u64, app_limited: bool) {
        let Stage::Resume(mut resuming) = self.stage else { return };
        let batch = Batch {
            at: self.position(now),
            flight,
            rtt: self.met.srtt.unwrap_or_default().into(),
            min_rtt: self.met.rtt_min.unwrap_or_default().into(),
            window: self.base.window(),
            app_limited,
        };
        let connection = &mut self.connection;
        let transition = resuming.on_end_acks(&batch, || connection.as_mut().is_some_and(Connection::may_resume));
        self.stage = Stage::Resume(resuming);
        self.enter(transition, now);
    }

    /// A phase of Careful Resume has begun.
    fn enter(&mut self, transition: Option<Transition>, now: Instant) {
        let (Some(transition), Stage::Resume(resuming)) = (transition, self.stage) else { return };
        self.met.resumed = Some(resuming.machine.ended_in());
        if matches!(transition.phase, Phase::Normal | Phase::SafeRetreat)
            && let Some(connection) = &mut self.connection
        {
            connection.resumed(resuming.has_retreated());
        }
        match (transition.phase, transition.window, transition.ssthresh) {
            (Phase::Validating, Some(window), _) => self.base = self.kind.build(Some(window), now, self.mtu),
            (Phase::Normal, _, Some(threshold)) if self.kind != Base::Bbr => {
                let window = resuming.machine.window();
                let threshold = threshold.max(window);
                self.stage = Stage::Own(Own { window, threshold, avoiding: None, acknowledged: 0 });
            }
            (Phase::Normal, window, threshold) => {
                let window = window.or(threshold.map(|_| resuming.machine.window()));
                if window.is_some() {
                    self.base = self.kind.build(window, now, self.mtu);
                }
                self.stage = Stage::Base;
            }
            _ => {}
        }
    }

    /// Whether the window grows by slow start; `None` of an algorithm without a threshold.
    fn is_in_slow_start(&self) -> Option<bool> {
        match &self.stage {
            Stage::Own(own) => Some(own.window < own.threshold),
            Stage::Waiting | Stage::Base | Stage::Resume(_) => {
                let metrics = self.base.metrics();
                metrics.ssthresh.map(|threshold| metrics.congestion_window < threshold)
            }
        }
    }

    fn segments(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(u64::from(self.mtu.max(1)))).unwrap_or(u32::MAX)
    }

    fn outcome(&self) -> Outcome {
        let met = &self.met;
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let round = met.srtt.unwrap_or_default() * 2;
        let limited = met.window_limited.zip(met.last_acknowledged).map(|(limited, last)| last.duration_since(limited));
        let flight = met.first_flight.or(self.flight.map(|f| (self.segments(f.sent), self.segments(f.lost))));
        Outcome {
            acknowledged_bytes: met.acknowledged,
            duration_us: met.began.zip(met.last_acknowledged).map(|(began, last)| us(last.duration_since(began))),
            end_window_bytes: Some(self.window()),
            loss_window_bytes: met.loss_window,
            congestion_events: met.events,
            ended_in_slow_start: self.is_in_slow_start(),
            careful_resume: met.resumed,
            mss_bytes: Some(self.mtu.into()),
            srtt_us: met.srtt.map(us),
            rtt_min_us: met.rtt_min.map(us),
            lost_segments: self.segments(met.lost),
            first_flight_sent_segments: flight.map(|(sent, _)| sent),
            first_flight_lost_segments: flight.map(|(_, lost)| lost),
            limited_by: Some(match limited {
                Some(since) if since <= round => LimitedBy::Window,
                _ => LimitedBy::Application,
            }),
        }
    }
}

impl Controller for Started {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.met.began.get_or_insert(now);
        if self.answer_is_old(now)
            && let Some(rtt) = self.met.rtt_min
        {
            self.flight = None;
            self.ask(now, rtt);
            if self.flight.is_none() {
                self.base = self.kind.build(None, now, self.mtu);
            }
        }
        if let Some(flight) = &mut self.flight {
            flight.sent += bytes;
        }
        let position = self.position(now);
        if let Stage::Resume(resuming) = &mut self.stage {
            let transition = resuming.on_sent(position, bytes);
            self.enter(transition, now);
        }
        self.base.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        let own_rtt = now.saturating_duration_since(sent);
        let met = &mut self.met;
        met.acknowledged += bytes;
        met.last_acknowledged = Some(now);
        if !app_limited {
            met.window_limited = Some(now);
        }
        // quinn's estimator holds a guess until after the first acknowledgement.
        let is_first = met.rtt_min.is_none();
        met.rtt_min = Some(met.rtt_min.map_or(own_rtt, |least| least.min(own_rtt)));
        met.srtt = Some(if is_first { own_rtt } else { rtt.get() });
        if matches!(self.stage, Stage::Waiting) {
            self.ask(now, own_rtt);
        } else if let Some(flight) = &mut self.flight
            && sent >= flight.began
        {
            flight.acknowledged += bytes;
        }
        let position = self.position(sent);
        match &mut self.stage {
            Stage::Resume(resuming) => {
                resuming.on_ack(position, bytes);
                if !resuming.holds_window() {
                    self.base.on_ack(now, sent, bytes, app_limited, rtt);
                }
            }
            Stage::Own(own) => {
                if !app_limited {
                    own.on_ack(bytes, now, rtt.get(), self.mtu.into(), self.kind);
                }
            }
            Stage::Waiting | Stage::Base => self.base.on_ack(now, sent, bytes, app_limited, rtt),
        }
        self.end_flight();
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        self.base.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        self.resume(now, in_flight, app_limited);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        let (window, in_slow_start) = (self.window(), self.is_in_slow_start());
        let met = &mut self.met;
        met.lost += lost_bytes;
        let is_new = met.recovery.is_none_or(|since| sent > since);
        if is_new {
            met.recovery = Some(now);
            met.events += 1;
            // BBR has no threshold: its first event is taken for one of slow start.
            let in_avoidance = in_slow_start.map_or(met.events > 1, |slow_start| !slow_start);
            if in_avoidance {
                met.loss_window = Some(window);
            }
        }
        if let Some(flight) = &mut self.flight
            && sent >= flight.began
        {
            flight.lost += lost_bytes;
        }
        if let Stage::Resume(mut resuming) = self.stage {
            let phase = resuming.machine.phase();
            let transition = resuming.on_congestion(lost_bytes, is_persistent_congestion);
            self.stage = Stage::Resume(resuming);
            self.enter(transition, now);
            if phase != Phase::Reconnaissance && !is_persistent_congestion {
                self.end_flight();
                return;
            }
        }
        if matches!(self.stage, Stage::Own(_)) && !is_new && !is_persistent_congestion {
            // Of the event that the window has been reduced for already.
            self.end_flight();
            return;
        }
        if let Stage::Own(own) = self.stage {
            // quinn's algorithm goes on as if the window had always been its own.
            self.base = self.kind.build(Some(own.window), now, self.mtu);
            self.stage = Stage::Base;
        }
        self.base.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        self.end_flight();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu;
        if let Stage::Resume(resuming) = &mut self.stage {
            resuming.set_mtu(new_mtu);
        }
        self.base.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        match &self.stage {
            Stage::Own(own) => own.window,
            Stage::Resume(resuming) if resuming.holds_window() => resuming.machine.window(),
            Stage::Resume(_) | Stage::Waiting | Stage::Base => self.base.window(),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.base.metrics();
        metrics.congestion_window = self.window();
        if let Stage::Own(own) = &self.stage {
            metrics.ssthresh = Some(own.threshold);
        }
        metrics
    }

    /// For a path to the same host from another port. The report stays with the first one.
    fn clone_box(&self) -> Box<dyn Controller> {
        match &self.stage {
            Stage::Own(own) => self.kind.build(Some(own.window), Instant::now(), self.mtu),
            Stage::Resume(_) | Stage::Waiting | Stage::Base => self.base.clone_box(),
        }
    }

    fn initial_window(&self) -> u64 {
        self.base.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.report(&self.outcome());
        }
    }
}
