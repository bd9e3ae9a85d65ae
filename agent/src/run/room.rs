//! When the log has a line about a table of networks that is full.

use spand_proto::units::{Micros, Timestamp};

/// Time between two lines.
const REMINDER: Micros = Micros::from_secs(600);

/// What was logged.
#[derive(Debug, Default)]
pub(super) struct RoomWatch {
    counted: u64,
    logged: Option<Timestamp>,
}

impl RoomWatch {
    /// Takes the number of networks so far that had no room, where the table is full. Gives how many are new, when that is worth a line.
    pub(super) fn on_tick(&mut self, without_room: u64, now: Timestamp) -> Option<u64> {
        let new = without_room.saturating_sub(self.counted);
        if new == 0 || self.logged.is_some_and(|logged| now.since(logged) < REMINDER) {
            return None;
        }
        (self.counted, self.logged) = (without_room, Some(now));
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_is_a_line_at_once_and_every_ten_minutes_while_it_lasts() {
        let mut room = RoomWatch::default();
        let at = |second: u64| Timestamp::from_micros(1_000_000 * (1 + second));
        let lines: Vec<_> = (0..1_300).filter_map(|second| room.on_tick(5 * (second + 1), at(second))).collect();
        assert_eq!(lines, [5, 3_000, 3_000]);
        assert_eq!(room.on_tick(6_500, at(2_000)), Some(495));
        assert_eq!(room.on_tick(6_500, at(9_000)), None, "nothing new");
    }
}
