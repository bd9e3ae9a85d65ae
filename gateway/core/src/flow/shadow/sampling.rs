//! Samples of the window at a loss or the end of a transfer, their state in between, and the reduction at a loss.

use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use super::cwnd::{INITIAL, Reduction};
use super::flavour::Flavour;
use super::observation::{LossKind, ShadowSample};
use super::{Shadow, State};
use crate::counters::Ignored;
use crate::flow::sequence::low_half;
use crate::types::{Limiter, Phase, SampleReason};

/// Part of the full-sized segments that is ACK-clocked, from which on the pipe before a loss was the window.
const CLOCKED_BEFORE_LOSS: f64 = 0.8;

/// The transfer under way, since everything was last acknowledged: the state of its end sample (`docs/definitions.md`, "Samples").
#[derive(Clone, Debug, Default)]
pub(super) struct Transfer {
    pub(super) lost: bool,
    /// As of the last new byte; `None` before the first.
    pub(super) end: Option<TransferEnd>,
    /// A new byte was sent since `end` was recorded: the sender's state has not changed since then.
    pub(super) end_waits: bool,
    /// Segments acknowledged at the tap but not yet at the sender when it sent the last new byte.
    pub(super) ahead: u32,
    /// Most bytes in the network.
    pub(super) pipe_max_bytes: u32,
}

/// The sender's state when it sent the last new byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferEnd {
    /// Its window in segments, plus the growth in congestion avoidance since.
    pub(super) window_segments: f64,
    pub(super) limiter: Limiter,
    pub(super) phase: Phase,
}

impl Transfer {
    /// New bytes were sent, with `pipe` bytes in the network after them; `ahead`: see [`Self::ahead`].
    pub(super) fn on_sent(&mut self, pipe_bytes: u64, ahead: u32) {
        self.end_waits = true;
        self.ahead = ahead;
        self.pipe_max_bytes = self.pipe_max_bytes.max(u32::try_from(pipe_bytes).unwrap_or(u32::MAX));
    }

    /// The segment size changed: windows count segments.
    pub(super) fn resize(&mut self, before: u32, now: u32) {
        let bytes = u64::from(self.pipe_max_bytes) * u64::from(now) / u64::from(before.max(1));
        self.pipe_max_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Growth in congestion avoidance. (The last acknowledgements of a slow start double the window with no data left
    /// to send; that window was never used, so it does not count.)
    pub(super) fn on_growth(&mut self, segments: f64) {
        if let Some(end) = &mut self.end {
            end.window_segments += segments;
        }
    }
}

/// State after the losses of a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AfterLoss {
    /// The sample of the last one, if its sender runs a certain congestion control.
    held: Option<HeldSample>,
    /// One gave a sample.
    sampled: bool,
    /// Upper bound, in bytes, of the sample that waits for the arrival of a lost first flight; 0 if none waits.
    arriving_at_most: f32,
    /// The first round trip of the recovery under way was judged ([`Shadow::weigh_reduction`]).
    judged: bool,
    /// When the round trip under way began, and what was delivered by then: microseconds and bytes, the low half of each.
    round_began: (u32, u32),
    /// Most bytes delivered in the smallest round-trip time, by the round trips since.
    carried_bytes: u32,
}

/// A sample that waits until its congestion control is identified.
#[derive(Clone, Copy, Debug)]
struct HeldSample {
    sample: ShadowSample,
    /// Valid for CUBIC alone: Reno was in slow start, where a loss gives no sample.
    of_cubic: bool,
}

impl AfterLoss {
    /// Whether the recovery under way was not judged yet; it is from now on.
    pub(super) fn judges(&mut self) -> bool {
        !std::mem::replace(&mut self.judged, true)
    }

    fn began(at: Timestamp, delivered_bytes: u64) -> Self {
        Self { round_began: (low_half(at.0 / 1_000), low_half(delivered_bytes)), ..Self::default() }
    }

