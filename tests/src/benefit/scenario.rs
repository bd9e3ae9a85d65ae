//! What is timed: paths, who sends on each, and what the gateway may learn from before.

use strum::IntoStaticStr;

use super::path::Way;

/// Who sends.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "snake_case")]
pub enum Arm {
    /// A host with the agent.
    Product,
    /// Linux as it ships: CUBIC, ten segments.
    Cubic,
    /// BBR, ten segments.
    Bbr,
    /// CUBIC with an initial window of 24 segments everywhere.
    Static24,
    /// Reno that restarts after idle times, one connection for all transfers.
    Reno,
}

impl Arm {
    /// In results.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Its host's congestion control.
    pub const fn congestion_control(self) -> &'static str {
        match self {
            Self::Product | Self::Cubic | Self::Static24 => "cubic",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
        }
    }

    /// Initial window of its host's default route, where it is not the kernel's.
    pub const fn initial_window(self) -> Option<u32> {
        if matches!(self, Self::Static24) { Some(24) } else { None }
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
    /// The product to every second client from the first on, this kind to the others.
    Half(Arm),
}

impl Senders {
    /// Who sends to a client.
    pub const fn to(self, client: u8) -> Arm {
        match self {
            Self::All(arm) => arm,
            Self::Half(arm) => {
                if client.is_multiple_of(2) {
                    Arm::Product
                } else {
                    arm
                }
            }
        }
    }

    /// The word for a client's transfers in the results.
    pub fn label(self, client: u8) -> String {
        match (self, self.to(client)) {
            (Self::All(arm), _) => arm.name().to_owned(),
            (Self::Half(_), Arm::Product) => "product beside others".to_owned(),
            (Self::Half(_), arm) => format!("{} beside product", arm.name()),
        }
    }

    /// The clients that the product sends to, of so many.
    pub fn learners(self, clients: u8) -> impl Iterator<Item = u8> {
        (0..clients).filter(move |client| self.to(*client) == Arm::Product)
    }
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
    /// One transfer at a time, of each size in each round, in an order drawn anew.
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
        /// Starts are drawn from the first so many milliseconds of a round.
        within_ms: u64,
        /// From round to round.
        every_ms: u64,
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
    /// The first flight as planned.
    FirstFlight,
}

/// A run of real transfers.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Short and unique.
    pub name: &'static str,
    /// What it is for.
    pub question: Question,
    /// Its paths.
    pub sites: Vec<Site>,
    /// Least and most bytes of the transfers from which the gateway learns; sizes between are spaced evenly by factor.
    pub learn_bytes: (u64, u64),
    /// How many of those, at least, on each path of the product.
    pub learn: u32,
    /// What is timed.
    pub work: Work,
}

/// Transfers from which the gateway learns before anything is timed.
const LEARN: u32 = 20;
/// Sizes of one flow on the reference paths.
pub const ALONE_BYTES: [u64; 5] = [10_000, 30_000, 50_000, 70_000, 100_000];
/// Sizes of the grid.
pub const GRID_BYTES: [u64; 5] = [30_000, 100_000, 200_000, 1_000_000, 10_000_000];
/// Round trips of the grid in milliseconds.
pub const GRID_RTT_MS: [u32; 4] = [20, 50, 100, 200];
/// Sizes of the transfers whose first flight is looked at: none is longer than what a receiver offers at first.
pub const FLIGHT_BYTES: [u64; 3] = [18_000, 30_000, 60_000];
/// Senders that share a path.
pub const TOGETHER: [u8; 4] = [1, 6, 15, 30];
/// The same where half of them is left alone.
pub const FAIRNESS: [u8; 6] = [2, 6, 10, 14, 20, 30];

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    vec![
        alone(),
        together(),
        grid("grid-20", 20),
        grid("grid-100", 100),
        fairness("fairness-cubic", Arm::Cubic),
        fairness("fairness-reno", Arm::Reno),
        burst(),
        flights("flight-passive", false),
        flights("flight-active", true),
        quick(),
    ]
}

fn site(case: &str, arm: Arm, path: Way, lane: usize) -> Site {
    let lane = u8::try_from(lane).unwrap_or(u8::MAX);
    Site { case: case.to_owned(), senders: Senders::All(arm), clients: 1, path, lane, learners: 1 }
}

fn alone() -> Scenario {
    let paths = [("S1", 1_600, 52), ("S2", 1_600, 202), ("S3", 45_000, 202)];
    let mut sites = Vec::new();
    for (case, kbit, one_way_ms) in paths {
        for arm in [Arm::Product, Arm::Cubic] {
            sites.push(site(case, arm, Way::reference(kbit, one_way_ms), sites.len()));
        }
    }
    let work = Work::Sizes { bytes: &ALONE_BYTES, rounds: 4 };
    Scenario { name: "alone", question: Question::Alone, sites, learn_bytes: (30_000, 4_000_000), learn: LEARN, work }
}

