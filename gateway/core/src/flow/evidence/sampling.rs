//! Samples of the window at a loss or the end of a transfer, their state in between, and the reduction at a loss.

use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use super::Evidence;
use super::control::CongestionControl;
use super::rules::CLOCKED_LEAST;
use crate::counters::Ignored;
use crate::flow::observation::{CaState, LossKind, SenderSample};
use crate::flow::sequence::low_half;
use crate::types::{Limiter, Phase, SampleReason};

/// The transfer under way, since everything was last acknowledged: the state of its end sample (`docs/explain/definitions.md`, "Samples").
#[derive(Clone, Debug, Default)]
pub(super) struct Transfer {
    pub(super) lost: bool,
    /// As of the last new byte; `None` before the first.
    pub(super) end: Option<TransferEnd>,
    /// A new byte was sent since `end` was recorded: the sender's state has not changed since then.
    pub(super) end_waits: bool,
    /// Most bytes in the network.
    pub(super) pipe_max_bytes: u32,
}

/// The sender's state when it sent the last new byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferEnd {
    /// The largest pipe of its last two round trips in segments.
    pub(super) window_segments: f64,
    pub(super) limiter: Limiter,
    pub(super) phase: Phase,
}

impl Transfer {
    /// New bytes were sent, with `pipe` bytes in the network after them.
    pub(super) fn on_sent(&mut self, pipe_bytes: u64) {
        self.end_waits = true;
        self.pipe_max_bytes = self.pipe_max_bytes.max(u32::try_from(pipe_bytes).unwrap_or(u32::MAX));
    }

    /// The segment size changed: windows count segments.
    pub(super) fn resize(&mut self, before: u32, now: u32) {
        let bytes = u64::from(self.pipe_max_bytes) * u64::from(now) / u64::from(before.max(1));
        self.pipe_max_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }
}

/// State after the losses of a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AfterLoss {
    /// The sample of the last one, if its sender runs a certain congestion control.
    held: Option<SenderSample>,
    /// One gave a sample.
    sampled: bool,
    /// Upper bound, in bytes, of the sample that waits for the arrival of a lost first flight; 0 if none waits.
    arriving_at_most: f32,
    /// When the round trip under way began, and what was delivered by then: microseconds and bytes, the low half of each.
    round_began: (u32, u32),
    /// Most bytes delivered in the smallest round-trip time, by the round trips since.
    carried_bytes: u32,
}

