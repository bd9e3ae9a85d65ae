//! Careful Resume (RFC 9959): a connection begins as any other, and jumps to half of a saved window once its first data has arrived and
//! its round trip fits the saved one.
//!
//! Whole numbers throughout, as in the agent's kernel programs (`careful.h`), which repeat it to the bit. It serves every transport: windows
//! and amounts are in the caller's unit, segments or bytes, and positions only have to rise with what is sent (sequence or packet numbers).
//! Knows no clock, no socket, no saved parameters and no lifetime: who calls it does (`docs/explain/rfc9959.md`).

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use crate::units::Micros;

#[cfg(test)]
mod tests;

/// A round trip above the saved one times this shows another path (section 4.2.1).
pub const MOST_RTT_RATIO: u64 = 10;

/// A window is half of what was saved or validated: the jump, the retreat, and the threshold after it (sections 3.3 and 3.5, Beta).
pub const HALF: u64 = 2;

/// The phases of a connection (section 3).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// The initial window leaves, and the path is confirmed (section 3.2).
    #[default]
    Reconnaissance,
    /// The window is half of the saved one, and what it adds is sent paced (section 3.3).
    Unvalidated,
    /// What was sent so is acknowledged piece by piece (section 3.4).
    Validating,
    /// Congestion was detected before that: the path drains (section 3.5).
    SafeRetreat,
    /// Normal congestion control (section 3.7).
    Normal,
}

impl Phase {
    /// Its name in metrics and output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the congestion control may not change the window, up or down, other than for congestion.
    pub const fn holds_window(self) -> bool {
        matches!(self, Self::Unvalidated | Self::SafeRetreat)
    }
}

/// What a connection shows at an acknowledgement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ack {
    /// Now, by any clock that runs on.
    pub now: Micros,
    /// What is newly acknowledged, selective acknowledgements included.
    pub acked: u64,
    /// The position after what is acknowledged.
    pub newest: u64,
    /// The position after what was sent.
    pub sent: u64,
    /// What is in flight now.
    pub flight: u64,
    /// The current round trip.
    pub rtt: Micros,
    /// The smallest one of the connection; zero where none was measured.
    pub min_rtt: Micros,
    /// Whether the transport still repairs a loss or reacts to a mark.
    pub recovering: bool,
}

/// What a connection may jump to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Jump {
    /// At most half of the saved window, and within every other limit.
    pub window: u64,
    /// The saved round trip.
    pub saved_rtt: Micros,
}

/// A phase that has just begun, and what it makes of the congestion control's variables: `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transition {
    /// The phase.
    pub phase: Phase,
    /// The congestion window.
    pub window: Option<u64>,
    /// The most that the slow-start threshold may be.
    pub ssthresh: Option<u64>,
}

/// One connection's use of saved parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CarefulResume {
    phase: Phase,
    /// The last phase that was not normal.
    ended_in: Phase,
    initial_window: u64,
    /// What the next packet takes of a window.
    packet: u64,
    /// The position that the phase waits for: the end of the initial data, where the unvalidated data begins, or where it ends.
    boundary: u64,
    pipe_size: u64,
    /// The window of the jump, of the retreat, or at the end of the unvalidated data.
    window: u64,
    entered: Micros,
    rtt: Micros,
    saved_rtt: Micros,
}

impl CarefulResume {
    /// Of a connection with this initial window, whose initial data ends at this position. Its windows are in segments, until another
    /// size of a packet is set.
    pub const fn new(initial_window: u64, initial_end: u64) -> Self {
        Self {
            phase: Phase::Reconnaissance,
            ended_in: Phase::Reconnaissance,
            initial_window,
            packet: 1,
            boundary: initial_end,
            pipe_size: 0,
            window: 0,
            entered: Micros(0),
            rtt: Micros(0),
            saved_rtt: Micros(0),
        }
    }

    /// With windows of which a full-sized packet takes this much: one in bytes is full where no other packet fits, and rarely to the byte.
    #[must_use]
    pub const fn with_packet(self, packet: u64) -> Self {
        Self { packet, ..self }
    }

    /// The phase.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The last phase before normal congestion control, or the present one.
    pub const fn ended_in(&self) -> Phase {
        self.ended_in
    }

    /// What is known to fit the path: the flight before the jump, and what was acknowledged since.
    pub const fn pipe_size(&self) -> u64 {
        self.pipe_size
    }

    /// The window that the last transition set; 0 before the first.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// The time between two sends of `amount`, to be kept while the phase is [`Phase::Unvalidated`]; `None` in others (section 4.3.2).
    pub fn pacing_interval(&self, amount: u64) -> Option<Micros> {
        let interval = || (u128::from(self.rtt.0) * u128::from(amount)).div_ceil(u128::from(self.window.max(1)));
        (self.phase == Phase::Unvalidated).then(|| Micros(u64::try_from(interval()).unwrap_or(u64::MAX)))
    }

