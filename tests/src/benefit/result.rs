//! What is kept of a run: one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::flight::Flights;
use crate::accuracy::result::Health;
use crate::campaign::kept;
use crate::lab::path::Carrier;
use crate::product::{ApplyMethod, Mode, StartVariant};

/// What the transfers are like from which the gateway learns.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Learning {
    /// As the host made them before there was an agent, which starts afterwards.
    Plain,
    /// On advice from the first estimate on: the estimate rests on its own effect.
    Advised,
}

/// Which run.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Run {
    /// The scenario's name.
    pub scenario: String,
    /// How starts were applied.
    pub way: ApplyMethod,
    /// The agent's mode.
    pub mode: Mode,
    /// Whether the server stated each transfer's size.
    pub stated: bool,
    /// What the gateway learnt from.
    pub learning: Learning,
    /// What the product's starts are made of; where that is not the default, the product's transfers with the default are timed
    /// beside it, as those of an arm `plain`.
    #[serde(default)]
    pub start: StartVariant,
    /// What carried the paths.
    #[serde(default)]
    pub paths: Carrier,
    /// Seed of the order, the jitter and the paths.
    pub seed: u64,
}

impl Run {
    /// In file names and progress.
    pub fn name(&self) -> String {
        let sizes = if self.stated { "" } else { "-unstated" };
        let learning = if self.learning == Learning::Plain { "" } else { "-advised-learning" };
        let start = match self.start {
            StartVariant::Plain => String::new(),
            other => format!("-{}", other.name()),
        };
        let (way, mode) = (self.way.name(), self.mode.name());
        let paths = if self.paths == Carrier::Kernel { "-kernel" } else { "" };
        format!("{way}-{mode}{sizes}{learning}{start}{paths}/{}-{}", self.scenario, self.seed)
    }

    fn file(&self, out: &Path) -> PathBuf {
        out.join(format!("{}.json", self.name()))
    }
}

/// One timed transfer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// The site's case.
    pub case: String,
    /// Who sent it.
    pub arm: String,
    /// Bytes.
    pub bytes: u64,
    /// Client of the site.
    pub client: u8,
    /// Round.
    pub round: u32,
    /// From the first packet to the acknowledgement of the last byte, at the sender.
    pub completion_ms: f64,
    /// What no sender can be faster than, alone on the path.
    pub bound_ms: f64,
    /// Data packets.
    pub packets: u32,
    /// Those that repeat.
    pub again: u32,
    /// Packets before the first acknowledgement.
    pub first_flight: u32,
    /// From the first of them to the last.
    #[serde(default)]
    pub first_flight_ms: f64,
}

/// What a product's path taught the gateway.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Learnt {
    /// The site's case.
    pub case: String,
    /// Transfers before anything was timed.
    pub transfers: u32,
    /// The estimate's share in segments when timing began and when it ended; nothing where there was no estimate.
    pub share_before: Option<u64>,
    /// The same at the end.
    pub share_after: Option<u64>,
    /// The agent's report of a connection there when timing began: segments, and why; nothing without an agent.
    pub agent: Option<String>,
}

/// A run's result.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunResult {
    /// Which run.
    pub run: Run,
    /// The kernel that it ran on, as `uname -r` prints it.
    #[serde(default)]
    pub kernel: String,
    /// Whether the lab behaved as configured.
    pub health: Health,
    /// The product's paths.
    pub learnt: Vec<Learnt>,
    /// Timed transfers.
    pub transfers: Vec<Measured>,
    /// What the connections with a variant of the start met, by the agent's counters; empty where there is none.
    #[serde(default)]
    pub met: BTreeMap<String, u64>,
    /// First flights, where the scenario looks at them.
    pub flights: Option<Flights>,
    /// Why it means nothing; nothing where it is sound.
    pub fault: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

/// The result of a run, where there is one.
pub fn read(out: &Path, run: &Run) -> Option<RunResult> {
    kept::read(&run.file(out)).filter(|result: &RunResult| result.run == *run)
}

/// Leaves a result: whole, or not at all.
pub fn write(out: &Path, result: &RunResult) -> Result<()> {
    kept::write(&result.run.file(out), result)
}
