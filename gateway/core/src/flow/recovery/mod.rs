//! Classifies a retransmission: duplicate acknowledgements, timeout, tail loss probe, or no loss; and ECN echoes.
//!
//! One loss event per window of data: everything repaired up to the recovery point belongs to the event that set it
//! (RFC 6675 section 5, RFC 6582).

mod repeat;

use spand_proto::units::Timestamp;

use crate::flow::maybe::MaybeCount;
use crate::flow::observation::{AckKind, AckSample, CaState, LossKind};

pub(crate) use self::repeat::{Repeat, Standing};

/// Duplicate acknowledgements that start a fast retransmit (RFC 5681 section 3.2).
const DUP_THRESH: u16 = 3;
/// A smaller flight, in full segments, cannot give three duplicates, so fewer suffice (RFC 5827).
const SMALL_FLIGHT: u64 = 4;

/// What an acknowledgement changed in recovery.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Turn {
    /// A tail loss probe repaired a loss.
    pub(crate) probe_loss: bool,
    /// The recovery point is acknowledged.
    pub(crate) ended: bool,
    /// The event that the sender reacts to at this acknowledgement: an ECN echo, losses above the recovery point that it already
    /// retransmitted, or after a timeout the loss of a retransmission.
    pub(crate) began: Option<LossKind>,
}

/// One sender's loss recovery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    state: CaState,
    /// Recovery or reduction ends when this is acknowledged (`tp->high_seq`).
    point: u64,
    /// Until then packets at the tap were sent before the acknowledgement that set the point arrived.
    point_moves_until: Timestamp,
    duplicates: u16,
    /// `SND.NXT` at a tail loss probe whose outcome is open (RFC 8985 section 7).
    probe: MaybeCount,
    /// It sends ECN-capable segments, so it reacts to ECN echoes.
    ecn_capable: bool,
}

impl Recovery {
    /// Its state.
    pub(crate) fn state(&self) -> CaState {
        self.state
    }

    /// Whether the sender is in recovery, or due to enter it, after everything before `una` is acknowledged. A recovery ends before further
    /// losses are detected (`tcp_fastretrans_alert`).
    pub(crate) fn outlasts(&self, una: u64) -> bool {
        (self.state.is_repairing() || self.state == CaState::Due) && una < self.point
    }

    /// Classifies a retransmission; returns a loss event once per window of data.
    pub(crate) fn repeated(&mut self, repeat: &Repeat) -> Option<LossKind> {
        if repeat.end <= repeat.una {
            // Already acknowledged: a spurious retransmission.
            return None;
        }
        let timed_out = repeat.is_after_silence();
        if self.state.is_repairing() {
            let no_advance = self.state == CaState::Loss { advanced: false };
            let by_timer = repeat.start <= repeat.una && (timed_out || repeat.is_by_timer_alone(no_advance));
            return by_timer.then(|| self.begin(LossKind::Timeout, repeat));
        }
        if !repeat.unseen && self.is_tail_probe(repeat) {
            self.probe = MaybeCount::some(repeat.nxt);
            return None;
        }
        let small_flight = repeat.nxt.saturating_sub(repeat.una) < SMALL_FLIGHT * repeat.mss.max(1);
        let hinted = repeat.sacked > 0
            || repeat.standing == Standing::Lost
            || self.state == CaState::Due
            || self.duplicates >= DUP_THRESH
            || (self.duplicates > 0 && (small_flight || !repeat.unseen));
        if timed_out {
            Some(self.begin(LossKind::Timeout, repeat))
        } else if hinted {
            Some(self.begin(LossKind::FastRetransmit, repeat))
        } else if repeat.unseen {
            // Nothing shows that it was missing: it was only late.
            None
        } else {
            Some(self.begin(LossKind::Timeout, repeat))
        }
    }

    pub(crate) fn note_ecn_capable(&mut self) {
        self.ecn_capable = true;
    }

