//! Processor time beside the figures: on a small machine it is what limits them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cluster::gateway::Gateway;
use crate::cluster::hosts::THREADS;
use crate::process::threads_time;

/// Processor time up to a moment.
#[derive(Debug)]
pub(super) struct Spent {
    at: Instant,
    hosts: Duration,
    /// By process: of one that was killed there is no more than that.
    gateways: BTreeMap<u32, Duration>,
}

impl Spent {
    /// Of the hosts of this process and of these gateways, as far as they run.
    pub(super) fn begin(gateways: &[Gateway]) -> Result<Self> {
        let hosts = threads_time("self")?.get(THREADS).copied().unwrap_or_default();
        let time = |gateway: &Gateway| Some((gateway.pid(), gateway.processor_time().ok()?.values().sum()));
        Ok(Self { at: Instant::now(), hosts, gateways: gateways.iter().filter_map(time).collect() })
    }

    /// What was spent since, in cores.
    pub(super) fn cores(&self, gateways: &[Gateway]) -> Result<String> {
        self.cores_over(self.at.elapsed(), gateways)
    }

    /// The same, over a time that was measured.
    pub(super) fn cores_over(&self, time: Duration, gateways: &[Gateway]) -> Result<String> {
        let now = Self::begin(gateways)?;
        let cores = |spent: Duration| spent.as_secs_f64() / time.as_secs_f64();
        let then = |process| self.gateways.get(process).copied().unwrap_or_default();
        let gateways = now.gateways.iter().map(|(process, time)| time.saturating_sub(then(process)));
        let all = std::thread::available_parallelism()?;
        Ok(format!(
            "CPU: hosts {:.2}, gateways that run {:.2} of {all} cores",
            cores(now.hosts.saturating_sub(self.hosts)),
            cores(gateways.sum())
        ))
    }
}
