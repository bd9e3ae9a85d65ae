//! The long-term rate: on a path with a policer BBR uses the rate that passed it, not the largest recent one
//! (`bbr_lt_bw_sampling`).
//!
//! From the first loss on it measures intervals of at least four round trips that end with a loss. Two in a row with about the same
//! rate, in which a fifth was lost, indicate a policer: that rate is used for 48 round trips.

use spand_proto::units::Timestamp;

use super::rate;

/// Shortest interval in round trips, and longest.
const ROUNDS_LEAST: u8 = 4;
const ROUNDS_MOST: u8 = 4 * ROUNDS_LEAST;
/// Lost part of what is delivered from which on there may be a policer, in 256ths.
const LOSSY: u64 = 50;
/// Two rates are about the same within this part, or within these bytes per second.
const ALIKE_PART: u64 = 8;
const ALIKE_BYTES: u64 = 500;
/// Round trips for which the rate is used.
const USED_ROUNDS: u8 = 48;

/// The state at a rate sample or a timeout.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four facts that do not hang together")]
pub(super) struct Standing {
    /// When data was last delivered.
    pub(super) delivered_at: Timestamp,
    pub(super) delivered_bytes: u64,
    pub(super) ever_lost_bytes: u64,
    /// Something is newly marked lost.
    pub(super) loses: bool,
    pub(super) new_round: bool,
    pub(super) app_limited: bool,
    /// It is in `PROBE_BW`.
    pub(super) cycling: bool,
    pub(super) mss: u32,
}

/// The detection of a policer's rate.
#[derive(Clone, Debug, Default)]
pub(super) struct LongTerm {
    /// Of the last interval, or in use; 0 for none.
    rate: u32,
    used: bool,
    sampling: bool,
    rounds: u8,
    /// Start of the interval: milliseconds, bytes delivered, bytes lost.
    since: (u64, u64, u64),
}

impl LongTerm {
    /// The rate that replaces the largest recent one.
    pub(super) fn rate(&self) -> Option<u32> {
        self.used.then_some(self.rate)
    }

    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(super) fn take(&mut self, now: &Standing) {
        if self.used {
            if now.cycling && now.new_round {
                self.rounds += 1;
                if self.rounds >= USED_ROUNDS {
                    self.forget();
                }
            }
            return;
        }
        if !self.sampling {
            if !now.loses {
                return;
            }
            self.begin(now);
            self.sampling = true;
        }
        if now.app_limited {
            return self.forget();
        }
        self.rounds += u8::from(now.new_round);
        if self.rounds < ROUNDS_LEAST {
            return;
        }
        if self.rounds > ROUNDS_MOST {
            return self.forget();
        }
        if !now.loses {
            return;
        }
        let (since_ms, delivered_before, lost_before) = self.since;
        let lost = now.ever_lost_bytes.saturating_sub(lost_before);
        let delivered = now.delivered_bytes.saturating_sub(delivered_before);
        let took_ms = ms(now.delivered_at).saturating_sub(since_ms);
        if delivered == 0 || lost.saturating_mul(rate::UNIT) < LOSSY.saturating_mul(delivered) || took_ms == 0 {
            return;
        }
        self.end_interval(rate::of(delivered, now.mss, took_ms * 1_000), now);
    }

    fn begin(&mut self, now: &Standing) {
        self.since = (ms(now.delivered_at), now.delivered_bytes, now.ever_lost_bytes);
        self.rounds = 0;
    }

    fn end_interval(&mut self, new: u32, now: &Standing) {
        let apart = new.abs_diff(self.rate);
        let alike = u64::from(apart) * ALIKE_PART <= u64::from(self.rate)
            || rate::paced(apart, now.mss, rate::UNIT) <= ALIKE_BYTES;
        if self.rate > 0 && alike {
            self.rate = u32::try_from(u64::midpoint(u64::from(new), u64::from(self.rate))).unwrap_or(u32::MAX);
            self.used = true;
            self.rounds = 0;
            return;
        }
        self.rate = new;
        self.begin(now);
    }
}

fn ms(at: Timestamp) -> u64 {
    at.0 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round trips of 100 ms in each of which `kilobytes` are delivered and a quarter as much is lost; returns after how many the rate
    /// is first used, and for how many.
    fn used(rounds: u64, kilobytes: impl Fn(u64) -> u64, app_limited: impl Fn(u64) -> bool) -> (Option<u64>, usize) {
        let mut long_term = LongTerm::default();
        let (mut delivered, mut lost, mut used) = (0, 0, Vec::new());
        for round in 1..=rounds {
            delivered += kilobytes(round) * 1_000;
            lost += kilobytes(round) * 250;
            long_term.take(&Standing {
                delivered_at: Timestamp::from_micros(round * 100_000),
                delivered_bytes: delivered,
                ever_lost_bytes: lost,
                loses: true,
                new_round: true,
                app_limited: app_limited(round),
                cycling: true,
                mss: 1_000,
            });
            used.extend(long_term.rate().map(|_| round));
        }
        (used.first().copied(), used.len())
    }

    #[test]
    fn two_lossy_intervals_of_the_same_rate_name_a_policer_for_48_round_trips() {
        // The first round trip begins the first interval and is counted in it; the interval after it has four of its own.
        assert_eq!(used(60, |_| 40, |_| false), (Some(8), 48));
        assert_eq!(used(8 + 47, |_| 40, |_| false), (Some(8), 48));
        assert_eq!(used(8 + 48, |_| 40, |_| false), (Some(8), 48), "then it is forgotten");
    }

    #[test]
    fn rates_apart_or_of_an_application_name_none() {
        assert_eq!(used(12, |round| 40 << (round / 4), |_| false), (None, 0));
        assert_eq!(used(12, |_| 40, |round| round % 3 == 0), (None, 0));
    }
}
