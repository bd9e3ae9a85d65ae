//! The targets, and what was found beside them.

use crate::benefit::scenario::Question;

/// A figure held against its target.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) what: String,
    pub(super) found: String,
    pub(super) target: String,
    /// How far beyond the target, in the figure's unit; below zero where it is met.
    pub(super) beyond: f64,
}

impl Finding {
    pub(super) fn is_missed(&self) -> bool {
        self.beyond > 0.0
    }
}

/// How much longer what shall not be worse may take.
pub(super) const WORSE_MOST: f64 = 0.02;
/// How much longer transfers beside advised ones may take than among their own kind.
pub(super) const NEIGHBOUR_WORSE_MOST: f64 = 0.12;
/// The same on paths that deliver unevenly, police or lose.
pub(super) const ROUGH_WORSE_MOST: f64 = 0.05;
/// How much longer a size may take in a crowd on advice than in one without.
pub(super) const CROWD_WORSE_MOST: f64 = 0.05;
/// Change of the time over the bound in a crowd, all sizes together.
pub(super) const CROWD_OVER_BOUND: f64 = -0.15;
/// How far neighbours of advised transfers may be from what they take among their own kind.
pub(super) const CROWD_NEIGHBOURS_OFF: f64 = 0.08;
/// How far one flow alone may be from its target.
const ALONE_OFF: f64 = 0.02;

/// Changes in per cent for one flow of 30, 50, 70 and 100 KB; ten kilobytes fit into the first ten segments of every host.
const ALONE: [(&str, [(u64, i8); 4]); 3] = [
    ("S1", [(30_000, -35), (50_000, -33), (70_000, -18), (100_000, -10)]),
    ("S2", [(30_000, -46), (50_000, -56), (70_000, -52), (100_000, -45)]),
    ("S3", [(30_000, -8), (50_000, -37), (70_000, -34), (100_000, -42)]),
];
/// The same for several senders.
const TOGETHER: [(&str, i8); 4] = [("1 senders", -34), ("6 senders", -28), ("15 senders", -28), ("30 senders", -8)];

/// Target for the change of completion time against CUBIC with ten segments, tolerance included.
pub(super) fn change(question: Question, case: &str, bytes: u64) -> Option<f64> {
    let share = |percent: i8| f64::from(percent) / 100.0;
    match question {
        Question::Alone => {
            let (_, sizes) = ALONE.iter().find(|(path, _)| *path == case)?;
            let of_size = sizes.iter().find(|(size, _)| *size == bytes);
            Some(of_size.map_or(WORSE_MOST, |(_, percent)| share(*percent) + ALONE_OFF))
        }
        Question::Together => TOGETHER.iter().find(|(senders, _)| *senders == case).map(|(_, percent)| share(*percent)),
        Question::Grid => Some(WORSE_MOST),
        Question::Rough => Some(ROUGH_WORSE_MOST),
        Question::Fairness | Question::Burst | Question::Crowd | Question::OnBbr | Question::FirstFlight => None,
    }
}

/// Most repeated packets a transfer in one case, given the other's.
pub(super) fn repeats_most(other: f64) -> f64 {
    1.2 * other + 0.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_the_cases() {
        let near = |target: Option<f64>, wanted: f64| (target.unwrap() - wanted).abs() < 1e-9;
        assert!(near(change(Question::Alone, "S2", 50_000), -0.54));
        assert!(near(change(Question::Alone, "S2", 10_000), 0.02));
        assert!(near(change(Question::Together, "30 senders", 30_000), -0.08));
        assert_eq!(change(Question::Alone, "quick", 10_000), None);
    }
}
