//! What a loss or the end of a transfer says about the window, and what a loss does to it.

use spand_proto::units::Timestamp;

use super::flavour::Flavour;
use super::observation::{LossKind, ShadowSample};
use super::reduction::Reduction;
use super::{Shadow, State};
use crate::counters::Ignored;
use crate::flow::sample::{Limiter, Phase, SampleReason};

/// Part of the full-sized segments that acknowledgements let go, from which on the pipe before a loss was the window.
const CLOCKED_BEFORE_LOSS: f64 = 0.8;

impl Shadow {
    /// The sender learnt of congestion. `pipe_before` is as just before the first retransmission (or, without one, before the
    /// reduction), `ever_lost` all bytes deemed lost so far.
    ///
    /// In congestion avoidance this gives the window just before it, less one segment; the error says why there is no
    /// sample, for the caller to count.
    pub fn on_loss(
        &mut self,
        at: Timestamp,
        kind: LossKind,
        pipe_before: u64,
        ever_lost: u64,
    ) -> Result<ShadowSample, Ignored> {
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
            _ => self.loss_sample(kind),
        };
        self.transfer.lost = true;
        self.back_off(at, kind, pipe_before, ever_lost);
        sample
    }

    /// The transfer ended: everything is acknowledged and the sender was silent for one RTO, or closed.
    ///
    /// A loss-free one gives the window it reached, or, where the application or the receiver held it back, what it had
    /// in the network at most, as a lower bound.
    pub fn on_transfer_end(&mut self, _at: Timestamp) -> Result<ShadowSample, Ignored> {
        self.settle_end();
        let transfer = std::mem::take(&mut self.transfer);
        if self.mss == 0 {
            return Err(Ignored::NoMss);
        }
        if !self.known {
            return Err(Ignored::Midstream);
        }
        if transfer.lost {
            return Err(Ignored::EndAfterLoss);
        }
        let Some(end) = transfer.end else { return Err(Ignored::AppLimited) };
        let reached = match self.leaning.best() {
            Flavour::Bbr => self.share_segments(),
            _ => end.window_segments,
        };
        let shown = f64::from(transfer.pipe_max_bytes) / f64::from(self.mss);
        let (reason, segments) = match end.limiter {
            Limiter::Window => (SampleReason::End, reached),
            Limiter::Receiver => (SampleReason::EndReceiverLimited, reached.min(shown)),
            Limiter::Application | Limiter::Unknown => (SampleReason::EndAppLimited, reached.min(shown)),
        };
        self.sample(segments, reason, end.phase)
    }

    /// What the last round trips show corrects the replicas before they back off.
    fn settle_before_loss(&mut self, at: Timestamp, pipe_before: u64) {
        // The acknowledgement that the loss answers is with the sender by now.
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

    fn loss_sample(&self, kind: LossKind) -> Result<ShadowSample, Ignored> {
        let reason = match kind {
            LossKind::Timeout => return Err(Ignored::Timeout),
            LossKind::Ecn => SampleReason::Ecn,
            LossKind::FastRetransmit | LossKind::TailLossProbe => SampleReason::Loss,
        };
        let phase = self.phase();
        match phase {
            Phase::SlowStart => Err(Ignored::SlowStartLoss),
            Phase::Recovery => Err(Ignored::LossInRecovery),
            Phase::CongestionAvoidance => {
                // A window that met a loss was one segment too large; a rate at which segments were delivered was not.
                let window = match self.leaning.best() {
                    Flavour::Bbr => self.share_segments(),
                    _ => (self.best_segments() - 1.0).max(1.0),
                };
                self.sample(window, reason, phase)
            }
        }
    }

    fn sample(&self, segments: f64, reason: SampleReason, phase: Phase) -> Result<ShadowSample, Ignored> {
        let window = self.bytes(segments).ok_or(Ignored::Inexact)?;
        Ok(ShadowSample { window, reason, phase, sawtooth: self.sawtooth() })
    }

    #[expect(clippy::cast_possible_truncation, reason = "a window's digits fit")]
    fn back_off(&mut self, at: Timestamp, kind: LossKind, pipe_before: u64, ever_lost: u64) {
        let before = self.best_segments();
        self.by_mark = kind == LossKind::Ecn;
        if kind == LossKind::Timeout {
            // What was acknowledged since a timeout counts as a new window (`tcp_enter_loss`).
            let anew = match self.state {
                State::Open => true,
                State::Recovery(_) => false,
                State::Loss { advanced, .. } => advanced,
            };
            self.reno.time_out(anew);
            self.cubic.time_out(anew);
            if let Some(bbr) = &mut self.bbr {
                bbr.time_out(at, ever_lost);
            }
            self.state = State::Loss { until: self.nxt, advanced: false };
        } else if !matches!(self.state, State::Recovery(_)) {
            let pipe = if self.state == State::Open { self.recent_pipe(pipe_before) } else { 0 };
            self.pipe_at_loss = u16::try_from(pipe).unwrap_or(u16::MAX);
            self.rounds_since_loss = 0;
            (self.reduction, self.reached) = (Reduction::default(), 0);
            self.reno.enter_recovery();
            self.cubic.enter_recovery();
            if let Some(bbr) = &mut self.bbr {
                bbr.lose(self.by_mark);
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
