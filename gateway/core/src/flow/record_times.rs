//! Whether the times of a connection's packet records hold: where they do not, nothing that rests on them is a finding.

use spand_proto::units::Micros;

use crate::counters::Ignored;

/// Records of one connection that are less than this apart are in order: so far apart are stamps of processors that receive at once.
const TOLERATED: Micros = Micros(1_000);

/// Records in order that make up for one that is not.
const IN_ORDER_FOR_ONE: u16 = 1_000;

/// From this many out of order on, findings of a connection do not hold.
const TOO_MANY: u16 = 2;

/// Faults in the times of one connection's records: a score, to which each record out of order adds [`IN_ORDER_FOR_ONE`] and from which
/// each record in order takes one; or a mark that one record held no time. Every connection has one, so it has two bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordTimes(u16);

/// A record held no time.
const UNTIMED: u16 = u16::MAX;

impl RecordTimes {
    /// A record held no time.
    pub(crate) fn note_untimed(&mut self) {
        self.0 = UNTIMED;
    }

    /// A record came in order.
    #[inline]
    pub(crate) fn note_in_order(&mut self) {
        if self.0 != UNTIMED {
            self.0 = self.0.saturating_sub(1);
        }
    }

    /// A record came this long after a later one of its connection.
    #[cold]
    pub(crate) fn note_late(&mut self, by: Micros) {
        if by > TOLERATED && self.0 != UNTIMED {
            self.0 = self.0.saturating_add(IN_ORDER_FOR_ONE).min(UNTIMED - 1);
        }
    }

    /// What is wrong with them.
    #[inline]
    pub(crate) fn fault(self) -> Option<Ignored> {
        match self.0 {
            UNTIMED => Some(Ignored::Untimed),
            disorder => (disorder > (TOO_MANY - 1) * IN_ORDER_FOR_ONE).then_some(Ignored::Unordered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_late_record_is_forgiven_and_two_are_once_many_came_in_order() {
        let mut times = RecordTimes::default();
        times.note_late(TOLERATED);
        assert_eq!((times.0, times.fault()), (0, None));
        times.note_late(Micros(1_001));
        assert_eq!(times.fault(), None);
        times.note_in_order();
        times.note_late(Micros(5_000_000));
        assert_eq!(times.fault(), Some(Ignored::Unordered));
        (0..999).for_each(|_| times.note_in_order());
        assert_eq!(times.fault(), None);
        times.note_untimed();
        assert_eq!(times.fault(), Some(Ignored::Untimed));
    }
}
