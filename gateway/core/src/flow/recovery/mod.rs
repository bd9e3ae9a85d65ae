//! Classifies a retransmission: duplicate acknowledgements, timeout, tail loss probe, or no loss; and ECN echoes.
//!
//! One loss event per window of data: everything repaired up to the recovery point belongs to the event that set it
//! (RFC 6675 section 5, RFC 6582).

mod repeat;

use spand_proto::units::Timestamp;

use crate::flow::evidence::observation::LossKind;

pub(crate) use self::repeat::{Repeat, Standing};

/// Duplicate acknowledgements that start a fast retransmit (RFC 5681 section 3.2).
const DUP_THRESH: u16 = 3;
/// A smaller flight, in full segments, cannot give three duplicates, so fewer suffice (RFC 5827).
const SMALL_FLIGHT: u64 = 4;

/// What an acknowledgement did to `SND.UNA`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum AckKind {
    /// It advanced.
    Advance,
    /// It did not, and is a duplicate or has new SACK blocks (RFC 5681 section 2, RFC 6675).
    Duplicate,
    /// It did not, and carries data of the peer or a window update.
    #[default]
    Other,
}

/// One acknowledgement, as recovery takes it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// `SND.UNA` after it.
    pub(crate) una: u64,
    /// Highest position sent.
    pub(crate) nxt: u64,
    /// When an answer of the sender can pass the tap at the earliest.
    pub(crate) answer_at: Timestamp,
    /// What it did to the cumulative acknowledgement.
    pub(crate) kind: AckKind,
    /// Its first SACK block reports a duplicate segment (RFC 2883).
    pub(crate) dsack: bool,
    /// It carries an ECN echo.
    pub(crate) ece: bool,
    /// Bytes marked lost after it, including those retransmitted; 0 without SACK.
    pub(crate) lost: u64,
    /// Of them, bytes retransmitted.
    pub(crate) repeated: u64,
    /// It shows that a retransmission is lost.
    pub(crate) lost_again: bool,
}

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
    stage: Stage,
    /// Recovery or reduction ends when this is acknowledged (`tp->high_seq`).
    point: u64,
    /// Until then packets at the tap were sent before the acknowledgement that set the point arrived.
    point_moves_until: Timestamp,
    duplicates: u16,
    probe: Option<Probe>,
    /// It sends ECN-capable segments, so it reacts to ECN echoes.
    ecn_capable: bool,
}

/// State of the sender, as far as the tap shows it (`enum tcp_ca_state`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Stage {
    /// `CA_Open`.
    #[default]
    Open,
    /// `CA_CWR`, until data sent after the point is acknowledged.
    Reduced,
    /// Something is marked lost and not yet retransmitted.
    Due,
    /// `CA_Recovery`.
    Repairing,
    /// `CA_Loss`; whether something was acknowledged since.
    TimedOut { advanced: bool },
}

impl Stage {
    fn is_timed_out(self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

/// A tail loss probe whose outcome is open (RFC 8985 section 7).
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// `SND.NXT` when it was sent.
    high: u64,
}

impl Recovery {
    /// Whether a loss is being repaired.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Repairing | Stage::TimedOut { .. })
    }

    /// Whether a loss is being repaired, or something is marked lost and not yet retransmitted: a sender that paces enters recovery
    /// before it retransmits.
    pub(crate) fn is_due(&self) -> bool {
        self.is_active() || self.stage == Stage::Due
    }

    /// Whether that holds after everything before `una` is acknowledged: the end of a recovery comes before the detection of further
    /// losses (`tcp_fastretrans_alert`).
    pub(crate) fn outlasts(&self, una: u64) -> bool {
        self.is_due() && una < self.point
    }

