//! The largest value of the last so many round trips, from three remembered ones (Kathleen Nichols' windowed filter, as in Linux's
//! `win_minmax.c`).

/// Best, second and third best in order of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxFilter {
    best: [(u32, u32); 3],
}

impl MaxFilter {
    /// 0 before the first.
    pub(super) fn max(&self) -> u32 {
        self.best[0].1
    }

    /// Adds `value` of round trip `round`; values older than `rounds` no longer count.
    pub(super) fn add(&mut self, round: u32, rounds: u32, value: u32) {
        let new = (round, value);
        let [first, second, third] = &mut self.best;
        if value >= first.1 || round.saturating_sub(third.0) > rounds {
            self.best = [new; 3];
            return;
        }
        if value >= second.1 {
            (*second, *third) = (new, new);
        } else if value >= third.1 {
            *third = new;
        }
        let age = round.saturating_sub(first.0);
        if age > rounds {
            (*first, *second, *third) = (*second, *third, new);
            if round.saturating_sub(first.0) > rounds {
                (*first, *second, *third) = (*second, *third, new);
            }
        } else if second.0 == first.0 && age > rounds / 4 {
            (*second, *third) = (new, new);
        } else if third.0 == second.0 && age > rounds / 2 {
            *third = new;
        }
    }
}
