//! Why a network has no estimate: a closed list of reasons with stable names, and the figures that decided.
//!
//! Gateway, agent and `replay` print the same sentence ([`Explanation`]), so that an operator finds one reason everywhere.

use std::{fmt, iter};

use serde::{Serialize, Serializer};
use strum::{Display, IntoStaticStr, VariantArray};

use crate::units::counted;

/// The reason without its figures. Names never change; new reasons are added at the end.
#[derive(Clone, Copy, Debug, Display, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, Serialize, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// Fewer window samples than the minimum, and no kind of transfer stands out.
    TooFewSamples,
    /// They came from fewer connections than the minimum.
    TooFewConnections,
    /// The newest is older than the age limit.
    Expired,
    /// Nothing was seen of the network within the window.
    NothingSeen,
    /// Most transfers lost packets in slow start.
    SlowStartLoss,
    /// Most transfers had retransmission timeouts.
    Timeout,
    /// The application limited most senders: lower bounds only.
    AppLimited,
    /// The receiver's window limited most senders: lower bounds only.
    ReceiverLimited,
    /// Of most transfers only one direction was seen.
    OneSided,
    /// Most transfers were of connections that began before the capture.
    Midstream,
    /// No transfer is over yet.
    Unfinished,
    /// The packet records of most transfers hold no time.
    Untimed,
    /// The packet records of most transfers came out of order in time.
    Unordered,
    /// `replay` only: samples were taken, and the window has moved on since.
    OutsideWindow,
    /// Most transfers ended in slow start: lower bounds only.
    SlowStartEnd,
    /// Most losses were of senders whose congestion control is not known.
    UnknownControl,
}

impl Reason {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Reasons that are counted, in the order of [`Outcomes::by_reason`]. Of equal counts the first explains most.
pub const COUNTED: [Reason; 11] = [
    Reason::Untimed,
    Reason::Unordered,
    Reason::SlowStartLoss,
    Reason::Timeout,
    Reason::UnknownControl,
    Reason::SlowStartEnd,
    Reason::AppLimited,
    Reason::ReceiverLimited,
    Reason::OneSided,
    Reason::Midstream,
    Reason::Unfinished,
];

/// How transfers to a network ended within the window. In JSON one object: `seen`, and a count by the name of each reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcomes {
    /// Transfers that are over, with a sample or without.
    pub seen: u32,
    /// Losses and ends of transfers that gave no sample, by [`COUNTED`].
    pub by_reason: [u32; COUNTED.len()],
}

impl Outcomes {
    /// Transfers seen, and why losses and ends gave no sample. Reasons that are not [`COUNTED`] are left out.
    pub fn new(seen: u32, by_reason: &[(Reason, u32)]) -> Self {
        let of = |reason| by_reason.iter().filter(|(of, _)| *of == reason).map(|(_, count)| count).sum();
        Self { seen, by_reason: COUNTED.map(of) }
    }

    /// Losses and ends that gave no sample for this reason.
    pub fn of(&self, reason: Reason) -> u32 {
        self.counted().find(|(of, _)| *of == reason).map_or(0, |(_, count)| count)
    }

    /// Both summed up.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.seen = self.seen.saturating_add(other.seen);
        for (count, more) in self.by_reason.iter_mut().zip(other.by_reason) {
            *count = count.saturating_add(more);
        }
        self
    }

    fn counted(&self) -> impl DoubleEndedIterator<Item = (Reason, u32)> {
        COUNTED.into_iter().zip(self.by_reason)
    }

    /// One more loss or end that gave no sample for this reason.
    pub fn add(&mut self, reason: Reason) {
        let mut counts = COUNTED.iter().zip(&mut self.by_reason);
        if let Some((_, count)) = counts.find(|(of, _)| **of == reason) {
            *count = count.saturating_add(1);
        }
    }

    /// What most often stood in the way; `None` where nothing did.
    pub fn most_frequent(&self) -> Option<Reason> {
        // `max_by_key` returns the last of equals.
        let most = self.counted().rev().max_by_key(|(_, count)| *count);
        most.filter(|(_, count)| *count > 0).map(|(reason, _)| reason)
    }
}

impl Serialize for Outcomes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by_reason = self.counted().map(|(reason, count)| (reason.name(), count));
        serializer.collect_map(iter::once(("seen", self.seen)).chain(by_reason))
    }
}

/// Why a network has no estimate, with the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Explanation {
    /// The reason.
    pub reason: Reason,
    /// How its transfers ended.
    pub outcomes: Outcomes,
    /// Window samples, and how many an estimate needs.
    pub samples: (u32, u32),
    /// Connections that have to give them.
    pub needed_connections: u32,
    /// The smallest part of all connections that was followed within the window, 0 to 1: less than 1 under overload.
    pub followed: f64,
}

