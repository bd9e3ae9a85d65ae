//! What the gateway makes of one network of a capture.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use spand_core::config::{EngineConfig, FlowReports, Limits};
use spand_core::networks::view::NetworkView;
use spand_gateway::replay::{Moments, Options, Report, replay};
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros};

use super::{FURTHER, Input, NEAR, SAME, SAME_SEGMENTS};
use crate::silent::Silent;

/// Networks of a capture that are looked at: those of most samples and losses.
const NETWORKS: usize = 8;

/// A line of the table. Shares are in segments, times in milliseconds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// The capture.
    pub input: String,
    /// The network.
    pub network: String,
    /// The share that the kernel's account gives, at the first network of a capture.
    pub truth: Option<f64>,
    /// The share that the gateway gives.
    pub share: Option<f64>,
    /// It is a lower bound.
    pub bound: bool,
    /// How far it is from the truth, in percent of that.
    pub off_pct: Option<f64>,
    /// The smallest distance from the truth that was ever recorded.
    pub most_off_pct: Option<f64>,
    /// The estimate's confidence.
    pub confidence: Option<f64>,
    /// The bottleneck's buffer, in segments.
    pub buffer: Option<f64>,
    /// Window samples, by what gave them.
    pub samples: String,
    /// The senders' congestion controls.
    pub named: String,
    /// Loss events.
    pub losses: u64,
    /// Smallest round-trip time.
    pub rtt_min_ms: Option<f64>,
    /// Mean round-trip time.
    pub rtt_mean_ms: Option<f64>,
    /// Round trips limited by the window, the receiver and the application, in percent of those that are known.
    pub limited_pct: String,
    /// Why there is no estimate.
    pub why_not: String,
}

impl Row {
    /// The rows of a capture, that of its largest network first.
    ///
    /// # Errors
    /// It cannot be replayed.
    pub fn of(input: &Input) -> Result<Vec<Self>> {
        let engine = EngineConfig {
            internal: input.internal.clone(),
            limits: Limits::for_replay(),
            flow_reports: FlowReports::Full,
            ..EngineConfig::default()
        };
        let options = Options { files: vec![input.path.clone()], engine, moments: Moments::End };
        let report = replay(options, &mut Silent)?;
        let weight = |view: &NetworkView| view.losses + u64::from(view.samples) + u64::from(view.lower_bounds);
        let mut views: Vec<_> = report.end.networks.iter().filter(|view| weight(view) > 0).collect();
        views.sort_by_key(|view| (std::cmp::Reverse(view.losses + u64::from(view.samples)), view.network));
        views.truncate(NETWORKS);
        let truth = input.truth.and_then(|truth| truth.share);
        let rows =
            views.iter().enumerate().map(|(n, view)| Self::of_network(input, &report, view, truth.filter(|_| n == 0)));
        Ok(rows.collect())
    }

    fn of_network(input: &Input, report: &Report, view: &NetworkView, truth: Option<f64>) -> Self {
        let estimate = view.estimate.as_ref();
        let share = estimate.map(|estimate| estimate.share.bytes() / estimate.mss.max(Bytes(1)).0 as f64);
        let off_pct = share.zip(truth).map(|(share, truth)| rounded(100.0 * (share / truth - 1.0)));
        let (mut samples, mut named) = (BTreeMap::<&str, u32>::new(), BTreeMap::<&str, u32>::new());
        let flows = report.flows.iter().filter(|flow| Network::of(flow.destination.address) == view.network);
        for (flow, details) in flows.filter_map(|flow| flow.details.as_ref().map(|details| (flow, details))) {
            *named.entry(flow.congestion_control.name()).or_default() += 1;
            details.samples.iter().for_each(|sample| *samples.entry(sample.reason.name()).or_default() += 1);
        }
        let listed = |counts: BTreeMap<&str, u32>| {
            counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
        };
        let limits = [view.limits.window, view.limits.receiver, view.limits.application];
        let all = limits.iter().sum::<u64>().max(1);
        let ms = |time: Option<Micros>| time.map(|time| rounded(time.as_millis_f64()));
        Self {
            input: input.name.clone(),
            network: view.network.to_string(),
            truth,
            share: share.map(rounded),
            bound: estimate.is_some_and(|estimate| estimate.is_lower_bound),
            off_pct,
            most_off_pct: None,
            confidence: estimate.map(|estimate| rounded(estimate.confidence.value())),
            buffer: estimate
                .and_then(|estimate| Some(rounded(estimate.buffer?.bytes() / estimate.mss.max(Bytes(1)).0 as f64))),
            samples: listed(samples),
            named: listed(named),
            losses: view.losses,
            rtt_min_ms: ms(view.rtt_min),
            rtt_mean_ms: ms(view.rtt_mean),
            limited_pct: limits.map(|count| (100 * count / all).to_string()).join("/"),
            why_not: view.why_not.map(|why| why.name().to_owned()).unwrap_or_default(),
        }
    }

    /// Returns its capture and its network, which identify it.
    pub fn key(&self) -> (String, String) {
        (self.input.clone(), self.network.clone())
    }

    /// Lists what changed, one sentence for each.
    pub fn differs(&self, before: &Self) -> Vec<String> {
        let place = format!("{} {}", self.input, self.network);
        let mut differs = Vec::new();
        let mut figure = |name: &str, now: Option<f64>, before: Option<f64>, least: f64| {
            let same = match (now, before) {
                (Some(now), Some(before)) => (now - before).abs() <= least.max(SAME * before.abs()),
                (now, before) => now.is_none() && before.is_none(),
            };
            if !same {
                let text = |figure: Option<f64>| figure.map_or("none".to_owned(), |figure| figure.to_string());
                differs.push(format!("{place}: {name} {} and not {}", text(now), text(before)));
            }
        };
        figure("share", self.share, before.share, SAME_SEGMENTS);
        figure("buffer", self.buffer, before.buffer, SAME_SEGMENTS);
        figure("losses", Some(self.losses as f64), Some(before.losses as f64), 1.0);
        figure("rtt_min_ms", self.rtt_min_ms, before.rtt_min_ms, 0.1);
        figure("rtt_mean_ms", self.rtt_mean_ms, before.rtt_mean_ms, 0.1);
        for (name, now, before) in [
            ("samples", &self.samples, &before.samples),
            ("named", &self.named, &before.named),
            ("limited_pct", &self.limited_pct, &before.limited_pct),
            ("why_not", &self.why_not, &before.why_not),
        ] {
            if now != before {
                differs.push(format!("{place}: {name} {now:?} and not {before:?}"));
            }
        }
        if let (Some(off), Some(most), Some(truth)) = (self.off_pct, before.most_off_pct, self.truth)
            && off.abs() > most + 100.0 * FURTHER.max(SAME_SEGMENTS / truth)
        {
            differs.push(format!("{place}: {off} % from the truth, and {most} % once"));
        }
        differs
    }

    /// Whether the share is near the truth.
    pub fn is_near(&self) -> bool {
        self.off_pct.is_some_and(|off| off.abs() <= 100.0 * NEAR)
    }
}

fn rounded(value: f64) -> f64 {
    spand_proto::units::rounded(value, 2)
}
