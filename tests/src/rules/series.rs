//! What the engine finds in a recording: window samples by time, as they reach the table of networks.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use anyhow::{Context, Result};
use spand_core::config::WindowConfig;
use spand_core::estimate::Rule;
use spand_core::networks::NetworkTable;
use spand_core::types::{LimitCounts, RttSum, WindowSample};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use super::record::{Place, Recorded, prefix};
use super::scenario::{Scenario, Site};
use crate::accuracy::engine;

/// Time between two looks at an estimate.
pub const LOOK: Micros = Micros::from_secs(1);

/// A recording as the rules get it.
#[derive(Clone, Debug)]
pub struct Series {
    /// What was recorded.
    pub scenario: Scenario,
    /// The kernel's side of it.
    pub recorded: Recorded,
    /// The engine's samples, by time, all of one network.
    pub samples: Vec<Sample>,
}

/// A sample, and of whom.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// As the table gets it.
    pub window: WindowSample,
    /// Which of the scenario's sites it is of.
    pub site: usize,
    /// The client's address before all of a site were made to show one.
    pub client: IpAddr,
}

/// The estimate at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Seconds since the first packet.
    pub at_s: f64,
    /// Segments; `None` where there is no estimate.
    pub share: Option<f64>,
    /// Samples so far.
    pub samples: usize,
}

impl Series {
    /// Replays a recording through the engine.
    pub fn read(scenario: &Scenario, place: &Place) -> Result<Option<Self>> {
        let Some(recorded) = place.recorded().filter(|recorded| recorded.health.fault().is_none()) else {
            return Ok(None);
        };
        let seen =
            engine::replay(&place.capture(), &[], 0, None).with_context(|| format!("replaying {}", scenario.name))?;
        let network = Network::new(prefix(0));
        let mut samples = Vec::new();
        for (flow, report) in &seen.reports {
            let client = flow.remote.ip();
            let Some((site, n, group)) = place_of(scenario, client) else { continue };
            for window in report.details.iter().flat_map(|details| &details.samples) {
                let remote = shown(scenario, site, n);
                let advised = scenario.start.is_some() && group.advised;
                let window = WindowSample { network, remote, advised, ..*window };
                samples.push(Sample { window, site, client });
            }
        }
        samples.sort_by_key(|sample| (sample.window.at, sample.window.connection));
        Ok(Some(Self { scenario: scenario.clone(), recorded, samples }))
    }

    /// The estimate of a rule once a second, from those samples that `takes` lets pass.
    pub fn estimates(&self, rule: &'static dyn Rule, takes: impl Fn(&Sample) -> bool) -> Vec<Point> {
        let mut table = NetworkTable::with_rule(WindowConfig::default(), NonZeroUsize::MIN, rule, 0);
        let network = Network::new(prefix(0));
        let begin = Timestamp(self.recorded.begin_ns);
        let mut samples = self.samples.iter().filter(|sample| takes(sample)).peekable();
        let mut points = Vec::new();
        let mut count = 0;
        for second in 1..=self.scenario.seconds {
            let now = begin.after(Micros(LOOK.0 * second));
            while let Some(sample) = samples.next_if(|sample| sample.window.at <= now) {
                // What probing waits for; the recording's own round trips are as even as these.
                let rtt = sample.window.rtt_min.map_or(RttSum::default(), RttSum::of);
                table.add_rounds(network, sample.window.at, sample.window.remote, rtt, LimitCounts::default());
                table.add(&sample.window);
                count += usize::from(!sample.window.reason.is_lower_bound());
                while table.poll_event().is_some() {}
            }
            let estimate = table.estimate(network, now);
            let share = estimate.map(|estimate| estimate.share.segments_f64(estimate.mss));
            points.push(Point { at_s: second as f64, share, samples: count });
        }
        points
    }

    /// Seconds from the first packet to `time_ns`.
    pub fn seconds(&self, time_ns: u64) -> f64 {
        (time_ns as f64 - self.recorded.begin_ns as f64) / 1e9
    }

    /// Client addresses that gave samples.
    pub fn clients(&self) -> BTreeSet<IpAddr> {
        self.samples.iter().map(|sample| sample.client).collect()
    }
}

/// Site, number and group of a client.
pub fn place_of(scenario: &Scenario, client: IpAddr) -> Option<(usize, u8, super::scenario::Group)> {
    let site = (0..scenario.sites.len()).find(|site| prefix(*site).contains(&client))?;
    let IpAddr::V4(address) = client else { return None };
    let n = address.octets()[3].checked_sub(11)?;
    Some((site, n, scenario.sites.get(site)?.group(n)?))
}

/// The address that the gateway would see: each client its own, or one for a whole site behind address translation.
fn shown(scenario: &Scenario, site: usize, n: u8) -> IpAddr {
    let translated = scenario.sites.get(site).is_some_and(|site: &Site| site.one_address);
    let first = if site == 0 { 11 } else { 151 };
    IpAddr::from([198, 51, 100, if translated { 250 } else { first + n }])
}