impl Explanation {
    /// A reason that no figure explains.
    pub const fn of(reason: Reason) -> Self {
        let outcomes = Outcomes { seen: 0, by_reason: [0; COUNTED.len()] };
        Self { reason, outcomes, samples: (0, 0), needed_connections: 0, followed: 1.0 }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, needed) = self.samples;
        match self.reason {
            Reason::NothingSeen => {
                return f
                    .write_str("the gateway saw no transfer to this network within its window (5 minutes by default)");
            }
            Reason::OutsideWindow => f.write_str("its samples are older than the window")?,
            Reason::Expired => f.write_str("the newest sample is too old: the next ones give an estimate")?,
            Reason::TooFewConnections => {
                let samples = counted(samples, "sample", "samples");
                write!(
                    f,
                    "{samples} from fewer than {} connections: more connections are needed",
                    self.needed_connections
                )?;
            }
            reason => {
                write!(f, "{} seen", counted(self.outcomes.seen, "transfer", "transfers"))?;
                for (reason, count) in self.outcomes.counted().filter(|(_, count)| *count > 0) {
                    let (one, several) = kind(reason);
                    write!(f, ", {}", counted(count, one, several))?;
                }
                match samples {
                    0 => f.write_str(": no sample")?,
                    _ => write!(f, ": {samples} of {needed} samples")?,
                }
                f.write_str(way_out(reason))?;
            }
        }
        if self.followed < 1.0 {
            write!(f, "; under overload {:.0} % of the connections are followed", self.followed * 100.0)?;
        }
        Ok(())
    }
}

/// What was counted, in words: one, and several.
const fn kind(counted: Reason) -> (&'static str, &'static str) {
    match counted {
        Reason::Untimed => ("loss or end without a time", "losses or ends without a time"),
        Reason::Unordered => ("loss or end in records out of order", "losses or ends in records out of order"),
        Reason::SlowStartLoss => ("loss in slow start", "losses in slow start"),
        Reason::Timeout => ("retransmission timeout", "retransmission timeouts"),
        Reason::UnknownControl => {
            ("loss under an unknown congestion control", "losses under an unknown congestion control")
        }
        Reason::SlowStartEnd => ("ended in slow start", "ended in slow start"),
        Reason::AppLimited => ("limited by its application", "limited by their application"),
        Reason::ReceiverLimited => ("limited by its receiver", "limited by their receiver"),
        Reason::OneSided => ("seen in one direction", "seen in one direction"),
        Reason::Midstream => ("begun before the capture", "begun before the capture"),
        _ => ("not finished", "not finished"),
    }
}

/// What gives a sample.
const fn way_out(reason: Reason) -> &'static str {
    match reason {
        Reason::SlowStartLoss | Reason::Timeout => "; a loss in congestion avoidance or a loss-free end gives one",
        Reason::AppLimited | Reason::ReceiverLimited => "; a transfer that fills its congestion window gives one",
        Reason::UnknownControl => "; a longer transfer shows its congestion control",
        Reason::SlowStartEnd => "; a longer transfer gives one",
        Reason::OneSided => "; the mirror has to show both directions",
        Reason::Midstream => "; new connections give one",
        Reason::Unfinished => "; the end of a transfer gives one",
        Reason::Unordered => "; records have to be captured, or sorted (`reordercap`), in order of time",
        Reason::Untimed => "; the capture has to hold the time of every packet",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_has_the_figures_and_what_gives_a_sample() {
        let outcomes = Outcomes::new(39, &[(Reason::SlowStartLoss, 34), (Reason::Timeout, 1)]);
        let reason = outcomes.most_frequent().unwrap();
        let mut why = Explanation { outcomes, samples: (0, 3), ..Explanation::of(reason) };
        assert_eq!(
            (reason, why.to_string().as_str()),
            (
                Reason::SlowStartLoss,
                "39 transfers seen, 34 losses in slow start, 1 retransmission timeout: no sample; a loss in congestion \
                 avoidance or a loss-free end gives one"
            )
        );
        (why.samples, why.followed) = ((1, 3), 0.5);
        let text = why.to_string();
        assert!(text.contains(": 1 of 3 samples;"), "{text}");
        assert!(text.ends_with("under overload 50 % of the connections are followed"), "{text}");
    }

    #[test]
    fn what_is_most_frequent_is_the_reason() {
        let of = |by_reason: &[(Reason, u32)]| Outcomes::new(6, by_reason).most_frequent();
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(Reason::AppLimited, 3), (Reason::SlowStartLoss, 2)]), Some(Reason::AppLimited));
        assert_eq!(of(&[(Reason::AppLimited, 3), (Reason::SlowStartLoss, 3)]), Some(Reason::SlowStartLoss));
    }

    #[test]
    fn outcomes_are_one_object_with_the_names_of_the_reasons() {
        let both = Outcomes::new(2, &[(Reason::Timeout, 1)]).with(Outcomes::new(3, &[(Reason::Timeout, 4)]));
        let json = serde_json::to_value(both).unwrap();
        assert_eq!((&json["seen"], &json["timeout"], &json["one_sided"]), (&5.into(), &5.into(), &0.into()));
        assert_eq!(json.as_object().unwrap().len(), 1 + COUNTED.len());
    }

    #[test]
    fn every_reason_has_a_sentence_of_its_own() {
        let sentences: std::collections::BTreeSet<_> = Reason::VARIANTS
            .iter()
            .map(|reason| {
                let outcomes = Outcomes::new(4, &[(Reason::SlowStartLoss, 1)]);
                Explanation { outcomes, samples: (1, 3), needed_connections: 2, ..Explanation::of(*reason) }.to_string()
            })
            .collect();
        // Losses in slow start and timeouts have one way out, and so have both limits.
        assert_eq!(sentences.len(), Reason::VARIANTS.len() - 2, "{sentences:#?}");
    }
}
