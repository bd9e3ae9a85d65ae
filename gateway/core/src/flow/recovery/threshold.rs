//! For how many duplicates a sender without SACK waits: three, until it takes what it saw for reordering; from then on more, since a
//! timeout forgets the duplicates before it would doubt them (`tcp_timeout_mark_lost`, `tcp_enter_loss`).

use spand_proto::units::Timestamp;

use super::{DUP_THRESH, Progress};

/// Linux never waits for more (`net.ipv4.tcp_max_reordering`).
const MOST: u16 = 300;

/// What a sender without SACK counts, after an acknowledgement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counted {
    /// Segments outstanding.
    pub(crate) outstanding: u16,
    /// Of them, those that count as lost.
    pub(crate) lost: u16,
    /// Segments acknowledged with it.
    pub(crate) acked: u16,
}

/// Duplicates that a sender without SACK waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Threshold {
    /// `tp->reordering`, where it is not three.
    raised: Option<u16>,
    /// What passes the tap from then on was sent by a sender that knew of so many.
    reached_at: Timestamp,
}

impl Counted {
    /// How many can have arrived at most: all but what is lost, at least one (`tcp_limit_reno_sacked`).
    fn most(self) -> u16 {
        self.outstanding.saturating_sub(self.lost.max(1))
    }
}

impl Threshold {
    pub(super) fn get(&self) -> u16 {
        self.raised.unwrap_or(DUP_THRESH)
    }

    /// One duplicate more than `before`: how many there are. More than can be about what is outstanding are taken for
    /// reordering (`tcp_check_reno_reordering`).
    pub(super) fn another(&mut self, before: u16, progress: &Progress) -> u16 {
        let mut duplicates = before.saturating_add(1);
        if let Some(counted) = progress.counted.filter(|counted| duplicates > counted.most()) {
            duplicates = counted.most();
            self.raised = Some(counted.outstanding.min(MOST));
        }
        if duplicates == self.get() {
            self.reached_at = progress.heard_at;
        }
        duplicates
    }

    /// The acknowledgement advanced: how many of the duplicates `before` told of what it leaves outstanding. All that it acknowledges
    /// but the hole was told of (`tcp_remove_reno_sacks`).
    pub(super) fn advanced(&mut self, before: u16, progress: &Progress) -> u16 {
        let Some(counted) = progress.counted else { return 0 };
        let left = before.saturating_sub(counted.acked.saturating_sub(1));
        if counted.outstanding > 0 && left > counted.most() {
            self.raised = Some(counted.outstanding.saturating_add(counted.acked).min(MOST));
        }
        left
    }

    /// New data passed the tap at `at`. A repeat leaves before anything new, so a sender that knew of `duplicates` waits for more:
    /// it may know of reordering from earlier connections.
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
    fn an_advance_takes_along_the_duplicates_that_told_of_it() {
        let mut threshold = Threshold::default();
        assert_eq!(threshold.advanced(11, &progress(AckKind::Advance, 12, 1, 1)), 11, "it acknowledges the hole alone");
        assert_eq!(threshold.advanced(11, &progress(AckKind::Advance, 8, 1, 5)), 7);
        assert_eq!(threshold.get(), DUP_THRESH);
        assert_eq!(threshold.advanced(11, &progress(AckKind::Advance, 5, 1, 5)), 7);
        assert_eq!(threshold.get(), 10, "more were told of than are left");
        assert_eq!(threshold.advanced(3, &Progress::default()), 0, "with SACK");
    }

    #[test]
    fn new_data_after_as_many_duplicates_says_that_it_waits_for_more() {
        let mut threshold = Threshold::default();
        let third = Progress { heard_at: Timestamp(500), ..progress(AckKind::Duplicate, 20, 1, 0) };
        assert_eq!(threshold.another(2, &third), 3);
        threshold.sent_new(Timestamp(499), 3);
        assert_eq!(threshold.get(), DUP_THRESH, "it had left before the third was heard");
        threshold.sent_new(Timestamp(500), 3);
        assert_eq!(threshold.get(), 4);
    }
}