    /// A round trip ends with `delivered_bytes` delivered in all.
    pub(super) fn count_round(&mut self, at: Timestamp, delivered_bytes: u64, min_rtt: Micros) {
        let now = (low_half(at.0 / 1_000), low_half(delivered_bytes));
        let before = std::mem::replace(&mut self.round_began, now);
        let (us, bytes) = (now.0.wrapping_sub(before.0), now.1.wrapping_sub(before.1));
        if u64::from(us) >= min_rtt.0 {
            let carried = u64::from(bytes) * min_rtt.0 / u64::from(us.max(1));
            self.carried_bytes = self.carried_bytes.max(u32::try_from(carried).unwrap_or(0));
        }
    }
}

impl Shadow {
    /// The sender detected congestion. `pipe_before` is as just before the first retransmission (or, without one, before the
    /// reduction).
    ///
    /// In congestion avoidance this gives the window just before it, less one segment; the error is the reason for no
    /// sample, for the caller to count.
    pub fn on_loss(&mut self, at: Timestamp, kind: LossKind, pipe_before: u64) -> Result<ShadowSample, Ignored> {
        if self.mss == 0 {
            return Err(Ignored::NoMss);
        }
        self.settle_end();
        let was_known = self.known;
        if self.state == State::Open && kind != LossKind::Timeout {
            self.settle_before_loss(at, pipe_before);
        }
        let sample = match self.state {
            _ if !was_known => Err(Ignored::Midstream),
            State::Loss { .. } if kind != LossKind::Timeout => Err(Ignored::LossInRecovery),
            _ => self.loss_sample(at, kind),
        };
        self.transfer.lost = true;
        self.rounds.note_loss();
        self.count_waiting_pace();
        let delivered_bytes = self.delivered_bytes;
        let after_loss = self.after_loss.get_or_insert_with(|| Box::new(AfterLoss::began(at, delivered_bytes)));
        after_loss.sampled |= sample.is_ok();
        self.back_off(kind, pipe_before);
        sample
    }

    /// Whether it runs BBR, or may run it since it paces.
    pub fn may_be_bbr(&self) -> bool {
        self.leaning.best() == Flavour::Bbr || (self.bbr.is_some() && self.leaning.may_be_bbr())
    }

    /// Whether its spacing is that of BBR, as far as is seen.
    fn seems_paced(&self) -> bool {
        self.pace_waits > 0.0 || self.leaning.bbr() > 0.0
    }

    /// The sample of the last loss waits for the arrival of the first flight. `sample`: that of the window alone.
    #[expect(clippy::cast_possible_truncation, reason = "a window's digits fit")]
    pub fn await_arrivals(&mut self, sample: Option<ShadowSample>) {
        if let Some(after_loss) = &mut self.after_loss {
            (after_loss.held, after_loss.sampled) = (None, true);
            let at_most = sample.map_or(f32::INFINITY, |sample| sample.window.bytes() as f32);
            let before = after_loss.arriving_at_most;
            after_loss.arriving_at_most = if before > 0.0 { before.min(at_most) } else { at_most };
        }
    }

    /// Whether a sample waits for that.
    pub fn awaits_arrivals(&self) -> bool {
        self.after_loss.as_ref().is_some_and(|after_loss| after_loss.arriving_at_most > 0.0)
    }

    /// The sample that waited: `arrived` bytes of the first flight were delivered. `None` if the sender may run BBR.
    pub fn take_arrived(&mut self, arrived: Bytes) -> Option<ShadowSample> {
        let at_most = std::mem::take(&mut self.after_loss.as_mut()?.arriving_at_most);
        if self.may_be_bbr() {
            return None;
        }
        Some(ShadowSample {
            window: Window::from_bytes(f64::from(at_most).min(arrived.0 as f64))?,
            reason: SampleReason::FirstFlight,
            phase: Phase::CongestionAvoidance,
            sawtooth: self.sawtooth(),
        })
    }

