//! Rates and their windowed maximum, in the kernel's unit, so that rounding is the same: packets per microsecond, times 2^24
//! (`BW_SCALE`).

use spand_proto::units::Micros;

const SCALE: u32 = 24;
/// Pacing rate as a percentage of the rate.
const PACED_PERCENT: u64 = 99;

/// `bytes` of segments of `mss` in `us` microseconds.
pub(super) fn of(bytes: u64, mss: u32, us: u64) -> u32 {
    let packets = (bytes.min(u64::from(u32::MAX)) << SCALE) / u64::from(mss.max(1));
    u32::try_from(packets / us.max(1)).unwrap_or(u32::MAX)
}

/// The rate of a sender that paces `bytes` of segments of `mss` over `us` microseconds.
pub(super) fn of_paced(bytes: u64, mss: u32, us: u64) -> u32 {
    of(bytes.saturating_mul(100) / PACED_PERCENT, mss, us)
}

/// Segments at `rate` in `time`, with fraction.
pub(super) fn segments_in(rate: u32, time: Micros) -> f64 {
    f64::from(rate) * time.0 as f64 / f64::from(1_u32 << SCALE)
}

/// The largest value of the last N round trips, from three samples (Kathleen Nichols' windowed filter, as in Linux's
/// `win_minmax.c`): best, second and third best in order of time.
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