fn together() -> Scenario {
    let mut sites = Vec::new();
    for senders in TOGETHER {
        for arm in [Arm::Product, Arm::Cubic, Arm::Bbr] {
            let case = format!("{senders} senders");
            let site = site(&case, arm, Way::reference(1_600, 52), sites.len());
            // Thirty transfers of 0.4 s in ten seconds are a little more than one at a time.
            sites.push(Site { clients: senders, learners: 1 + senders / 30, ..site });
        }
    }
    let work = Work::Rounds { bytes: 30_000, rounds: 10, warm: 2, within_ms: 10_000, every_ms: 13_000 };
    let learn_bytes = (30_000, 2_000_000);
    Scenario { name: "together", question: Question::Together, sites, learn_bytes, learn: LEARN, work }
}

fn grid(name: &'static str, mbit: u32) -> Scenario {
    let mut sites = Vec::new();
    for (lane, rtt_ms) in GRID_RTT_MS.into_iter().enumerate() {
        for arm in [Arm::Product, Arm::Cubic, Arm::Static24] {
            // Paths of 100 Mbit/s take turns: the emulator carries about 160 in all.
            let lane = if mbit > 40 { 0 } else { lane };
            let case = format!("{mbit} Mbit/s, {rtt_ms} ms");
            sites.push(site(&case, arm, Way::deep(mbit, rtt_ms), lane));
        }
    }
    let work = Work::Sizes { bytes: &GRID_BYTES, rounds: 2 };
    Scenario { name, question: Question::Grid, sites, learn_bytes: (30_000, 10_000_000), learn: LEARN, work }
}

fn fairness(name: &'static str, other: Arm) -> Scenario {
    let mut sites = Vec::new();
    for senders in FAIRNESS {
        for group in [Senders::Half(other), Senders::All(other)] {
            let case = format!("{senders} senders");
            let site = site(&case, other, Way::reference(1_600, 52), sites.len());
            sites.push(Site { clients: senders, senders: group, learners: senders / 2, ..site });
        }
    }
    let work = Work::Rounds { bytes: 30_000, rounds: 10, warm: 4, within_ms: 100, every_ms: 13_000 };
    let learn_bytes = (30_000, 1_000_000);
    Scenario { name, question: Question::Fairness, sites, learn_bytes, learn: LEARN, work }
}

fn burst() -> Scenario {
    let mut sites = Vec::new();
    for rtt_ms in [40, 100] {
        for arm in [Arm::Product, Arm::Cubic] {
            let case = format!("200 starts, 20 Mbit/s, {rtt_ms} ms");
            let site = site(&case, arm, Way::deep(20, rtt_ms), sites.len());
            sites.push(Site { clients: 200, learners: 2, ..site });
        }
    }
    let work = Work::Rounds { bytes: 30_000, rounds: 3, warm: 0, within_ms: 1, every_ms: 15_000 };
    let learn_bytes = (30_000, 4_000_000);
    Scenario { name: "burst", question: Question::Burst, sites, learn_bytes, learn: LEARN, work }
}

fn flights(name: &'static str, active: bool) -> Scenario {
    // Shares from some ten to a hundred segments, so that starts fill a part of a round trip, all of it, or several.
    let paths = [
        ("S1", Way::reference(1_600, 52)),
        ("5 Mbit/s, 40 ms", Way::deep(5, 40)),
        ("10 Mbit/s, 40 ms", Way::deep(10, 40)),
        ("10 Mbit/s, 100 ms", Way::deep(10, 100)),
        ("20 Mbit/s, 20 ms", Way::deep(20, 20)),
        ("20 Mbit/s, 60 ms", Way::deep(20, 60)),
    ];
    let sites = paths.iter().enumerate().map(|(n, (case, path))| site(case, Arm::Product, *path, n)).collect();
    let work = Work::Flights { bytes: &FLIGHT_BYTES, connections: 1_000, active };
    let learn_bytes = (30_000, 2_000_000);
    Scenario { name, question: Question::FirstFlight, sites, learn_bytes, learn: LEARN, work }
}

/// A few seconds of the whole: whether the harness works.
fn quick() -> Scenario {
    let path = Way { kbit: 20_000, one_way_ms: 10, queue_packets: 40, access_kbit: None, mss: 1_448 };
    let sites = vec![site("quick", Arm::Product, path, 0), site("quick", Arm::Cubic, path, 1)];
    let work = Work::Sizes { bytes: &[10_000, 100_000], rounds: 3 };
    Scenario { name: "quick", question: Question::Alone, sites, learn_bytes: (30_000, 1_000_000), learn: LEARN, work }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_client_is_left_alone() {
        let half = Senders::Half(Arm::Reno);
        assert_eq!(half.learners(5).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!((half.to(1), half.label(1).as_str()), (Arm::Reno, "reno beside product"));
        assert_eq!(Senders::All(Arm::Cubic).learners(9).count(), 0);
    }

    #[test]
    fn no_scenario_asks_too_much_of_the_emulator() {
        for scenario in all() {
            let mut lanes = std::collections::BTreeMap::new();
            for site in &scenario.sites {
                let kbit = site.path.access_kbit.unwrap_or(site.path.kbit).min(site.path.kbit);
                let widest: &mut u64 = lanes.entry(site.lane).or_default();
                *widest = (*widest).max(kbit);
            }
            let sum: u64 = lanes.values().sum();
            assert!(sum <= 160_000 && scenario.sites.len() <= 16, "{}: {sum} kbit/s", scenario.name);
        }
    }
}