    /// The transfer ended: everything is acknowledged and the sender was silent for one RTO, or closed.
    ///
    /// A loss-free one gives the window it reached, or, if the application or the receiver limited it, its largest pipe as a
    /// lower bound.
    pub fn on_transfer_end(&mut self, _at: Timestamp) -> Result<ShadowSample, Ignored> {
        self.settle_end();
        let (transfer, after_loss) = (std::mem::take(&mut self.transfer), self.after_loss.take());
        if self.mss == 0 {
            return Err(Ignored::NoMss);
        }
        if !self.known {
            return Err(Ignored::Midstream);
        }
        if transfer.lost {
            let carried_bytes = after_loss.filter(|after| !after.sampled).map_or(0, |after| after.carried_bytes);
            // BBR also measured the delivery rate before the loss.
            let paced = self.bbr.as_ref().and_then(|bbr| bbr.share(self.clock.reaction())).unwrap_or(0.0);
            // The loss was the path's answer.
            let (carried, reason) = match self.leaning.best() {
                Flavour::Bbr => (paced, SampleReason::Rate),
                _ => (paced.max(f64::from(carried_bytes) / f64::from(self.mss)), SampleReason::Carried),
            };
            return if carried_bytes > 0 {
                self.sample(carried, reason, Phase::CongestionAvoidance)
            } else {
                Err(Ignored::EndAfterLoss)
            };
        }
        let Some(end) = transfer.end else { return Err(Ignored::AppLimited) };
        let reached = match self.leaning.best() {
            Flavour::Bbr => self.share_segments(),
            _ => end.window_segments,
        };
        let shown = f64::from(transfer.pipe_max_bytes) / f64::from(self.mss);
        // BBR that starts up has three times its share in flight.
        let carried = || self.bbr.as_ref().and_then(|bbr| bbr.share(self.clock.reaction()));
        let unnamed = self.flavour() == Flavour::Unknown && self.leaning.may_be_bbr();
        let bounded = unnamed.then(carried).flatten();
        let (reason, segments) = match end.limiter {
            // The window was growing, or restarts there after an idle time: the path may carry any multiple of it.
            Limiter::Window if end.phase == Phase::SlowStart => {
                // The path carried what was in flight; a larger window is an assumption. A flight within the initial window is no test of
                // the path, so the window counts there.
                let tried = shown > f64::from(INITIAL);
                (SampleReason::EndSlowStart, if tried { reached.min(shown.ceil()) } else { reached })
            }
            Limiter::Window if (bounded.is_some() && self.seems_paced()) || self.holds_one_pace() => {
                (SampleReason::EndAppLimited, reached.min(shown))
            }
            Limiter::Window => (SampleReason::End, reached),
            Limiter::Receiver => (SampleReason::EndReceiverLimited, reached.min(shown)),
            Limiter::Application | Limiter::Unknown => (SampleReason::EndAppLimited, reached.min(shown)),
        };
        self.sample(segments.min(bounded.unwrap_or(f64::INFINITY)), reason, end.phase)
    }

    /// A sample that waited for evidence: of a loss, which congestion control reduced; of BBR, its rate.
    pub fn take_sample(&mut self, at: Timestamp) -> Option<ShadowSample> {
        let flavour = self.flavour();
        if let Some(after_loss) = &mut self.after_loss
            && let Some(held) = after_loss.held
        {
            let starting = self.bbr.as_ref().is_some_and(|bbr| bbr.starting());
            let doubtful = self.bbr.is_some() && self.leaning.may_be_bbr();
            let holds = match flavour {
                Flavour::Bbr if starting => None,
                Flavour::Bbr => Some(false),
                _ if doubtful => None,
                Flavour::Unknown if held.of_cubic => None,
                Flavour::Reno => Some(!held.of_cubic),
                // Reno or CUBIC: the sample is the same.
                Flavour::Unknown | Flavour::Cubic => Some(true),
            };
            if let Some(holds) = holds {
                after_loss.held = None;
                after_loss.sampled |= holds;
                return holds.then_some(held.sample);
            }
        }
        if flavour != Flavour::Bbr || self.state != State::Open || !self.known {
            return None;
        }
        let bbr = self.bbr.as_mut()?;
        if !bbr.take_rate_due(at) {
            return None;
        }
        let reason = if bbr.take_answered() { SampleReason::Rate } else { SampleReason::Carried };
        self.sample(self.share_segments(), reason, Phase::CongestionAvoidance).ok()
    }

    /// Corrects the replicas by the last round trips before they reduce.
    fn settle_before_loss(&mut self, at: Timestamp, pipe_before: u64) {
        // The acknowledgement that the loss answers has reached the sender.
        self.arrive(at);
        let recent = self.rounds.recent();
        let (least_unknown, unknown) = self.clock.unknown_bytes(self.delivered_bytes);
        let ahead = self.packets(unknown);
        let pipe = self.recent_pipe(pipe_before.saturating_add(least_unknown));
        self.weigh_raise(pipe);
        let (mut reno, mut cubic) = (0.0, 0.0);
        let clocked = f64::from(recent.clocked) >= CLOCKED_BEFORE_LOSS * f64::from(recent.full_sized);
        if clocked && recent.full_sized > 0 && !recent.receiver_full && !recent.ran_dry {
            let srtt = self.rto.srtt();
            reno += self.reno.lower(pipe, ahead, srtt);
            cubic += self.cubic.lower(pipe, ahead, srtt);
            self.known = true;
        }
        self.compare(reno, cubic);
        if !recent.ran_dry && !recent.receiver_full && recent.pipe_max_segments > 0 {
            self.weigh_back_off(at, pipe);
        }
    }