impl AfterLoss {
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

impl Evidence {
    /// The sender detected congestion. `pipe_before` is as just before the first retransmission (or, without one, before the
    /// reduction).
    ///
    /// In congestion avoidance this gives the window just before it, less one segment; the error is the reason for no
    /// sample, for the caller to count.
    pub(crate) fn on_loss(&mut self, at: Timestamp, kind: LossKind, pipe_before: u64) -> Result<SenderSample, Ignored> {
        if self.mss == 0 {
            return Err(Ignored::NoMss);
        }
        self.settle_end();
        let was_known = self.known;
        let pipe = if self.ca.is_open() { self.settle_before_loss(at, pipe_before) } else { 0 };
        let sample = match self.ca {
            _ if !was_known => Err(Ignored::Midstream),
            CaState::Loss { .. } if kind != LossKind::Timeout => Err(Ignored::LossInRecovery),
            _ => self.loss_sample(at, kind, pipe),
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
        self.leaning.is_bbr() || (self.bbr.is_some() && self.leaning.may_be_bbr())
    }

    /// Whether its spacing is that of BBR, as far as is seen.
    fn seems_paced(&self) -> bool {
        self.pace_waits > 0.0 || self.leaning.bbr() > 0.0
    }

    /// The sample of the last loss waits for the arrival of the first flight. `sample`: that of the window alone.
    #[expect(clippy::cast_possible_truncation, reason = "a window's digits fit")]
    pub(crate) fn await_arrivals(&mut self, sample: Option<SenderSample>) {
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
    pub(crate) fn take_arrived(&mut self, arrived: Bytes) -> Option<SenderSample> {
        let at_most = std::mem::take(&mut self.after_loss.as_mut()?.arriving_at_most);
        if self.may_be_bbr() {
            return None;
        }
        Some(SenderSample {
            window: Window::from_bytes(f64::from(at_most).min(arrived.0 as f64))?,
            reason: SampleReason::FirstFlight,
            reduced_before: self.reduced,
        })
    }

    /// The transfer ended: everything is acknowledged and the sender was silent for one RTO, or closed.
    ///
    /// A loss-free one gives the window it reached, or, if the application or the receiver limited it, its largest pipe as a
    /// lower bound.
    pub(crate) fn on_transfer_end(&mut self) -> Result<SenderSample, Ignored> {
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
            let (carried, reason) = if self.leaning.is_bbr() {
                (paced, SampleReason::Rate)
            } else {
                (paced.max(f64::from(carried_bytes) / f64::from(self.mss)), SampleReason::Carried)
            };
            return if carried_bytes > 0 { self.sample(carried, reason) } else { Err(Ignored::EndAfterLoss) };
        }
        let Some(end) = transfer.end else { return Err(Ignored::AppLimited) };
        let shown = f64::from(transfer.pipe_max_bytes) / f64::from(self.mss);
        // BBR that starts up has three times its share in flight.
        let carried = || self.bbr.as_ref().and_then(|bbr| bbr.share(self.clock.reaction()));
        let unnamed = self.congestion_control() == CongestionControl::Unknown && self.leaning.may_be_bbr();
        let bounded = unnamed.then(carried).flatten();
        let is_bbr = self.leaning.is_bbr();
        let reached = if is_bbr { self.share_segments() } else { end.window_segments };
        let at_least = if is_bbr { reached.min(shown) } else { shown };
        let (reason, segments) = match end.limiter {
            // The pipe was growing, or restarts there after an idle time: the path may carry any multiple of it.
            Limiter::Window if end.phase == Phase::SlowStart => (SampleReason::EndSlowStart, at_least.ceil()),
            // The window limited it earlier, and not at the end.
            Limiter::Window if !is_bbr && 2.0 * reached < shown => (SampleReason::EndAppLimited, shown),
            Limiter::Window if (bounded.is_some() && self.seems_paced()) || self.holds_one_pace() => {
                (SampleReason::EndAppLimited, at_least)
            }
            // The acknowledgements that follow earn a segment (RFC 5681 section 3.1).
            Limiter::Window => (SampleReason::End, if is_bbr { reached } else { reached + 1.0 }),
            Limiter::Receiver => (SampleReason::EndReceiverLimited, at_least),
            Limiter::Application | Limiter::Unknown => (SampleReason::EndAppLimited, at_least),
        };
        self.sample(segments.min(bounded.unwrap_or(f64::INFINITY)), reason)
    }

    /// A sample that waited for evidence: of a loss, which congestion control reduced; of BBR, its rate.
    pub(crate) fn take_sample(&mut self, at: Timestamp) -> Option<SenderSample> {
        let flavour = self.congestion_control();
        if let Some(after_loss) = &mut self.after_loss
            && let Some(held) = after_loss.held
        {
            let starting = self.bbr.as_ref().is_some_and(|bbr| bbr.starting());
            let doubtful = self.bbr.is_some() && self.leaning.may_be_bbr();
            let holds = match flavour {
                CongestionControl::Bbr if starting => None,
                CongestionControl::Bbr => Some(false),
                _ if doubtful => None,
                CongestionControl::Unknown | CongestionControl::LossBased => Some(true),
            };
            if let Some(holds) = holds {
                after_loss.held = None;
                after_loss.sampled |= holds;
                return holds.then_some(held);
            }
        }
        if flavour != CongestionControl::Bbr || !self.ca.is_open() || !self.known {
            return None;
        }
        let bbr = self.bbr.as_mut()?;
        if !bbr.take_rate_due(at) {
            return None;
        }
        let reason = if bbr.take_answered() { SampleReason::Rate } else { SampleReason::Carried };
        self.sample(self.share_segments(), reason).ok()
    }

    /// Weighs the last round trips before the sender reduces; returns the largest pipe of them in segments.
    fn settle_before_loss(&mut self, at: Timestamp, pipe_before: u64) -> u32 {
        // The acknowledgement that the loss answers has reached the sender.
        self.clock.arrive(at);
        self.growth.on_ack(self.delivered_segments());
        let recent = self.rounds.recent();
        let unknown = self.clock.unknown_bytes(self.delivered_bytes);
        let pipe = self.recent_pipe(pipe_before.saturating_add(unknown));
        if !recent.ran_dry && !recent.receiver_full && recent.pipe_max_segments > 0 {
            self.known |= f64::from(recent.clocked) >= CLOCKED_LEAST * f64::from(recent.full_sized);
            self.weigh_back_off(at, pipe);
        }
        pipe
    }

    /// In congestion avoidance what was in flight; of BBR its share, since a rate at which segments were delivered was not too large.
    ///
    /// The sample of a sender that may run BBR waits until its congestion control is identified: the flight of BBR is up to twice its
    /// share.
    fn loss_sample(&mut self, at: Timestamp, kind: LossKind, pipe: u32) -> Result<SenderSample, Ignored> {
        let reason = match kind {
            LossKind::Timeout => return Err(Ignored::Timeout),
            LossKind::Ecn => SampleReason::Ecn,
            LossKind::FastRetransmit | LossKind::TailLossProbe => SampleReason::Loss,
        };
        if self.ca.is_reducing() {
            return Err(Ignored::LossInRecovery);
        }
        let starting = self.bbr.as_ref().is_some_and(|bbr| bbr.starting());
        if self.leaning.is_bbr() && !starting {
            let share = self.bbr.as_ref().and_then(|bbr| bbr.share(self.clock.reaction()));
            return self.sample(share.ok_or(Ignored::UnknownControl)?, reason);
        }
        if self.rounds.recent().pipe_max_segments == 0 && pipe < u32::from(self.pipe_at_loss) / 2 {
            // Nothing new was sent since the last repair, and a part of the reduced window is left: this loss is of the same flight.
            return Err(Ignored::LossInRecovery);
        }
        if self.growth.is_slow_start() {
            return Err(Ignored::SlowStartLoss);
        }
        let waits = self.may_be_bbr();
        let sample = self.sample((f64::from(pipe) - 1.0).max(1.0), reason)?;
        if waits {
            let delivered_bytes = self.delivered_bytes;
            let after_loss = self.after_loss.get_or_insert_with(|| Box::new(AfterLoss::began(at, delivered_bytes)));
            after_loss.held = Some(sample);
            return Err(Ignored::UnknownControl);
        }
        Ok(sample)
    }

    fn sample(&self, segments: f64, reason: SampleReason) -> Result<SenderSample, Ignored> {
        let window = self.bytes(segments).ok_or(Ignored::Inexact)?;
        Ok(SenderSample { window, reason, reduced_before: self.reduced })
    }

    fn back_off(&mut self, kind: LossKind, pipe_before: u64) {
        self.reduced = true;
        if kind == LossKind::Timeout {
            self.growth.restart();
            if let Some(bbr) = &mut self.bbr {
                bbr.time_out();
            }
            self.ca = CaState::Loss { advanced: false };
            return;
        }
        if !self.ca.is_reducing() {
            let pipe = if self.ca.is_open() { self.recent_pipe(pipe_before) } else { 0 };
            self.pipe_at_loss = u16::try_from(pipe).unwrap_or(u16::MAX);
            self.rounds_since_loss = 0;
            self.growth.lose();
            if let Some(bbr) = &mut self.bbr {
                bbr.lose();
            }
        }
        match kind {
            // The probe's acknowledgement ends the episode at once.
            LossKind::TailLossProbe => self.leave_recovery(),
            LossKind::Ecn => self.ca = CaState::Cwr,
            LossKind::FastRetransmit | LossKind::Timeout => self.ca = CaState::Recovery,
        }
    }
}
