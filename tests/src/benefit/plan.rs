//! Which runs a campaign is made of, and in which order.

use super::result::{Learning, Run};
use super::scenario::{Question, Scenario, Work};
use super::scenarios;
use crate::lab::path::Carrier;
use crate::product::{ApplyMethod, Mode, StartVariant};

/// Seconds that a run takes besides its transfers.
const AROUND_S: f64 = 12.0;

/// What to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// How starts are applied.
    pub way: ApplyMethod,
    /// Modes of the agent.
    pub modes: Vec<Mode>,
    /// Whether sizes are stated.
    pub stated: bool,
    /// What the gateway learns from; `None`: advised traffic where advice might harm, and plain traffic elsewhere.
    pub learning: Option<Learning>,
    /// What the product's starts are made of.
    pub starts: Vec<StartVariant>,
    /// What carries the paths.
    pub paths: Carrier,
    /// Seeds: from this one on ...
    pub first_seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Scenarios by name, or all of a family by its name; empty: all that belong to a campaign without a choice.
    pub scenarios: Vec<String>,
}

/// A run of the campaign.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What is run.
    pub scenario: Scenario,
    /// With which mode and seed.
    pub run: Run,
}

impl Campaign {
    /// Every run, seed by seed: a campaign that is cut short has all scenarios, with fewer seeds.
    pub fn runs(&self) -> Vec<Planned> {
        let mut runs = Vec::new();
        for seed in (self.first_seed..).take(usize::try_from(self.seeds).unwrap_or(usize::MAX)) {
            for scenario in scenarios::all() {
                let wanted = match self.scenarios.as_slice() {
                    [] => scenario.is_default(),
                    names => names.iter().any(|name| scenario.is_named(name)),
                };
                // Without an agent nobody says how a first flight should be.
                if !wanted || (scenario.question == Question::FirstFlight && self.way == ApplyMethod::None) {
                    continue;
                }
                let is_harm = scenario.question == Question::Harm;
                let learning = if is_harm { Learning::Advised } else { Learning::Plain };
                for (mode, start) in
                    self.modes.iter().flat_map(|mode| self.starts.iter().map(move |start| (mode, start)))
                {
                    let run = Run {
                        scenario: scenario.name(),
                        way: self.way,
                        mode: *mode,
                        stated: self.stated,
                        learning: self.learning.unwrap_or(learning),
                        start: *start,
                        paths: self.paths,
                        seed,
                    };
                    runs.push(Planned { scenario: scenario.clone(), run });
                }
            }
        }
        runs
    }
}

impl Planned {
    /// About how long it takes.
    pub fn seconds(&self) -> f64 {
        let Scenario { sites, learn_bytes: (least, most), learn, work, .. } = &self.scenario;
        // The mean of sizes spaced by factor.
        let mean = (most - least) as f64 / (*most as f64 / *least as f64).ln();
        let mut lanes = std::collections::BTreeMap::<u8, f64>::new();
        for site in sites {
            let rest = site.path.rtt().as_secs_f64() + 0.1;
            // A few round trips of slow start besides the bound.
            let seconds = |bytes: f64| {
                let kbit = site.path.access_kbit.unwrap_or(site.path.kbit).min(site.path.kbit);
                bytes * 8.0 / (kbit as f64 * 1e3) + 5.0 * site.path.rtt().as_secs_f64() + rest
            };
            let learning = if site.is_product() { f64::from(*learn) * seconds(mean) } else { 0.0 };
            let timed = match *work {
                Work::Sizes { bytes, rounds } => {
                    let turns = if self.run.start == StartVariant::Plain { rounds } else { 2 * rounds };
                    bytes.iter().map(|bytes| seconds(*bytes as f64)).sum::<f64>() * f64::from(turns)
                }
                Work::Flights { bytes, connections, .. } => {
                    let longest = bytes.iter().max().copied().unwrap_or(0);
                    seconds(longest as f64) * f64::from(connections) / sites.len() as f64
                }
                Work::Rounds { .. } | Work::Crowd { .. } | Work::After { .. } => 0.0,
            };
            *lanes.entry(site.lane).or_default() += learning + timed;
        }
        let rounds = match *work {
            Work::Rounds { rounds, warm, every_ms, .. } => f64::from(rounds + warm) * every_ms as f64 / 1e3,
            Work::Crowd { warm_s, seconds, .. } => f64::from(warm_s + seconds),
            Work::After { seconds, .. } => f64::from(seconds),
            _ => 0.0,
        };
        lanes.values().copied().fold(0.0, f64::max) + rounds + AROUND_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(scenarios: &[&str], starts: &[StartVariant]) -> Vec<String> {
        let campaign = Campaign {
            way: ApplyMethod::Bpf,
            modes: vec![Mode::Careful],
            stated: true,
            learning: None,
            paths: Carrier::Emulator,
            starts: starts.to_vec(),
            first_seed: 1,
            seeds: 2,
            scenarios: scenarios.iter().map(|name| (*name).to_owned()).collect(),
        };
        campaign.runs().iter().map(|planned| planned.run.name()).collect()
    }

    #[test]
    fn starts_that_are_compared_run_one_after_the_other() {
        let runs = campaign(&["alone-pair"], &[StartVariant::Plain, StartVariant::Buffer]);
        let (plain, buffer) = ("bpf-careful/alone-pair", "bpf-careful-buffer/alone-pair");
        assert_eq!(runs, [format!("{plain}-1"), format!("{buffer}-1"), format!("{plain}-2"), format!("{buffer}-2")]);
    }

    #[test]
    fn what_is_only_for_comparing_starts_runs_where_it_is_named() {
        let runs = [campaign(&[], &[StartVariant::Plain]), campaign(&["alone", "grid-20"], &[StartVariant::Plain])];
        assert!(runs.iter().flatten().all(|name| !name.contains("pair") && !name.contains("quick")), "{runs:?}");
        assert!(runs.iter().all(|runs| runs.contains(&"bpf-careful/grid-20-64-bbr-2".to_owned())));
    }
}