    /// In congestion avoidance the window just before; of BBR its share, since a rate at which segments were delivered was not too large.
    ///
    /// While the congestion control is not identified, the sample waits: a sender that paces may run BBR, whose window does not show its
    /// share. Before its first loss, a Reno sender may be in slow start where a CUBIC sender has left it.
    fn loss_sample(&mut self, at: Timestamp, kind: LossKind) -> Result<ShadowSample, Ignored> {
        let reason = match kind {
            LossKind::Timeout => return Err(Ignored::Timeout),
            LossKind::Ecn => SampleReason::Ecn,
            LossKind::FastRetransmit | LossKind::TailLossProbe => SampleReason::Loss,
        };
        if matches!(self.state, State::Recovery(_)) {
            return Err(Ignored::LossInRecovery);
        }
        let flavour = self.flavour();
        let starting = self.bbr.as_ref().is_some_and(|bbr| bbr.starting());
        if flavour == Flavour::Bbr && !starting {
            let share = self.bbr.as_ref().and_then(|bbr| bbr.share(self.clock.reaction()));
            return self.sample(share.ok_or(Ignored::UnknownControl)?, reason, Phase::CongestionAvoidance);
        }
        let (window, in_slow_start) = match self.leaning.loss_based() {
            Flavour::Reno => (self.reno.cwnd.segments(), self.reno.in_slow_start()),
            _ if flavour == Flavour::Cubic => (self.cubic.cwnd.segments(), self.cubic.cwnd.in_slow_start()),
            _ => (self.cubic.cwnd.segments(), self.cubic.in_slow_start()),
        };
        if in_slow_start {
            return Err(Ignored::SlowStartLoss);
        }
        let waits = self.may_be_bbr();
        let sample = self.sample((window - 1.0).max(1.0), reason, Phase::CongestionAvoidance)?;
        let of_cubic = self.reno.in_slow_start() && !matches!(flavour, Flavour::Cubic | Flavour::Reno);
        if waits || of_cubic {
            let delivered_bytes = self.delivered_bytes;
            let after_loss = self.after_loss.get_or_insert_with(|| Box::new(AfterLoss::began(at, delivered_bytes)));
            after_loss.held = Some(HeldSample { sample, of_cubic });
            return Err(Ignored::UnknownControl);
        }
        Ok(sample)
    }

    fn sample(&self, segments: f64, reason: SampleReason, phase: Phase) -> Result<ShadowSample, Ignored> {
        let window = self.bytes(segments).ok_or(Ignored::Inexact)?;
        Ok(ShadowSample { window, reason, phase, sawtooth: self.sawtooth() })
    }

    #[expect(clippy::cast_possible_truncation, reason = "a window's digits fit")]
    fn back_off(&mut self, kind: LossKind, pipe_before: u64) {
        let before = self.best_segments();
        self.by_ecn = kind == LossKind::Ecn;
        if kind == LossKind::Timeout {
            // Data acknowledged since a timeout makes a new window (`tcp_enter_loss`).
            let reduces = match self.state {
                State::Open => true,
                State::Recovery(_) => false,
                State::Loss { advanced, .. } => advanced,
            };
            self.reno.time_out(reduces);
            self.cubic.time_out(reduces);
            if let Some(bbr) = &mut self.bbr {
                bbr.time_out();
            }
            self.state = State::Loss { until: self.nxt, advanced: false };
        } else if !matches!(self.state, State::Recovery(_)) {
            let pipe = if self.state == State::Open { self.recent_pipe(pipe_before) } else { 0 };
            self.pipe_at_loss = u16::try_from(pipe).unwrap_or(u16::MAX);
            self.rounds_since_loss = 0;
            (self.reduction, self.reached) = (Reduction::default(), 0);
            if let Some(after_loss) = &mut self.after_loss {
                after_loss.judged = false;
            }
            self.reno.enter_recovery();
            self.cubic.enter_recovery();
            if let Some(bbr) = &mut self.bbr {
                bbr.lose();
            }
            self.state = State::Recovery(self.nxt);
            if kind == LossKind::TailLossProbe {
                // The probe's acknowledgement ends the episode at once.
                self.leave_recovery();
            }
        }
        let after = match self.leaning.best() {
            Flavour::Reno => f64::from(self.reno.cwnd.threshold()),
            Flavour::Cubic => f64::from(self.cubic.cwnd.threshold()),
            Flavour::Bbr | Flavour::Unknown => before,
        };
        self.tooth = Some((after as f32, before as f32));
        self.clock.break_run();
    }
}
