//! What a retransmission means: loss by duplicate acknowledgements, timeout, tail loss probe, congestion mark, or nothing.
//!
//! One loss event per window of data: everything repaired up to the recovery point belongs to the event that set it
//! (RFC 6675 section 5, RFC 6582). A reduction is taken back when DSACKs, timestamps or, after a timeout, F-RTO show that
//! nothing had been lost (RFC 3708, RFC 3522, RFC 4015, RFC 5682). Judges from what the tap sees; the window is
//! [`super::shadow`]'s.

mod repeat;
mod threshold;

use spand_proto::units::Timestamp;

use crate::flow::sequence::is_after;
use crate::flow::shadow::observation::LossKind;
use crate::mem::boxed;

pub(crate) use self::repeat::{Repeat, Standing};
pub(crate) use self::threshold::Counted;
use self::threshold::Threshold;

/// Duplicate acknowledgements that start a fast retransmit (RFC 5681 section 3.2).
const DUP_THRESH: u16 = 3;
/// A flight of fewer full segments than this cannot give three duplicates, so fewer suffice (RFC 5827).
const SMALL_FLIGHT: u64 = 4;

/// What an acknowledgement did to `SND.UNA`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum AckKind {
    /// It advanced.
    Advance,
    /// It stayed, and the peer says that it got something else, or more of the same (RFC 5681 section 2, RFC 6675).
    Duplicate,
    /// It stayed for another reason: data of the peer's, or a window update.
    #[default]
    Other,
}

/// What an acknowledgement tells recovery.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one acknowledgement")]
pub(crate) struct Progress {
    /// `SND.UNA` after it.
    pub(crate) una: u64,
    /// Highest position sent.
    pub(crate) nxt: u64,
    /// When an answer of the sender passes the tap at the earliest.
    pub(crate) heard_at: Timestamp,
    /// What it did to the cumulative acknowledgement.
    pub(crate) kind: AckKind,
    /// It acknowledges cumulatively what was sent once and not SACKed before (`FLAG_ORIG_SACK_ACKED`).
    pub(crate) original: bool,
    /// Its first SACK block reports a duplicate segment (RFC 2883).
    pub(crate) dsack: bool,
    /// The timestamp it echoes.
    pub(crate) echo: Option<u32>,
    /// It carries an ECN echo.
    pub(crate) ece: bool,
    /// Bytes that count as lost after it, those repeated already among them; 0 without SACK.
    pub(crate) lost: u64,
    /// Of them, bytes repeated.
    pub(crate) repeated: u64,
    /// With it, something repeated counts as lost once more.
    pub(crate) lost_again: bool,
    /// What a sender without SACK counts.
    pub(crate) counted: Option<Counted>,
}

/// What became of recovery by an acknowledgement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Turn {
    /// A tail loss probe turned out to have repaired a loss.
    pub(crate) probe_loss: bool,
    /// The last reduction was spurious.
    pub(crate) undone: bool,
    /// The recovery point is acknowledged.
    pub(crate) ended: bool,
    /// What the sender reacts to with this acknowledgement: an ECN echo, more losses above the recovery point that it
    /// repeated already, or after a timeout the loss of a repeat.
    pub(crate) began: Option<LossKind>,
}

/// One sender's loss recovery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    stage: Stage,
    /// What is being answered ends when this is acknowledged (`tp->high_seq`).
    point: u64,
    /// Until then the tap sees what had been sent by the acknowledgement that set the point.
    point_moves_until: Timestamp,
    duplicates: u16,
    /// Duplicates that it waits for without SACK.
    threshold: Threshold,
    probe: Option<Probe>,
    undo: Option<Undo>,
    /// End of the highest repeat so far.
    repeated_to: u64,
    /// It sends ECN-capable segments, so it heeds echoes.
    ecn_capable: bool,
}

/// What a sender answers, as far as the tap can know.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Stage {
    /// Nothing.
    #[default]
    Open,
    /// A mark, until something is acknowledged that was sent after the point.
    Reduced,
    /// Something counts as lost and nothing of it was repeated yet.
    Due,
    /// A loss.
    Repairing,
    /// A timeout; whether something was acknowledged since.
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

/// What it takes to call the last reduction spurious.
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// Retransmissions of the episode that no DSACK has named.
    unconfirmed: u16,
    /// F-RTO goes on: originals that arrive show a timeout as spurious (`tp->frto`, RFC 5682 section 3.1).
    frto: bool,
    /// Timestamp value of the first of them, until the first acknowledgement that advances.
    first_ts_value: Option<u32>,
}

