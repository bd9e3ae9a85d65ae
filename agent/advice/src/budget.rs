//! A network's budget in one application: what its starts reserve and release, and their losses. The kernel's starts have the
//! same rules (the agent's `budget.h`).

use std::net::IpAddr;

use spand_proto::units::{Micros, Segments, Timestamp};

/// First flights in a row of which more than half must have been lost for advice to be held back. One client's hold back its own advice;
/// for its network no more than half of these count, so that it takes two clients.
const LOSSES_TO_RETREAT: u32 = 6;
const LOSSES_OF_ONE: u32 = LOSSES_TO_RETREAT / 2;
/// For how long it is.
const PENALTY: Micros = Micros::from_secs(5);
/// A half of a budget, where no round trip is known.
const USUAL_RTT: Micros = Micros::from_millis(100);

/// Round trips after which a jump does not stand in another one's way, whatever became of its connection.
const RESUME_ROUNDS: u64 = 8;

/// What starts have reserved. A half lasts two round trips: a first flight ends within it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    now: u32,
    before: u32,
    /// Which of those that the table has made it is: a reservation of an earlier one does not count in this one.
    era: u64,
    turned: Timestamp,
    turns: u64,
    losses: u32,
    lost: Timestamp,
    lost_by: Option<IpAddr>,
    losses_of_one: u32,
    /// Until when a connection may resume carefully, where one does.
    resuming: Timestamp,
    claims: u64,
    /// Until when none may, since one had to retreat.
    forbidden: Timestamp,
}

/// The right of one connection to jump.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Claim {
    era: u64,
    number: u64,
}

/// Segments that one start has reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    era: u64,
    segments: u32,
    turn: u64,
}

impl Budget {
    pub(crate) fn of_era(era: u64) -> Self {
        Self { era, ..Self::default() }
    }

    fn turn(&mut self, now: Timestamp, rtt: Option<Micros>) {
        let half = Micros(rtt.filter(|rtt| rtt.0 > 0).unwrap_or(USUAL_RTT).0.saturating_mul(2));
        let passed = now.since(self.turned);
        if passed < half {
            return;
        }
        self.before = if passed.0 < half.0.saturating_mul(2) { self.now } else { 0 };
        (self.now, self.turned) = (0, now);
        // Two halves passed where both are over: a reservation of either is over as well.
        self.turns += if self.before == 0 { 2 } else { 1 };
    }

    /// What is left of a lease.
    pub(crate) fn left(&mut self, lease: Segments, now: Timestamp, rtt: Option<Micros>) -> Segments {
        self.turn(now, rtt);
        Segments(lease.0.saturating_sub(self.now.saturating_add(self.before)))
    }

    /// Reserves segments above the initial window.
    pub(crate) fn reserve(&mut self, segments: u32) -> Reservation {
        self.now = self.now.saturating_add(segments);
        Reservation { era: self.era, segments, turn: self.turns }
    }

    /// Gives them back, where their half is not over.
    pub(crate) fn release(&mut self, reservation: Reservation) {
        if reservation.era != self.era {
            return;
        }
        match self.turns.saturating_sub(reservation.turn) {
            0 => self.now = self.now.saturating_sub(reservation.segments),
            1 => self.before = self.before.saturating_sub(reservation.segments),
            _ => {}
        }
    }

    /// A connection jumps by Careful Resume, where no other one does.
    pub(crate) fn claim(&mut self, now: Timestamp, rtt: Option<Micros>) -> Option<Claim> {
        if now < self.resuming.max(self.forbidden) {
            return None;
        }
        self.resuming = now.after(Micros(rtt.unwrap_or(USUAL_RTT).0.saturating_mul(RESUME_ROUNDS)));
        self.claims += 1;
        Some(Claim { era: self.era, number: self.claims })
    }

    /// Ends a claim whose jump is validated, or was not made. A later claim of another connection stays.
    pub(crate) fn end_claim(&mut self, claim: Claim) {
        if claim == (Claim { era: self.era, number: self.claims }) {
            self.resuming = Timestamp::default();
        }
    }

