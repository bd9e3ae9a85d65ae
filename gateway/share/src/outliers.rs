//! Taps whose samples lie far from what all others saw, as people are warned of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spand_cells::{Outliers, TapId};

use super::engine_end::EngineCounts;

/// Between two warnings of one tap.
const AGAIN: Duration = Duration::from_secs(3_600);
/// Taps that are remembered.
const MOST: usize = 1_024;

/// What was warned of.
#[derive(Debug, Default)]
pub(super) struct Warned {
    of: BTreeMap<TapId, Instant>,
    /// How often a network's share began to be pulled, by tap.
    begun: BTreeMap<TapId, u64>,
}

/// A tap to warn of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Warning {
    pub(super) tap: TapId,
    pub(super) last: Outliers,
}

impl Warning {
    /// In a sentence.
    pub(super) fn sentence(&self) -> String {
        let Outliers { network, last, .. } = self.last;
        let ends = if last.is_left_out {
            "its samples of such networks do not count"
        } else {
            "they move a share by a tenth at most where this gateway's own tap saw enough"
        };
        format!(
            "window samples of {} for {network} are on average {:.2} times those of all others: {ends}. If it was taken over, remove its user at \
             the servers",
            name(self.tap),
            last.factor
        )
    }
}

/// A tap as people know it.
pub(super) fn name(tap: TapId) -> String {
    match tap.group() {
        Some(group) => format!("mirror group {group}"),
        None => format!("gateway {}", tap.0),
    }
}

impl Warned {
    /// Whom to warn of.
    pub(super) fn take(&mut self, engines: &[EngineCounts], now: Instant) -> Vec<Warning> {
        let mut all = BTreeMap::<TapId, Outliers>::new();
        for (tap, of) in engines.iter().flat_map(|counts| &counts.table.outliers) {
            let sum = all.entry(*tap).or_insert(Outliers { begun: 0, ..*of });
            *sum = Outliers { begun: sum.begun.saturating_add(of.begun), ..*of };
        }
        let mut warnings = Vec::new();
        for (tap, last) in all {
            let is_new = self.begun.insert(tap, last.begun) != Some(last.begun);
            let is_time = self.of.get(&tap).is_none_or(|at| now.duration_since(*at) >= AGAIN);
            if is_new && is_time && (self.of.len() < MOST || self.of.contains_key(&tap)) {
                self.of.insert(tap, now);
                warnings.push(Warning { tap, last });
            }
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use spand_cells::Outlier;

    use super::*;

    #[test]
    fn a_tap_is_warned_of_once_an_hour_while_more_networks_are_pulled() {
        let network = "203.0.113.0/24".parse().unwrap();
        let counts = |begun| {
            let last = Outlier { tap: TapId(7), factor: 18.25, is_left_out: true };
            let mut counts = EngineCounts::default();
            counts.table.outliers.insert(TapId(7), Outliers { begun, network, last });
            [counts.clone(), counts]
        };
        let (mut warned, now) = (Warned::default(), Instant::now());
        let first = warned.take(&counts(1), now);
        assert_eq!(first.iter().map(|warning| warning.last.begun).collect::<Vec<_>>(), [2]);
        let sentence = first[0].sentence();
        assert!(
            sentence.starts_with("window samples of gateway 7 for 203.0.113.0/24 are on average 18.25 times"),
            "{sentence}"
        );
        assert_eq!(warned.take(&counts(1), now + AGAIN), [], "nothing began since");
        assert_eq!(warned.take(&counts(2), now + AGAIN / 2), [], "within the hour");
        assert_eq!(warned.take(&counts(3), now + AGAIN).len(), 1);
    }
}
