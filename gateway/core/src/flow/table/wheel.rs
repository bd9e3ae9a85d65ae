//! Timers of connections: a wheel that turns with packet time.
//!
//! A timer says "look at this connection then" and never when it is due: a connection that moved its deadline on is
//! looked at, found not due and put back. So arming costs nothing per packet and cancelling nothing at all.

use spand_proto::units::Timestamp;

use crate::recency::{Ends, Links, index};

/// Nanoseconds of a tick as a power of two: 16.8 ms.
pub(crate) const TICK_BITS: u32 = 24;
/// Slots; a deadline beyond the last one is looked at there and put back.
const SLOTS: u64 = 256;
/// Words of 64 bits, one for each slot.
const OCCUPIED_WORDS: usize = 4;

/// The wheel.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The entries whose timers are in each slot.
    slots: Vec<Ends>,
    links: Links,
    /// The slot that the timer of each entry is in.
    armed_in: Vec<Option<u16>>,
    /// Bit by bit, which slots hold a timer.
    occupied: [u64; OCCUPIED_WORDS],
    tick: u64,
    armed: usize,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Ends::default()).collect(),
            links: Links::default(),
            armed_in: Vec::new(),
            occupied: [0; OCCUPIED_WORDS],
            tick: 0,
            armed: 0,
        }
    }

    /// Sets the timer of an entry to `deadline`, at least one tick ahead, unless it is armed already.
    pub(super) fn arm(&mut self, entry: u32, deadline: Timestamp) {
        if self.armed_in.len() <= index(entry) {
            self.armed_in.resize(index(entry) + 1, None);
        }
        let slot = slot((tick_of(deadline) + 1).clamp(self.tick + 1, self.tick + SLOTS - 1));
        let Some(armed_in @ None) = self.armed_in.get_mut(index(entry)) else { return };
        *armed_in = Some(slot);
        self.change(slot, |links, ends| links.push(ends, entry));
        self.armed += 1;
    }

    pub(super) fn disarm(&mut self, entry: u32) {
        let Some(slot) = self.armed_in.get_mut(index(entry)).and_then(Option::take) else { return };
        self.change(slot, |links, ends| links.remove(ends, entry));
        self.armed -= 1;
    }

    fn change(&mut self, slot: u16, change: impl FnOnce(&mut Links, &mut Ends)) {
        let slot = usize::from(slot);
        let (Some(ends), Some(word)) = (self.slots.get_mut(slot), self.occupied.get_mut(slot / 64)) else { return };
        change(&mut self.links, ends);
        let bit = 1 << (slot % 64);
        *word = if ends.last.is_some() { *word | bit } else { *word & !bit };
    }

    /// An entry whose timer is due at `now`, the one armed last in its slot; it is not armed any more.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<u32> {
        loop {
            // No timer is set to the slot that the wheel stands at.
            if let Some(entry) = self.slots.get(usize::from(slot(self.tick))).and_then(|ends| ends.last) {
                self.disarm(entry);
                return Some(entry);
            }
            self.turn(now)?;
        }
    }

    /// Turns by one slot towards `now`; `None` once it is there.
    fn turn(&mut self, now: Timestamp) -> Option<()> {
        let target = tick_of(now);
        if self.tick >= target {
            return None;
        }
        // After a long silence one full turn reaches every slot.
        let next = (self.tick + 1).max(target.saturating_sub(SLOTS - 1));
        self.tick = if self.armed == 0 { target } else { next };
        Some(())
    }

    /// Whether the end of a slot that holds a timer may have come by `now`: as good as [`Self::next_due`] within a tick, and cheaper.
    pub(super) fn may_be_due(&self, now: Timestamp) -> bool {
        self.armed > 0 && tick_of(now) > self.tick
    }

    /// The end of the next slot that holds a timer.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let next = self.tick + 1;
        let ahead = self.occupied_after(usize::from(slot(next)))?;
        Some(Timestamp((next + ahead) << TICK_BITS))
    }

    /// Slots from `first` on, round the wheel, to the next one that holds a timer.
    fn occupied_after(&self, first: usize) -> Option<u64> {
        let (word, bit) = (first / 64, first % 64);
        // The word that `first` lies in comes first without its lower bits, and again with them after all others.
        (0..=OCCUPIED_WORDS).find_map(|step| {
            let mut bits = *self.occupied.get((word + step) % OCCUPIED_WORDS)?;
            if step == 0 {
                bits &= u64::MAX << bit;
            }
            let ahead = (step * 64 + bits.trailing_zeros() as usize).checked_sub(bit)?;
            (bits != 0).then_some(ahead as u64)
        })
    }
}

fn tick_of(at: Timestamp) -> u64 {
    at.0 >> TICK_BITS
}

fn slot(tick: u64) -> u16 {
    u16::try_from(tick % SLOTS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_next_timer_is_found_wherever_the_wheel_stands(
            tick in 0..1_000_u64,
            taken in prop::collection::btree_set(1..SLOTS, 0..5),
            given_back in prop::collection::btree_set(1..SLOTS, 0..5),
        ) {
            let mut wheel = Wheel::new();
            wheel.turn(Timestamp(tick << TICK_BITS));
            for ahead in &taken {
                wheel.arm(u32::try_from(*ahead).unwrap(), Timestamp((tick + ahead - 1) << TICK_BITS));
            }
            for ahead in &given_back {
                wheel.disarm(u32::try_from(*ahead).unwrap());
            }
            let expected = taken.difference(&given_back).next().map(|ahead| Timestamp((tick + ahead) << TICK_BITS));
            prop_assert_eq!(wheel.next_due(), expected);
            for now in (tick..tick + 2 * SLOTS).map(|tick| Timestamp(tick << TICK_BITS)) {
                prop_assert!(wheel.may_be_due(now) || expected.is_none_or(|due| due > now));
            }
        }
    }
}
