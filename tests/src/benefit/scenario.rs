//! What a scenario is: paths, who sends on each, and what the gateway may learn from before.

use super::path::Way;

/// Who sends.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Arm {
    /// A host with the agent.
    Product,
    /// Linux as it ships: CUBIC, ten segments.
    Cubic,
    /// BBR, ten segments.
    Bbr,
    /// CUBIC with one initial window everywhere, in segments, set at the host's default route.
    Fixed(u32),
    /// Reno with an initial window in segments, set at the host's default route.
    RenoFrom(u32),
    /// Reno that restarts after idle times, one connection for all transfers.
    Reno,
}

impl Arm {
    /// In results.
    pub fn name(self) -> String {
        match self {
            Self::Product => "product".to_owned(),
            Self::Cubic => "cubic".to_owned(),
            Self::Bbr => "bbr".to_owned(),
            Self::Reno => "reno".to_owned(),
            Self::RenoFrom(segments) => format!("reno{segments}"),
            Self::Fixed(segments) => format!("fixed{segments}"),
        }
    }

    /// The fixed window, in segments, of the arm that results name so.
    pub fn fixed_of(name: &str) -> Option<u32> {
        name.strip_prefix("fixed")?.parse().ok()
    }

    /// Its host's congestion control.
    pub const fn congestion_control(self) -> &'static str {
        match self {
            Self::Product | Self::Cubic | Self::Fixed(_) => "cubic",
            Self::Bbr => "bbr",
            Self::Reno | Self::RenoFrom(_) => "reno",
        }
    }

    /// Initial window of its host's default route, where it is not the kernel's.
    pub const fn initial_window(self) -> Option<u32> {
        if let Self::Fixed(segments) | Self::RenoFrom(segments) = self { Some(segments) } else { None }
    }

    /// Whether a client keeps its connection from transfer to transfer.
    pub const fn is_persistent(self) -> bool {
        matches!(self, Self::Reno)
    }
}

/// Who sends to the clients of one path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Senders {
    /// One kind.
    All(Arm),
    /// The first kind to every second client from the first on, the second to the others.
    Half(Arm, Arm),
}

impl Senders {
    /// Who sends to a client.
    pub const fn to(self, client: u8) -> Arm {
        match self {
            Self::All(arm) => arm,
            Self::Half(arm, other) => {
                if client.is_multiple_of(2) {
                    arm
                } else {
                    other
                }
            }
        }
    }

    /// The word for a client's transfers in the results.
    pub fn label(self, client: u8) -> String {
        match self {
            Self::All(arm) => arm.name(),
            Self::Half(arm, other) if self.to(client) == arm => beside(&arm.name(), &other.name()),
            Self::Half(arm, other) => beside(&other.name(), &arm.name()),
        }
    }

    /// The clients that the product sends to, of `clients`.
    pub fn learners(self, clients: u8) -> impl Iterator<Item = u8> {
        (0..clients).filter(move |client| self.to(*client) == Arm::Product)
    }
}

/// The word for transfers of one kind on a path that it shares with another.
pub fn beside(arm: &str, other: &str) -> String {
    format!("{arm} beside {other}")
}

/// A path with its clients.
#[derive(Clone, Debug)]
pub struct Site {
    /// The row of a table that it belongs to, the size apart.
    pub case: String,
    /// Who sends.
    pub senders: Senders,
    /// Clients.
    pub clients: u8,
    /// The path.
    pub path: Way,
    /// Sites of one lane take turns; lanes run side by side.
    pub lane: u8,
    /// Transfers side by side while the gateway learns.
    pub learners: u8,
    /// The site, by its place among all, with whose clients its own are in one /24.
    pub beside: Option<usize>,
}

impl Site {
    /// Whether the product sends there.
    pub fn is_product(&self) -> bool {
        self.senders.learners(self.clients).next().is_some()
    }
}

/// What the clients ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// One transfer at a time, of each size in each round, in a new random order.
    Sizes {
        /// Bytes of the transfers.
        bytes: &'static [u64],
        /// Rounds.
        rounds: u32,
    },
    /// Every client one transfer a round.
    Rounds {
        /// Bytes of each.
        bytes: u64,
        /// Rounds that count.
        rounds: u32,
        /// Rounds before them.
        warm: u32,
        /// Starts are drawn from this many milliseconds at the beginning of a round.
        within_ms: u64,
        /// From round to round.
        every_ms: u64,
    },
    /// Transfers of mixed sizes ([`MIX`]) that begin at random moments: of all arms at the same ones, where arrivals are open.
    Crowd {
        /// What makes a transfer begin.
        arrivals: Arrivals,
        /// Seconds before those that count.
        warm_s: u32,
        /// Seconds in which the transfers begin that count.
        seconds: u32,
    },
    /// One transfer at a time on each path, sizes in turns, for a time after something happened.
    After {
        /// What happened.
        event: Event,
        /// Bytes of the transfers.
        bytes: &'static [u64],
        /// Seconds in which they begin. Each minute is a case of its own.
        seconds: u32,
    },
    /// Connections whose first flight is held against what the agent says of it, one at a time on each path.
    Flights {
        /// Bytes of the transfers, one size after the other.
        bytes: &'static [u64],
        /// Connections in all.
        connections: u32,
        /// The server connects to the client.
        active: bool,
    },
}