    /// Classifies a retransmission; returns a loss event once per window of data.
    pub(crate) fn repeated(&mut self, repeat: &Repeat) -> Option<LossKind> {
        if repeat.end <= repeat.una {
            // Already acknowledged: a spurious retransmission.
            return None;
        }
        let timed_out = repeat.is_after_silence();
        if self.is_active() {
            let no_advance = self.stage == Stage::TimedOut { advanced: false };
            let by_timer = repeat.start <= repeat.una && (timed_out || repeat.is_by_timer_alone(no_advance));
            return by_timer.then(|| self.begin(LossKind::Timeout, repeat));
        }
        if !repeat.unseen && self.is_tail_probe(repeat) {
            self.probe = Some(Probe { high: repeat.nxt });
            return None;
        }
        let small_flight = repeat.nxt.saturating_sub(repeat.una) < SMALL_FLIGHT * repeat.mss.max(1);
        let hinted = repeat.sacked > 0
            || repeat.standing == Standing::Lost
            || self.stage == Stage::Due
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
    pub(crate) fn acknowledged(&mut self, progress: &Progress) -> Turn {
        let mut turn = Turn::default();
        match progress.kind {
            AckKind::Advance => {
                self.duplicates = 0;
                if let Stage::TimedOut { advanced } = &mut self.stage {
                    *advanced = true;
                }
            }
            AckKind::Duplicate => self.duplicates = self.duplicates.saturating_add(1),
            AckKind::Other => {}
        }
        turn.probe_loss = self.settle_probe(progress);
        if self.is_active() && progress.una >= self.point {
            self.stage = Stage::Open;
            self.duplicates = 0;
            turn.ended = true;
        }
        if self.stage == Stage::Reduced && progress.una > self.point {
            self.stage = Stage::Open;
        }
        if !self.is_active() {
            let again = self.update_due(progress);
            if self.stage == Stage::Due && (again || (turn.ended && progress.repeated > 0)) {
                self.repair(progress);
                turn.began = Some(LossKind::FastRetransmit);
            }
        }
        if progress.lost_again && self.stage.is_timed_out() {
            // RACK replaces the timer in `CA_Loss`, too (`tcp_fastretrans_alert`, `FLAG_LOST_RETRANS`).
            self.repair(progress);
            turn.began = Some(LossKind::FastRetransmit);
        }
        if progress.ece && self.ecn_capable && self.stage == Stage::Open && progress.lost == 0 {
            // RFC 3168 section 6.1.2, as in Linux (`tcp_enter_cwr`): the sender reduces at the echo itself, whether or not it has
            // data that could carry CWR, and again when data sent after that is acknowledged with an echo; but not if the same
            // acknowledgement shows a loss (`tcp_fastretrans_alert`).
            self.stage = Stage::Reduced;
            self.set_point(progress);
            turn.began = Some(LossKind::Ecn);
        }
        turn
    }

    /// With SACK and RACK recovery begins at the acknowledgement that shows a loss (`tcp_time_to_recover`), even if pacing delays
    /// the retransmission; a reduction under way becomes recovery and keeps its point (`tcp_enter_recovery`). Returns whether
    /// the point was reached before any retransmission, and the loss remains.
    fn update_due(&mut self, progress: &Progress) -> bool {
        let over = self.stage == Stage::Due && progress.una >= self.point;
        match (progress.lost > 0, self.stage) {
            (true, Stage::Open) => self.set_point(progress),
            (true, _) if over => self.set_point(progress),
            _ => {}
        }
        if progress.lost > 0 {
            self.stage = Stage::Due;
        } else if self.stage == Stage::Due {
            self.stage = Stage::Open;
        }
        over && progress.lost > 0
    }

    /// Enters recovery at an acknowledgement.
    fn repair(&mut self, progress: &Progress) {
        self.stage = Stage::Repairing;
        self.set_point(progress);
        self.probe = None;
    }

    /// The recovery point is what the sender had sent when this acknowledgement arrived there.
    fn set_point(&mut self, progress: &Progress) {
        self.point = progress.nxt;
        self.point_moves_until = progress.answer_at;
    }

    /// New data from `start` to `nxt` passed the tap at `at`. `reduced`: it carries CWR, so it is the first sent since the
    /// reduction.
    pub(crate) fn sent(&mut self, at: Timestamp, (start, nxt): (u64, u64), reduced: bool) {
        if reduced {
            self.point_moves_until = Timestamp(0);
            if self.stage == Stage::Reduced {
                self.point = self.point.max(start);
            }
        } else if at < self.point_moves_until {
            self.point = self.point.max(nxt);
        }
    }

    fn begin(&mut self, kind: LossKind, repeat: &Repeat) -> LossKind {
        // A reduction after an ECN echo becomes recovery (`tcp_enter_recovery`).
        let marked = kind == LossKind::FastRetransmit && self.stage == Stage::Reduced;
        if !marked && (kind != LossKind::FastRetransmit || self.stage != Stage::Due) {
            (self.point, self.point_moves_until) = (repeat.nxt, Timestamp(0));
        }
        // Without SACK duplicates caused by retransmissions look like a loss: more has to be acknowledged (RFC 6582 section 4,
        // `tcp_is_non_sack_preventing_reopen`).
        self.point += u64::from(!repeat.sack_permitted);
        self.stage = Stage::Repairing;
        if kind == LossKind::Timeout {
            (self.stage, self.duplicates) = (Stage::TimedOut { advanced: false }, 0);
        }
        self.probe = None;
        kind
    }

    /// The last segment again, with nothing SACKed and no duplicates: RFC 8985 section 7.2. The next one is a timeout.
    fn is_tail_probe(&self, repeat: &Repeat) -> bool {
        repeat.sack_permitted
            && repeat.end == repeat.nxt
            && repeat.sacked == 0
            && self.duplicates == 0
            && repeat.standing == Standing::SentOnce
            && self.probe.is_none()
    }

    /// RFC 8985 section 7.4, as in Linux (`tcp_process_tlp_ack`): everything up to the probe is acknowledged; a DSACK or a
    /// duplicate shows that both copies arrived, an acknowledgement of later data without one that only one did.
    fn settle_probe(&mut self, progress: &Progress) -> bool {
        let Some(probe) = self.probe.filter(|probe| progress.una >= probe.high) else { return false };
        if progress.dsack || progress.kind == AckKind::Duplicate {
            self.probe = None;
            return false;
        }
        if progress.una == probe.high {
            return false;
        }
        self.probe = None;
        true
    }
}

/// Recovery of a sender, allocated with the first state that it has to keep: many never need it. A sender has at most one,
/// which bounds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seldom(Option<Box<Recovery>>);

impl Seldom {
    /// Bytes that it may allocate.
    pub(crate) const BESIDE_BYTES: usize = size_of::<Recovery>();

