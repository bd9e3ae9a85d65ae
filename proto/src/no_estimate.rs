//! Why a network has no estimate: a closed list of reasons with stable names, and the figures that decided.
//!
//! Gateway, agent and `replay` print the same sentence ([`NoEstimate`]'s `Display`), so that an operator finds one reason everywhere.

use std::fmt;

use serde::Serialize;
use strum::{Display, IntoStaticStr, VariantArray};

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
    /// There is one, but hosts reported losses in first flights, and the gateway withholds it.
    Retreat,
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
}

impl Reason {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How transfers to a network ended that gave no window sample, within the window.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Outcomes {
    /// Transfers that are over, with a sample or without.
    pub seen: u32,
    /// Losses in slow start.
    pub slow_start_losses: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Transfers that the application limited.
    pub app_limited: u32,
    /// Transfers that the receiver's window limited.
    pub receiver_limited: u32,
    /// Transfers of which only one direction was seen.
    pub one_sided: u32,
    /// Transfers of connections that began before the capture.
    pub midstream: u32,
    /// Transfers that were cut off with data outstanding.
    pub unfinished: u32,
    /// Losses and ends in packet records that hold no time.
    pub untimed: u32,
    /// Losses and ends in packet records that came out of order in time.
    pub unordered: u32,
}

impl Outcomes {
    /// Both summed up.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            seen: self.seen.saturating_add(other.seen),
            slow_start_losses: self.slow_start_losses.saturating_add(other.slow_start_losses),
            timeouts: self.timeouts.saturating_add(other.timeouts),
            app_limited: self.app_limited.saturating_add(other.app_limited),
            receiver_limited: self.receiver_limited.saturating_add(other.receiver_limited),
            one_sided: self.one_sided.saturating_add(other.one_sided),
            midstream: self.midstream.saturating_add(other.midstream),
            unfinished: self.unfinished.saturating_add(other.unfinished),
            untimed: self.untimed.saturating_add(other.untimed),
            unordered: self.unordered.saturating_add(other.unordered),
        }
    }

    /// What stands in the way of a sample, in words: singular, plural, and what would give one.
    const fn kinds(self) -> [(u32, Reason, &'static str, &'static str); 9] {
        [
            (self.untimed, Reason::Untimed, "loss or end without a time", "losses or ends without a time"),
            (
                self.unordered,
                Reason::Unordered,
                "loss or end in records out of order",
                "losses or ends in records out of order",
            ),
            (self.slow_start_losses, Reason::SlowStartLoss, "loss in slow start", "losses in slow start"),
            (self.timeouts, Reason::Timeout, "retransmission timeout", "retransmission timeouts"),
            (self.app_limited, Reason::AppLimited, "limited by its application", "limited by their application"),
            (self.receiver_limited, Reason::ReceiverLimited, "limited by its receiver", "limited by their receiver"),
            (self.one_sided, Reason::OneSided, "seen in one direction", "seen in one direction"),
            (self.midstream, Reason::Midstream, "begun before the capture", "begun before the capture"),
            (self.unfinished, Reason::Unfinished, "not finished", "not finished"),
        ]
    }

    /// What most often stood in the way; [`Reason::TooFewSamples`] where nothing did.
    pub fn most_frequent(self) -> Reason {
        // The first of equals: losses explain more than what limited other transfers.
        let most = self.kinds().into_iter().rev().max_by_key(|(count, ..)| *count);
        most.filter(|(count, ..)| *count > 0).map_or(Reason::TooFewSamples, |(_, reason, ..)| reason)
    }
}

/// Why a network has no estimate, with the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoEstimate {
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

impl NoEstimate {
    /// A reason that no figure explains.
    pub const fn of(reason: Reason) -> Self {
        let outcomes = Outcomes {
            seen: 0,
            slow_start_losses: 0,
            timeouts: 0,
            app_limited: 0,
            receiver_limited: 0,
            one_sided: 0,
            midstream: 0,
            unfinished: 0,
            untimed: 0,
            unordered: 0,
        };
        Self { reason, outcomes, samples: (0, 0), needed_connections: 0, followed: 1.0 }
    }
}

fn counted(count: u32, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

impl fmt::Display for NoEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, needed) = self.samples;
        match self.reason {
            Reason::Retreat => {
                return f.write_str(
                    "first flights with advice lost packets: the gateway withholds its advice for a minute, then offers less",
                );
            }
            Reason::NothingSeen => {
                return f
                    .write_str("the gateway saw no transfer to this network within its window (5 minutes by default)");
            }
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
                for (count, _, one, several) in self.outcomes.kinds() {
                    if count > 0 {
                        write!(f, ", {}", counted(count, one, several))?;
                    }
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

/// What gives a sample.
const fn way_out(reason: Reason) -> &'static str {
    match reason {
        Reason::SlowStartLoss | Reason::Timeout => "; a loss in congestion avoidance or a loss-free end gives one",
        Reason::AppLimited | Reason::ReceiverLimited => "; a transfer that fills its congestion window gives one",
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
        let outcomes = Outcomes { seen: 39, slow_start_losses: 34, timeouts: 1, ..Outcomes::default() };
        let reason = outcomes.most_frequent();
        let mut why = NoEstimate { outcomes, samples: (0, 3), ..NoEstimate::of(reason) };
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
        let of = |outcomes: Outcomes| outcomes.most_frequent();
        assert_eq!(of(Outcomes { seen: 2, ..Outcomes::default() }), Reason::TooFewSamples);
        assert_eq!(of(Outcomes { app_limited: 3, slow_start_losses: 2, ..Outcomes::default() }), Reason::AppLimited);
        assert_eq!(of(Outcomes { app_limited: 3, slow_start_losses: 3, ..Outcomes::default() }), Reason::SlowStartLoss);
    }

    #[test]
    fn every_reason_has_a_sentence_of_its_own() {
        let sentences: std::collections::BTreeSet<_> = Reason::VARIANTS
            .iter()
            .map(|reason| {
                let outcomes = Outcomes { seen: 4, slow_start_losses: 1, ..Outcomes::default() };
                NoEstimate { outcomes, samples: (1, 3), needed_connections: 2, ..NoEstimate::of(*reason) }.to_string()
            })
            .collect();
        // Losses in slow start and timeouts have one way out, and so have both limits.
        assert_eq!(sentences.len(), Reason::VARIANTS.len() - 2, "{sentences:#?}");
    }
}
