//! `DupThresh` of a sender without SACK: three, until it detects reordering; then more, since a timeout clears the duplicates
//! before the sender would detect it (`tcp_timeout_mark_lost`, `tcp_enter_loss`).

use spand_proto::units::Timestamp;

use super::{DUP_THRESH, Progress};

/// Linux's upper bound (`net.ipv4.tcp_max_reordering`).
const MOST: u16 = 300;

/// The counts of a sender without SACK after an acknowledgement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counted {
    /// Segments outstanding.
    pub(crate) outstanding: u16,
    /// Of them, those that count as lost.
    pub(crate) lost: u16,
    /// Segments acknowledged with it.
    pub(crate) acked: u16,
}

/// `DupThresh` of a sender without SACK.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Threshold {
    /// `tp->reordering`, if it is not three.
    raised: Option<u16>,
    /// Packets that pass the tap later were sent after as many duplicates had reached the sender.
    reached_at: Timestamp,
}

impl Counted {
    /// Most segments that can have arrived: all but the lost ones, at least one (`tcp_limit_reno_sacked`).
    fn most(self) -> u16 {
        self.outstanding.saturating_sub(self.lost.max(1))
    }
}

impl Threshold {
    pub(super) fn get(&self) -> u16 {
        self.raised.unwrap_or(DUP_THRESH)
    }

    /// One duplicate more than `before`: returns their number. More than can have arrived show reordering
    /// (`tcp_check_reno_reordering`).
    pub(super) fn another(&mut self, before: u16, progress: &Progress) -> u16 {
        let mut duplicates = before.saturating_add(1);
        if let Some(counted) = progress.counted.filter(|counted| duplicates > counted.most()) {
            duplicates = counted.most();
            self.raised = Some(counted.outstanding.min(MOST));
        }
        if duplicates == self.get() {
            self.reached_at = progress.answer_at;
        }
        duplicates
    }

    /// The acknowledgement advanced: returns how many of the duplicates `before` remain. It covers those of all segments that it
    /// acknowledges but the hole (`tcp_remove_reno_sacks`).
    pub(super) fn advanced(&mut self, before: u16, progress: &Progress) -> u16 {
        let Some(counted) = progress.counted else { return 0 };
        let left = before.saturating_sub(counted.acked.saturating_sub(1));
        if counted.outstanding > 0 && left > counted.most() {
            self.raised = Some(counted.outstanding.saturating_add(counted.acked).min(MOST));
        }
        left
    }

    /// New data passed the tap at `at`. Retransmissions precede new data, so the `DupThresh` of a sender with `duplicates` is higher:
    /// perhaps because of reordering on earlier connections.
    pub(super) fn sent_new(&mut self, at: Timestamp, duplicates: u16) {
        if duplicates >= self.get() && at >= self.reached_at {
            self.raised = Some(duplicates.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::recovery::AckKind;

    fn progress(kind: AckKind, outstanding: u16, lost: u16, acked: u16) -> Progress {
        Progress { kind, counted: Some(Counted { outstanding, lost, acked }), ..Progress::default() }
    }

    #[test]
    fn more_duplicates_than_can_be_about_what_is_outstanding_are_taken_for_reordering() {
        let mut threshold = Threshold::default();
        assert_eq!(threshold.another(2, &progress(AckKind::Duplicate, 4, 1, 0)), 3);
        assert_eq!(threshold.get(), DUP_THRESH, "three of four may have arrived");
        assert_eq!(threshold.another(3, &progress(AckKind::Duplicate, 4, 1, 0)), 3);
        assert_eq!(threshold.get(), 4);
        assert_eq!(threshold.another(2, &progress(AckKind::Duplicate, 25, 23, 0)), 2, "23 of 25 are lost");
        assert_eq!(threshold.get(), 25);
        assert_eq!(threshold.another(3, &progress(AckKind::Duplicate, 999, 999, 0)), 0);
        assert_eq!(threshold.get(), MOST);
    }

    #[test]
    fn an_advance_removes_the_duplicates_of_what_it_acknowledges() {
        let mut threshold = Threshold::default();
        assert_eq!(threshold.advanced(11, &progress(AckKind::Advance, 12, 1, 1)), 11, "it acknowledges the hole alone");
        assert_eq!(threshold.advanced(11, &progress(AckKind::Advance, 8, 1, 5)), 7);
        assert_eq!(threshold.get(), DUP_THRESH);
        assert_eq!(threshold.advanced(11, &progress(AckKind::Advance, 5, 1, 5)), 7);
        assert_eq!(threshold.get(), 10, "more duplicates than segments left");
        assert_eq!(threshold.advanced(3, &Progress::default()), 0, "with SACK");
    }

    #[test]
    fn new_data_after_as_many_duplicates_raises_the_threshold() {
        let mut threshold = Threshold::default();
        let third = Progress { answer_at: Timestamp(500), ..progress(AckKind::Duplicate, 20, 1, 0) };
        assert_eq!(threshold.another(2, &third), 3);
        threshold.sent_new(Timestamp(499), 3);
        assert_eq!(threshold.get(), DUP_THRESH, "it was sent before the third arrived");
        threshold.sent_new(Timestamp(500), 3);
        assert_eq!(threshold.get(), 4);
    }
}
