//! The frame of the campaigns (`make accuracy`, `benefit`, `rules`, `papers`): the arguments that they share, lanes in which
//! their runs go side by side, results as JSON, statistics, and pages of Markdown with plots.

pub mod kept;
pub mod lanes;
pub mod page;
pub mod statistics;
pub mod together;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

/// What every campaign can be asked.
#[derive(Args, Clone, Debug)]
pub struct Shared {
    /// Where results go; default: a folder of the campaign's name in target
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where the tables go, as a page, its plots beside it; default: the same with the ending .md
    #[arg(long)]
    page: Option<PathBuf>,
    /// Begin no run that would end later than this
    #[arg(long)]
    minutes: Option<u64>,
    /// Only print the plan
    #[arg(long)]
    pub plan: bool,
    /// Only make the tables
    #[arg(long)]
    pub report: bool,
}

impl Shared {
    /// Where the results of the campaign of this name go.
    pub fn out(&self, name: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("target").join(name))
    }

    /// Where its page goes.
    pub fn page(&self, name: &str) -> PathBuf {
        self.page.clone().unwrap_or_else(|| PathBuf::from("target").join(format!("{name}.md")))
    }

    /// When the last run is to be over: after the minutes asked for, or after `usual` ones.
    pub fn deadline(&self, usual: Option<u64>) -> Option<Instant> {
        self.minutes.or(usual).map(|minutes| Instant::now() + Duration::from_secs(minutes * 60))
    }
}

/// The running kernel's release, as `uname -r` prints it.
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Kernel, cores and lanes for the head of a page.
pub fn machine(lanes: u8) -> String {
    let (kernel, cores) = (kernel(), std::thread::available_parallelism().map_or(0, usize::from));
    format!("Linux {}, {cores} cores, {lanes} runs side by side", kernel.split('-').next().unwrap_or_default())
}
