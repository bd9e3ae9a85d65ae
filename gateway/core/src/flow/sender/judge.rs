//! What a sender's repeats say: lost, overtaken, or nothing.

use spand_proto::units::{Micros, Timestamp};

use super::Sender;
use super::send::Extent;
use crate::flow::coverage::Inserted;
use crate::flow::recovery::{Repeat, Standing};
use crate::flow::scoreboard::{PathTimes, Stamp};
use crate::flow::shadow::observation::LossKind;

/// Without a round trip to compare with, what comes within this time after its overtaker was only overtaken (the bound
/// that Wireshark uses).
const REORDERED_WITHIN: Micros = Micros(3_000);

impl Sender {
    /// Whether a repeat tells of a loss, and of which kind.
    pub(super) fn judge(
        &mut self,
        stamp: &Stamp,
        extent: &Extent,
        inserted: &Inserted,
        since_ack: Option<Micros>,
        ts_value: Option<u32>,
    ) -> Option<LossKind> {
        if !self.acknowledged.any() {
            return None;
        }
        let before = self.board.transmissions(extent.start.max(self.board.una()));
        let unseen = inserted.repeated_bytes == 0 && inserted.new_bytes > 0;
        if unseen && self.came_late(extent, stamp) {
            return None;
        }
        if self.sack_agreed && !self.recovery.is_due() {
            // What an acknowledgement left to reordering, a timer of its own may have given up since (`tcp_rack_reo_timeout`).
            self.deem_lost_by_time(stamp.at);
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
            paced: self.followed.as_deref().is_some_and(|followed| followed.shadow.may_pace()),
            ts_value,
        };
        self.recovery.repeated(&repeat)
    }

    /// Marks on the scoreboard what the sender deems lost by time at `at`; returns whether anything of it was repeated before.
    pub(super) fn deem_lost_by_time(&mut self, at: Timestamp) -> bool {
        // The sender's own are longer, by the way to it.
        let reaction = self.reaction();
        let whole = |rtt: Micros| Micros(rtt.0.saturating_add(reaction.0));
        let path = PathTimes {
            min_rtt: self.rtt.min().map(whole),
            srtt: self.rtt.smoothed().map(whole),
            recovering: self.recovery.outlasts(self.board.una()),
        };
        self.board.deem_lost_by_time(at, &path)
    }

    /// From when an acknowledgement passes the tap until the sender's answer does.
    pub(super) fn reaction(&self) -> Micros {
        self.followed.as_deref().map_or(Micros(0), |followed| followed.shadow.reaction())
    }

    /// Whether bytes never seen before were only overtaken: sent before what came ahead of them, or too soon after it for
    /// the sender to know that they were missed.
    fn came_late(&self, extent: &Extent, stamp: &Stamp) -> bool {
        let Some(overtaker) = self.board.first_sent_after(extent.end) else { return false };
        stamp.was_sent_before(&overtaker).unwrap_or_else(|| {
            let soon = self.rtt.min().map_or(REORDERED_WITHIN, |rtt| Micros(rtt.0 / 2));
            stamp.at.since(overtaker.at) < soon
        })
    }

    /// Marks on the scoreboard what the sender, by what it repeats, deems lost.
    pub(super) fn mark_losses(&mut self, judged: Option<LossKind>, extent: &Extent, is_no_repeat: bool) {
        match judged {
            Some(LossKind::Timeout) => self.board.deem_all_lost(),
            None if is_no_repeat || !self.recovery.is_active() => {}
            Some(_) | None => self.board.deem_lost_below(extent.end),
        }
    }
}