    /// A connection had to retreat: none jumps before `until`.
    pub(crate) fn forbid(&mut self, until: Timestamp) {
        self.forbidden = self.forbidden.max(until);
    }

    /// The first flight to a client is over.
    pub(crate) fn on_first_flight(&mut self, client: IpAddr, mostly_lost: bool, now: Timestamp) {
        let same = self.lost_by == Some(client);
        if !mostly_lost {
            self.losses = 0;
            if same {
                self.losses_of_one = 0;
            }
            return;
        }
        let is_late = now.since(self.lost) >= PENALTY;
        let losses = if is_late { 0 } else { self.losses };
        let of_one = if is_late || !same { 0 } else { self.losses_of_one };
        self.losses = (losses + u32::from(of_one < LOSSES_OF_ONE)).min(LOSSES_TO_RETREAT);
        self.losses_of_one = (of_one + 1).min(LOSSES_TO_RETREAT);
        (self.lost, self.lost_by) = (now, Some(client));
    }

    /// Whether a client's advice is held back.
    pub(crate) fn is_held_back(&self, client: IpAddr, now: Timestamp) -> bool {
        let own = self.lost_by == Some(client) && self.losses_of_one >= LOSSES_TO_RETREAT;
        now.since(self.lost) < PENALTY && (own || self.losses >= LOSSES_TO_RETREAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Option<Micros> = Some(Micros::from_millis(10));

    fn at_ms(ms: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + 1_000 * ms)
    }

    #[test]
    fn a_reservation_ends_with_its_release_or_after_two_halves() {
        let mut budget = Budget::default();
        let lease = Segments(50);
        assert_eq!(budget.left(lease, at_ms(0), RTT), lease);
        let first = budget.reserve(30);
        let second = budget.reserve(20);
        assert_eq!(budget.left(lease, at_ms(5), RTT), Segments(0));
        budget.release(first);
        assert_eq!(budget.left(lease, at_ms(5), RTT), Segments(30));
        // In the second half what the first one reserved still counts, and its release too.
        assert_eq!(budget.left(lease, at_ms(25), RTT), Segments(30));
        budget.release(second);
        assert_eq!(budget.left(lease, at_ms(25), RTT), lease);
        let third = budget.reserve(50);
        assert_eq!(budget.left(lease, at_ms(44), RTT), Segments(0));
        assert_eq!(budget.left(lease, at_ms(90), RTT), lease, "over by itself");
        let fourth = budget.reserve(10);
        budget.release(third);
        assert_eq!(budget.left(lease, at_ms(90), RTT), Segments(40), "what is over releases nothing of others");
        budget.release(fourth);
        assert_eq!(budget.left(lease, at_ms(90), RTT), lease);
    }

    #[test]
    fn six_lost_first_flights_in_a_row_hold_advice_back_for_five_seconds() {
        let [one, other]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let mut budget = Budget::default();
        for flight in 0..6 {
            assert!(!budget.is_held_back(one, at_ms(flight)), "{flight}");
            budget.on_first_flight(one, true, at_ms(flight));
        }
        assert!(budget.is_held_back(one, at_ms(5_004)) && !budget.is_held_back(one, at_ms(5_005)));
        assert!(!budget.is_held_back(other, at_ms(10)), "one client holds back its own alone");
        (0..3).for_each(|flight| budget.on_first_flight(other, true, at_ms(10 + flight)));
        assert!(budget.is_held_back([192, 0, 2, 3].into(), at_ms(20)), "two hold back the network's");
        budget.on_first_flight(one, true, at_ms(6_000));
        assert!(!budget.is_held_back(other, at_ms(6_000)), "counted from one again");
        (0..2).for_each(|flight| budget.on_first_flight(one, true, at_ms(6_001 + flight)));
        budget.on_first_flight(other, false, at_ms(6_010));
        (0..3).for_each(|flight| budget.on_first_flight(other, true, at_ms(6_011 + flight)));
        assert!(!budget.is_held_back(other, at_ms(6_020)), "one that arrived begins the count again");
    }
}