/// What happens to a path before transfers are timed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// The bottleneck has this rate from then on, in kbit/s.
    Rate(u64),
    /// All clients ask for this many bytes at once.
    Burst(u64),
}

/// What makes the transfers of a crowd begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrivals {
    /// A Poisson process, whatever is under way: together they fill this part of the bottleneck, in percent.
    Open(u32),
    /// Each client asks again after a pause; its mean in milliseconds, distributed exponentially.
    Closed(u32),
}

/// Sizes of a crowd's transfers, and of ten transfers how many have each: the longest would fill the time.
pub const MIX: [(u64, u32); 4] = [(10_000, 3), (30_000, 3), (100_000, 3), (1_000_000, 1)];

/// The size of the `n`th of ten transfers of [`MIX`].
pub fn mixed(n: u32) -> Option<u64> {
    let mut before = 0;
    MIX.into_iter().find_map(|(bytes, times)| {
        before += times;
        (n < before).then_some(bytes)
    })
}

/// Parts of a crowd's time that are compared: what waits in the queue outlives a transfer.
pub(super) const PARTS: u32 = 10;

/// Which row of the table a scenario answers.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Question {
    /// One flow on the reference paths.
    Alone,
    /// Several senders on one path.
    Together,
    /// The grid of rates, round trips and sizes.
    Grid,
    /// What neighbours without advice notice.
    Fairness,
    /// Many starts at once.
    Burst,
    /// Transfers of mixed sizes where many share a path.
    Crowd,
    /// One flow on paths that deliver unevenly, police or lose.
    Rough,
    /// One flow of a host that runs BBR.
    OnBbr,
    /// The first flight as planned.
    FirstFlight,
    /// Whether advice harms where it might.
    Harm,
}

/// The part of a family with the product and CUBIC alone, for comparing variants of the product's start.
pub const PAIR: &str = "pair";
/// The same with the longest transfers alone.
pub const PAIR_LONG: &str = "pair-10mb";
/// All families that show where advice might harm.
pub const HARM: &str = "harm";
const PAIR_PARTS: [&str; 2] = [PAIR, PAIR_LONG];

/// A run of real transfers.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Scenarios of one family differ in the arms beside the product and CUBIC only.
    pub family: &'static str,
    /// What the family's name needs to be unique: the arms, where several scenarios share them.
    pub part: &'static str,
    /// What it is for.
    pub question: Question,
    /// What the product's host runs.
    pub congestion_control: &'static str,
    /// Its paths.
    pub sites: Vec<Site>,
    /// Least and most bytes of the transfers from which the gateway learns; sizes between are spaced evenly by factor.
    pub learn_bytes: (u64, u64),
    /// How many of those, at least, on each path of the product.
    pub learn: u32,
    /// What is timed.
    pub work: Work,
}

impl Scenario {
    /// Short and unique.
    pub fn name(&self) -> String {
        if self.part.is_empty() { self.family.to_owned() } else { format!("{}-{}", self.family, self.part) }
    }

    /// Whether a campaign runs it that names no scenarios.
    pub fn is_default(&self) -> bool {
        self.family != "quick" && !PAIR_PARTS.contains(&self.part) && self.question != Question::Harm
    }

    /// Whether this is the scenario, or of the family, that someone names. What is only for comparing starts is named alone. All
    /// families of [`Question::Harm`] have that name as well.
    pub fn is_named(&self, name: &str) -> bool {
        let is_harm = self.question == Question::Harm;
        self.name() == name || (self.family == name && (is_harm || self.is_default())) || (is_harm && name == HARM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_client_is_left_alone() {
        let half = Senders::Half(Arm::Product, Arm::Reno);
        assert_eq!(half.learners(5).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!((half.to(1), half.label(1).as_str()), (Arm::Reno, "reno beside product"));
        assert_eq!(Senders::All(Arm::Cubic).learners(9).count(), 0);
        let fixed = Senders::Half(Arm::Fixed(16), Arm::Cubic);
        assert_eq!((fixed.learners(5).count(), fixed.label(0).as_str()), (0, "fixed16 beside cubic"));
    }

    #[test]
    fn ten_transfers_have_the_sizes_in_their_parts() {
        let sizes: Vec<u64> = (0..10).filter_map(mixed).collect();
        for (bytes, times) in MIX {
            assert_eq!(sizes.iter().filter(|size| **size == bytes).count(), times as usize, "{bytes}");
        }
        assert_eq!((sizes.len(), mixed(10)), (10, None));
    }

    #[test]
    fn a_fixed_window_is_read_from_its_name() {
        assert_eq!(Arm::fixed_of(&Arm::Fixed(48).name()), Some(48));
        assert_eq!((Arm::fixed_of("cubic"), Arm::fixed_of("fixed16 beside cubic")), (None, None));
    }
}