    /// See [`Recovery::is_active`].
    pub(crate) fn is_active(&self) -> bool {
        self.0.as_ref().is_some_and(|recovery| recovery.is_active())
    }

    /// See [`Recovery::is_due`].
    pub(crate) fn is_due(&self) -> bool {
        self.0.as_ref().is_some_and(|recovery| recovery.is_due())
    }

    /// See [`Recovery::outlasts`].
    pub(crate) fn outlasts(&self, una: u64) -> bool {
        self.0.as_ref().is_some_and(|recovery| recovery.outlasts(una))
    }

    /// See [`Recovery::repeated`].
    pub(crate) fn repeated(&mut self, repeat: &Repeat) -> Option<LossKind> {
        self.0.get_or_insert_default().repeated(repeat)
    }

    /// See [`Recovery::note_ecn_capable`].
    pub(crate) fn note_ecn_capable(&mut self) {
        self.0.get_or_insert_default().note_ecn_capable();
    }

    /// See [`Recovery::sent`]: it moves a point, which needs a state.
    pub(crate) fn sent(&mut self, at: Timestamp, positions: (u64, u64), reduced: bool) {
        if let Some(recovery) = &mut self.0 {
            recovery.sent(at, positions, reduced);
        }
    }

    /// See [`Recovery::acknowledged`].
    #[inline]
    pub(crate) fn acknowledged(&mut self, progress: &Progress) -> Turn {
        match &mut self.0 {
            Some(recovery) => recovery.acknowledged(progress),
            None if changes_nothing(progress) => Turn::default(),
            none => none.get_or_insert_default().acknowledged(progress),
        }
    }
}

/// Whether an acknowledgement leaves a recovery without state unchanged.
fn changes_nothing(progress: &Progress) -> bool {
    progress.kind != AckKind::Duplicate && progress.lost == 0
}