impl Recovery {
    /// Whether a loss is being repaired.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Repairing | Stage::TimedOut { .. })
    }

    /// Whether a loss is being repaired, or something counts as lost that was not repeated yet: a sender that paces is in recovery
    /// before it repeats anything.
    pub(crate) fn is_due(&self) -> bool {
        self.is_active() || self.stage == Stage::Due
    }

    /// Whether that is still so once everything before `una` is acknowledged: an acknowledgement ends a recovery before the sender looks
    /// what it shows as lost (`tcp_fastretrans_alert`).
    pub(crate) fn outlasts(&self, una: u64) -> bool {
        self.is_due() && una < self.point
    }

    /// Judges a repeat; a loss event is returned once per window of data.
    pub(crate) fn repeated(&mut self, repeat: &Repeat) -> Option<LossKind> {
        if repeat.end <= repeat.una {
            // Acknowledged already: needless, and its sender knew no better. A DSACK will tell it.
            self.count_for_undo();
            return None;
        }
        let earlier_repeats = self.repeated_to > repeat.una;
        self.repeated_to = self.repeated_to.max(repeat.end);
        let timed_out = repeat.is_after_silence();
        if self.is_active() {
            self.count_for_undo();
            let unheard = self.stage == Stage::TimedOut { advanced: false };
            let by_timer =
                repeat.start <= repeat.una && (timed_out || repeat.is_unasked() || repeat.has_no_reason(unheard));
            if self.stage == (Stage::TimedOut { advanced: true }) {
                // It had nothing new to send, so it repairs.
                self.end_frto();
            }
            return by_timer.then(|| self.begin(LossKind::Timeout, repeat, earlier_repeats));
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
        // The timer of a sender that paces waits for its pace, too (`tcp_pacing_delay`), so what was asked for comes first.
        let held_by_pace = repeat.paced && self.stage == Stage::Due && repeat.standing == Standing::Lost;
        if (timed_out && !held_by_pace)
            || repeat.is_unasked()
            || repeat.is_after_few(self.duplicates, self.threshold.get())
        {
            Some(self.begin(LossKind::Timeout, repeat, earlier_repeats))
        } else if hinted {
            Some(self.begin(LossKind::FastRetransmit, repeat, earlier_repeats))
        } else if repeat.unseen {
            // Nothing says that it was missed: it only came late.
            None
        } else {
            Some(self.begin(LossKind::Timeout, repeat, earlier_repeats))
        }
    }

    /// The sender sent an ECN-capable segment.
    pub(crate) fn note_ecn_capable(&mut self) {
        self.ecn_capable = true;
    }

    /// Takes an acknowledgement.
    pub(crate) fn acknowledged(&mut self, progress: &Progress) -> Turn {
        let mut turn = Turn::default();
        match progress.kind {
            AckKind::Advance => {
                let left = self.threshold.advanced(self.duplicates, progress);
                self.duplicates = if self.stage == Stage::Repairing { left } else { 0 };
                if let Stage::TimedOut { advanced } = &mut self.stage {
                    *advanced = true;
                }
                turn.undone = self.is_late_original(progress.echo) || (progress.original && self.has_frto());
            }
            AckKind::Duplicate if self.counts_none(progress) => self.duplicates = 0,
            AckKind::Duplicate => {
                self.duplicates = self.threshold.another(self.duplicates, progress);
                if progress.nxt > self.point {
                    // What it sent anew since asks for what is missing.
                    self.end_frto();
                }
            }
            AckKind::Other => {}
        }
        turn.probe_loss = self.settle_probe(progress);
        if progress.dsack
            && let Some(undo) = &mut self.undo
        {
            undo.unconfirmed = undo.unconfirmed.saturating_sub(1);
            turn.undone |= undo.unconfirmed == 0;
        }
        if turn.undone {
            self.undo = None;
        }
        if self.is_active() && (progress.una >= self.point || turn.undone) {
            self.stage = Stage::Open;
            if progress.una >= self.point || progress.counted.is_none() {
                self.duplicates = 0;
            }
            turn.ended = !turn.undone;
        }
        if self.stage == Stage::Reduced && progress.una > self.point {
            self.stage = Stage::Open;
        }
        if !self.is_active() {
            let again = self.suspect(progress);
            if self.stage == Stage::Due && (again || (turn.ended && progress.repeated > 0)) {
                self.repair(progress);
                turn.began = Some(LossKind::FastRetransmit);
            }
        }
        if progress.lost_again && self.stage.is_timed_out() {
            // RACK ends the wait for the timer there, too (`tcp_fastretrans_alert`, `FLAG_LOST_RETRANS`).
            self.repair(progress);
            turn.began = Some(LossKind::FastRetransmit);
        }
        if progress.ece && self.ecn_capable && self.stage == Stage::Open && progress.lost == 0 {
            // RFC 3168 section 6.1.2, as Linux does it (`tcp_enter_cwr`): the sender reduces at the echo itself, whether or not it
            // has anything to send that could carry CWR, and again when something it sent after that is acknowledged with an echo;
            // but not where it learns of a loss with it (`tcp_fastretrans_alert`).
            self.stage = Stage::Reduced;
            self.set_point(progress);
            self.undo = None;
            turn.began = Some(LossKind::Ecn);
        }
        turn
    }

    /// A sender without SACK that repairs a loss counts no duplicates once all is acknowledged that had been sent before; after a
    /// timeout, none before it sends something new either (`tcp_process_loss`).
    fn counts_none(&self, progress: &Progress) -> bool {
        let over = progress.una + 1 >= self.point || (self.stage.is_timed_out() && progress.nxt < self.point);
        progress.counted.is_some() && self.is_active() && over
    }

    /// A sender that recognises losses by SACK and time begins recovery at the acknowledgement that shows one
    /// (`tcp_time_to_recover`), even where pacing holds the repeat back; a reduction under way goes on as recovery, and ends where it
    /// would have (`tcp_enter_recovery`). Returns whether that ended before anything was repeated, and the loss is still there.
    fn suspect(&mut self, progress: &Progress) -> bool {
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

    /// Recovery begins with an acknowledgement.
    fn repair(&mut self, progress: &Progress) {
        self.stage = Stage::Repairing;
        self.set_point(progress);
        (self.probe, self.undo) = (None, None);
    }

    /// What is answered from this acknowledgement on ends with what the sender had sent when it heard it.
    fn set_point(&mut self, progress: &Progress) {
        self.point = progress.nxt;
        self.point_moves_until = progress.heard_at;
    }

    /// New data from `start` to `nxt` passed the tap at `at`. `reduced`: it says that its sender has reduced (CWR), so it is the first
    /// that was sent since.
    pub(crate) fn sent(&mut self, at: Timestamp, (start, nxt): (u64, u64), reduced: bool) {
        if !self.is_active() {
            self.threshold.sent_new(at, self.duplicates);
        }
        if reduced {
            self.point_moves_until = Timestamp(0);
            if self.stage == Stage::Reduced {
                self.point = self.point.max(start);
            }
        } else if at < self.point_moves_until {
            self.point = self.point.max(nxt);
        }
    }

    /// `earlier_repeats`: some that were made before are not acknowledged yet. An acknowledgement then echoes their time,
    /// earlier than this episode's first, and says nothing about it.
    fn begin(&mut self, kind: LossKind, repeat: &Repeat, earlier_repeats: bool) -> LossKind {
        // A reduction after a mark goes on as recovery (`tcp_enter_recovery`).
        let marked = kind == LossKind::FastRetransmit && self.stage == Stage::Reduced;
        if !marked && (kind != LossKind::FastRetransmit || self.stage != Stage::Due) {
            (self.point, self.point_moves_until) = (repeat.nxt, Timestamp(0));
        }
        // Without SACK what repeats made double looks like a loss: more has to be acknowledged (RFC 6582 section 4,
        // `tcp_is_non_sack_preventing_reopen`).
        self.point += u64::from(!repeat.sack_permitted);
        // Not within another recovery (`tcp_enter_loss`).
        let frto =
            kind == LossKind::Timeout && (!self.is_active() || self.stage == Stage::TimedOut { advanced: false });
        self.stage = Stage::Repairing;
        if kind == LossKind::Timeout {
            (self.stage, self.duplicates) = (Stage::TimedOut { advanced: false }, 0);
        }
        self.probe = None;
        let first_ts_value = repeat.ts_value.filter(|_| !earlier_repeats);
        self.undo = (!repeat.unseen && !marked).then_some(Undo { unconfirmed: 1, frto, first_ts_value });
        kind
    }

    fn count_for_undo(&mut self) {
        if let Some(undo) = &mut self.undo {
            undo.unconfirmed = undo.unconfirmed.saturating_add(1);
        }
    }

    fn has_frto(&self) -> bool {
        self.stage.is_timed_out() && self.undo.is_some_and(|undo| undo.frto)
    }

    fn end_frto(&mut self) {
        if let Some(undo) = &mut self.undo {
            undo.frto = false;
        }
    }

    /// The last segment again with nothing SACKed and no duplicate: RFC 8985 section 7.2. What follows it is a timeout.
    fn is_tail_probe(&self, repeat: &Repeat) -> bool {
        repeat.sack_permitted
            && repeat.end == repeat.nxt
            && repeat.sacked == 0
            && self.duplicates == 0
            && repeat.standing == Standing::SentOnce
            && self.probe.is_none()
    }

    /// RFC 8985 section 7.4, as Linux does it (`tcp_process_tlp_ack`): everything up to the probe is acknowledged; a DSACK
    /// or a duplicate says that both copies arrived, an acknowledgement of later data without one says that only one did.
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

    /// Eifel detection (RFC 3522): the first acknowledgement that advances echoes a time before the retransmission.
    fn is_late_original(&mut self, echo: Option<u32>) -> bool {
        let Some(first) = self.undo.as_mut().and_then(|undo| undo.first_ts_value.take()) else { return false };
        echo.is_some_and(|echo| is_after(first, echo))
    }
}

/// Recovery for the many senders that never need it: its state is made with the first thing that it has to remember. A sender
/// has one at most, which bounds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seldom(Option<Box<Recovery>>);

impl Seldom {
    /// Memory of it.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.0.is_some() { const { boxed::<Recovery>() } } else { 0 }
    }

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

    /// See [`Recovery::sent`]: it moves a point, and without a state there is none.
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

/// Whether an acknowledgement leaves a recovery that has nothing to remember as it is, and calls for nothing.
fn changes_nothing(progress: &Progress) -> bool {
    progress.kind != AckKind::Duplicate && progress.lost == 0
}

#[cfg(test)]
mod tests;
