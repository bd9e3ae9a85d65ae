//! Classifies a sender's retransmissions: loss, reordering, or neither.

use spand_proto::units::{Micros, Timestamp};

use super::Sender;
use crate::flow::coverage::Inserted;
use crate::flow::observation::{CaState, LossKind};
use crate::flow::recovery::{Repeat, Standing};
use crate::flow::scoreboard::{PathTimes, Stamp};
use crate::flow::seq_state::Extent;

/// Without a round-trip time, a segment that follows its overtaker within this time was reordered (Wireshark's bound).
const REORDERED_WITHIN: Micros = Micros(3_000);

impl Sender {
    /// Whether a retransmission shows a loss, and of which kind.
    pub(super) fn judge(
        &mut self,
        stamp: &Stamp,
        extent: &Extent,
        inserted: &Inserted,
        since_ack: Option<Micros>,
    ) -> Option<LossKind> {
        if !self.state.is_acknowledged() {
            return None;
        }
        let before = self.board.transmissions(extent.start.max(self.board.una()));
        let unseen = is_unseen(inserted);
        if self.sack_agreed && matches!(self.recovery.state(), CaState::Open | CaState::Cwr) {
            // The sender's reordering timer may have expired since the last acknowledgement (`tcp_rack_reo_timeout`).
            self.mark_lost_by_time(stamp.at);
        }
        let repeat = Repeat {
            start: extent.start,
            end: extent.end,
            una: self.board.una(),
            nxt: self.board.nxt(),
            sacked: self.board.sacked(),
            mss: self.size.bytes_or_usual(),
            unseen,
            standing: match before {
                _ if self.board.awaits_repeat(extent.start.max(self.board.una())) => Standing::Lost,
                Some((_, 2..)) => Standing::Repeated,
                _ => Standing::SentOnce,
            },
            since_sent: before.map(|(last, _)| stamp.at.since(last.at)),
            since_ack,
            timeout: self.rtt.timeout(),
            sack_permitted: self.sack_agreed,
        };
        self.recovery.repeated(&repeat)
    }

    /// Applies RACK to the scoreboard at `at`; returns whether a retransmission was marked lost.
    pub(super) fn mark_lost_by_time(&mut self, at: Timestamp) -> bool {
        // The sender's round trips are longer by the way from the tap.
        let reaction = self.reaction();
        let whole = |rtt: Micros| Micros(rtt.0.saturating_add(reaction.0));
        let path = PathTimes {
            min_rtt: self.rtt.min().map(whole),
            srtt: self.rtt.smoothed().map(whole),
            recovering: self.recovery.outlasts(self.board.una()),
        };
        self.board.mark_lost_by_time(at, &path)
    }

    /// Time from an acknowledgement at the tap to the sender's answer there.
    pub(super) fn reaction(&self) -> Micros {
        self.followed.as_deref().map_or(Micros(0), |followed| followed.evidence.reaction())
    }

    /// Whether bytes not seen before were only reordered: sent before what came ahead of them, or too soon after it for
    /// a retransmission.
    pub(super) fn came_late(&mut self, extent: &Extent, inserted: &Inserted, stamp: &Stamp) -> bool {
        if !is_unseen(inserted) || !self.state.is_acknowledged() {
            return false;
        }
        let Some(overtaker) = self.board.first_sent_after(extent.end) else { return false };
        let by = stamp.at.since(overtaker.at);
        let late = stamp.was_sent_before(&overtaker).unwrap_or_else(|| {
            let soon = self.rtt.min().map_or(REORDERED_WITHIN, |rtt| Micros(rtt.0 / 2));
            by < soon
        });
        if late {
            self.board.note_late(self.rtt.min().map_or(by, |rtt| by.min(Micros(rtt.0 / 4))));
            if let Some(followed) = self.followed.as_deref_mut() {
                followed.evidence.note_late();
            }
        }
        late
    }

    /// Marks on the scoreboard what the retransmission shows that the sender considers lost.
    pub(super) fn mark_losses(&mut self, judged: Option<LossKind>, extent: &Extent, is_no_repeat: bool) {
        match judged {
            Some(LossKind::Timeout) => self.board.mark_all_lost(),
            None if is_no_repeat || !self.recovery.state().is_repairing() => {}
            Some(_) | None => self.board.mark_lost_below(extent.end),
        }
    }
}

/// Whether a segment holds only bytes that were not seen before.
fn is_unseen(inserted: &Inserted) -> bool {
    inserted.repeated_bytes == 0 && inserted.new_bytes > 0
}
