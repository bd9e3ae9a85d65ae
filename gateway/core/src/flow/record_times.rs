//! Whether the times of a connection's packet records hold: where they do not, nothing that rests on them is a finding.

use crate::counters::Ignored;

/// What is known of the times of one connection's records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordTimes {
    /// A record held no time.
    untimed: bool,
}

impl RecordTimes {
    /// Takes one more record; `timed` where it holds a time.
    pub(crate) fn take(&mut self, timed: bool) {
        self.untimed |= !timed;
    }

    /// What is wrong with them.
    pub(crate) fn fault(self) -> Option<Ignored> {
        self.untimed.then_some(Ignored::Untimed)
    }
}