    /// Processes an acknowledgement.
    pub(crate) fn acknowledged(&mut self, ack: &AckSample) -> Turn {
        let mut turn = Turn::default();
        match ack.kind {
            AckKind::Advance => {
                self.duplicates = 0;
                if let CaState::Loss { advanced } = &mut self.state {
                    *advanced = true;
                }
            }
            AckKind::Duplicate => self.duplicates = self.duplicates.saturating_add(1),
            AckKind::Other => {}
        }
        turn.probe_loss = self.settle_probe(ack);
        if self.state.is_repairing() && ack.una >= self.point {
            self.state = CaState::Open;
            self.duplicates = 0;
            turn.ended = true;
        }
        if self.state == CaState::Cwr && ack.una > self.point {
            self.state = CaState::Open;
        }
        if !self.state.is_repairing() {
            let again = self.update_due(ack);
            if self.state == CaState::Due && (again || (turn.ended && ack.repeated > 0)) {
                self.repair(ack);
                turn.began = Some(LossKind::FastRetransmit);
            }
        }
        if ack.lost_again && self.state.is_loss() {
            // RACK replaces the timer in `CA_Loss`, too (`tcp_fastretrans_alert`, `FLAG_LOST_RETRANS`).
            self.repair(ack);
            turn.began = Some(LossKind::FastRetransmit);
        }
        if ack.ece && self.ecn_capable && self.state == CaState::Open && ack.lost == 0 {
            // RFC 3168 section 6.1.2, as in Linux (`tcp_enter_cwr`): the sender reduces at the echo itself, whether or not it has
            // data that could carry CWR, and again when data sent after that is acknowledged with an echo; but not if the same
            // acknowledgement shows a loss (`tcp_fastretrans_alert`).
            self.state = CaState::Cwr;
            self.set_point(ack);
            turn.began = Some(LossKind::Ecn);
        }
        turn
    }

    /// With SACK and RACK recovery begins at the acknowledgement that shows a loss (`tcp_time_to_recover`), even if pacing delays
    /// the retransmission; a reduction under way becomes recovery and keeps its point (`tcp_enter_recovery`). Returns whether
    /// the point was reached before any retransmission, and the loss remains.
    fn update_due(&mut self, ack: &AckSample) -> bool {
        let over = self.state == CaState::Due && ack.una >= self.point;
        match (ack.lost > 0, self.state) {
            (true, CaState::Open) => self.set_point(ack),
            (true, _) if over => self.set_point(ack),
            _ => {}
        }
        if ack.lost > 0 {
            self.state = CaState::Due;
        } else if self.state == CaState::Due {
            self.state = CaState::Open;
        }
        over && ack.lost > 0
    }

    /// Enters recovery at an acknowledgement.
    fn repair(&mut self, ack: &AckSample) {
        self.state = CaState::Recovery;
        self.set_point(ack);
        self.probe = MaybeCount::NONE;
    }

    /// The recovery point is what the sender had sent when this acknowledgement arrived there.
    fn set_point(&mut self, ack: &AckSample) {
        self.point = ack.nxt;
        self.point_moves_until = ack.answer_at;
    }

    /// New data from `start` to `nxt` passed the tap at `at`. `reduced`: it carries CWR, so it is the first sent since the
    /// reduction.
    pub(crate) fn sent(&mut self, at: Timestamp, (start, nxt): (u64, u64), reduced: bool) {
        if reduced {
            self.point_moves_until = Timestamp(0);
            if self.state == CaState::Cwr {
                self.point = self.point.max(start);
            }
        } else if at < self.point_moves_until {
            self.point = self.point.max(nxt);
        }
    }

    fn begin(&mut self, kind: LossKind, repeat: &Repeat) -> LossKind {
        // A reduction after an ECN echo becomes recovery (`tcp_enter_recovery`).
        let marked = kind == LossKind::FastRetransmit && self.state == CaState::Cwr;
        if !marked && (kind != LossKind::FastRetransmit || self.state != CaState::Due) {
            (self.point, self.point_moves_until) = (repeat.nxt, Timestamp(0));
        }
        // Without SACK duplicates caused by retransmissions look like a loss: more has to be acknowledged (RFC 6582 section 4,
        // `tcp_is_non_sack_preventing_reopen`).
        self.point += u64::from(!repeat.sack_permitted);
        self.state = CaState::Recovery;
        if kind == LossKind::Timeout {
            (self.state, self.duplicates) = (CaState::Loss { advanced: false }, 0);
        }
        self.probe = MaybeCount::NONE;
        kind
    }

    /// The last segment again, with nothing SACKed and no duplicates: RFC 8985 section 7.2. The next one is a timeout.
    fn is_tail_probe(&self, repeat: &Repeat) -> bool {
        repeat.sack_permitted
            && repeat.end == repeat.nxt
            && repeat.sacked == 0
            && self.duplicates == 0
            && repeat.standing == Standing::SentOnce
            && !self.probe.is_some()
    }

    /// RFC 8985 section 7.4, as in Linux (`tcp_process_tlp_ack`): everything up to the probe is acknowledged; a DSACK or a
    /// duplicate shows that both copies arrived, an acknowledgement of later data without one that only one did.
    fn settle_probe(&mut self, ack: &AckSample) -> bool {
        let Some(high) = self.probe.get().filter(|high| ack.una >= *high) else { return false };
        if ack.dsack || ack.kind == AckKind::Duplicate {
            self.probe = MaybeCount::NONE;
            return false;
        }
        if ack.una == high {
            return false;
        }
        self.probe = MaybeCount::NONE;
        true
    }
}