    /// Whether the connection may jump now: all initial data has arrived, and more is in flight or `waiting` than `allowed`, the window
    /// that normal congestion control gives (section 3.2, path confirmed).
    pub const fn may_jump(&self, ack: &Ack, waiting: u64, allowed: u64) -> bool {
        matches!(self.phase, Phase::Reconnaissance)
            && ack.newest >= self.boundary
            && !ack.recovering
            && ack.flight.saturating_add(waiting) > allowed
    }

    /// Jumps; where the round trip does not confirm the path, or the jump is no larger than what is there, normal congestion control goes
    /// on. `None` is no jump at all: no saved parameters, or others use them.
    pub fn jump(&mut self, jump: Option<Jump>, ack: &Ack, cwnd: u64) -> Option<Transition> {
        if self.phase != Phase::Reconnaissance {
            return None;
        }
        let Some(jump) =
            jump.filter(|jump| confirms(ack.min_rtt, jump.saved_rtt) && jump.window > cwnd.max(ack.flight))
        else {
            return Some(self.enter(Phase::Normal));
        };
        self.pipe_size = ack.flight;
        self.window = jump.window;
        self.boundary = ack.sent;
        (self.entered, self.rtt, self.saved_rtt) = (ack.now, ack.rtt, jump.saved_rtt);
        Some(self.enter(Phase::Unvalidated))
    }

    /// An acknowledgement.
    pub fn on_ack(&mut self, ack: &Ack) -> Option<Transition> {
        if matches!(self.phase, Phase::Reconnaissance | Phase::Normal) {
            return None;
        }
        self.pipe_size = self.pipe_size.saturating_add(ack.acked);
        match self.phase {
            Phase::Unvalidated if !is_above_half(ack.min_rtt, self.saved_rtt) => self.on_congestion(ack.sent),
            Phase::Unvalidated => {
                let full = self.is_full(ack.flight.saturating_add(ack.acked));
                (full || ack.newest > self.boundary || self.is_over(ack.now))
                    .then(|| self.validate(ack.sent, ack.flight))
            }
            Phase::Validating => (ack.newest >= self.boundary).then(|| self.enter(Phase::Normal)),
            Phase::SafeRetreat => (ack.newest >= self.boundary && !ack.recovering).then(|| self.enter(Phase::Normal)),
            Phase::Reconnaissance | Phase::Normal => None,
        }
    }

    /// Something was sent: `sent` and `flight` are those after it.
    pub fn on_sent(&mut self, now: Micros, sent: u64, flight: u64) -> Option<Transition> {
        let ends = self.phase == Phase::Unvalidated && (self.is_full(flight) || self.is_over(now));
        ends.then(|| self.validate(sent, flight))
    }

    /// A loss or a mark, or another sign that the path is not the saved one; `sent` is the position after what was sent.
    pub fn on_congestion(&mut self, sent: u64) -> Option<Transition> {
        match self.phase {
            Phase::Reconnaissance => Some(self.enter(Phase::Normal)),
            Phase::Unvalidated | Phase::Validating => {
                self.window = (self.pipe_size / HALF).max(self.initial_window);
                self.boundary = sent;
                Some(self.enter(Phase::SafeRetreat))
            }
            Phase::SafeRetreat | Phase::Normal => None,
        }
    }

    /// Persistent congestion, such as a retransmission timeout (section 3.6).
    pub fn on_timeout(&mut self) -> Option<Transition> {
        (self.phase != Phase::Normal).then(|| {
            self.phase = Phase::Normal;
            Transition { phase: Phase::Normal, window: None, ssthresh: None }
        })
    }

    /// No further packet fits the window of the jump.
    const fn is_full(&self, flight: u64) -> bool {
        flight.saturating_add(self.packet) > self.window
    }

    /// More than a round trip has passed since the jump.
    const fn is_over(&self, now: Micros) -> bool {
        now.0.saturating_sub(self.entered.0) > self.rtt.0
    }

    /// The end of the unvalidated data: what was not used of the window is taken back.
    fn validate(&mut self, sent: u64, flight: u64) -> Transition {
        if flight < self.initial_window || flight <= self.pipe_size {
            self.window = self.pipe_size.max(self.initial_window);
            return Transition { window: Some(self.window), ..self.enter(Phase::Normal) };
        }
        self.window = flight;
        self.boundary = sent;
        self.enter(Phase::Validating)
    }

    fn enter(&mut self, phase: Phase) -> Transition {
        let from = std::mem::replace(&mut self.phase, phase);
        if phase != Phase::Normal {
            self.ended_in = phase;
        }
        let retreated = phase == Phase::Normal && from == Phase::SafeRetreat;
        Transition {
            phase,
            window: (phase != Phase::Normal).then_some(self.window),
            ssthresh: retreated.then_some(self.pipe_size / HALF),
        }
    }
}

/// Whether a connection's smallest round trip fits the saved one (section 3.2 and 4.2.1).
fn confirms(min_rtt: Micros, saved_rtt: Micros) -> bool {
    is_above_half(min_rtt, saved_rtt) && min_rtt.0 <= saved_rtt.0.saturating_mul(MOST_RTT_RATIO)
}

/// Half a saved round trip would double the rate.
const fn is_above_half(min_rtt: Micros, saved_rtt: Micros) -> bool {
    min_rtt.0 > saved_rtt.0 / 2
}
