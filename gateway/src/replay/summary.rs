//! The summary of a replay: what was in the files, how many networks have an estimate and why the others have none, and
//! who sent most.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;
use spand_core::networks::view::NetworkView;
use spand_proto::network::Network;
use spand_proto::no_estimate::Reason;
use spand_proto::operator::rfc3339_ns;

use super::row::thousandths;
use super::traffic::why_not;
use super::{Report, SenderTraffic};

/// The summary, under the names that JSON has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// First packet.
    pub first_time: Option<String>,
    /// Last packet.
    pub last_time: Option<String>,
    /// Time between them.
    pub duration_s: f64,
    /// Packets of all files.
    pub packets: u64,
    /// Bytes of them on the wire.
    pub wire_bytes: u64,
    /// TCP segments among them.
    pub tcp_segments: u64,
    /// TCP connections.
    pub connections: u64,
    /// Of them, those of which one direction alone is in the capture.
    pub connections_one_sided: u64,
    /// Of them, those that began before it.
    pub connections_midstream: u64,
    /// No prefix says what is inside: both senders of every connection are followed.
    pub both_ends_followed: bool,
    /// Networks that have an estimate at the last packet.
    pub networks_with_estimate: u64,
    /// Networks that data was sent to, and that have none.
    pub networks_without_estimate: u64,
    /// Those by the reason.
    pub no_estimate_by_reason: BTreeMap<Reason, u64>,
    /// Of those, the one with most transfers within the window, and why it has none; not in JSON, where each network has its own.
    #[serde(skip)]
    pub no_estimate_example: Option<(Network, String)>,
    /// Window samples from which on there is an estimate.
    pub min_samples: u32,
    /// Connections that they must come from.
    pub min_connections: u32,
    /// The senders of most bytes.
    pub largest_senders: Vec<SenderRow>,
}

/// One sender.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SenderRow {
    /// Its address.
    pub src: IpAddr,
    /// Connections with which it sent data.
    pub connections: u64,
    /// Payload, each byte once.
    pub unique_bytes: u64,
    /// Mean rate of a connection while a transfer was under way.
    pub throughput_bps: Option<u64>,
    /// Part of its packets with payload that were retransmissions.
    pub retransmitted_pct: Option<f64>,
    /// The congestion control recognised for most of its bytes.
    pub congestion_control: &'static str,
}

impl Summary {
    /// The summary of `report`.
    pub fn new(report: &Report) -> Self {
        let (counters, end) = (&report.counters, &report.end);
        let views: BTreeMap<_, _> = end.networks.iter().map(|view| (view.network, view)).collect();
        let all: BTreeSet<_> = views.keys().chain(end.traffic.keys()).copied().collect();
        let (mut with, mut without, mut reasons) = (0, 0, BTreeMap::new());
        for network in all {
            let (view, traffic) = (views.get(&network).copied(), end.traffic.get(&network));
            match why_not(view, traffic) {
                None => with += 1,
                Some(reason) => {
                    without += 1;
                    *reasons.entry(reason).or_default() += 1;
                }
            }
        }
        let (first, last) = report.span.unzip();
        Self {
            first_time: first.map(rfc3339_ns),
            last_time: last.map(rfc3339_ns),
            duration_s: report.span.map_or(0.0, |(first, last)| thousandths(last.since(first).as_secs_f64())),
            packets: report.files.iter().map(|file| file.stats.packets).sum(),
            wire_bytes: counters.wire_bytes,
            tcp_segments: counters.segments,
            connections: counters.connections,
            connections_one_sided: counters.connections_one_sided,
            connections_midstream: counters.connections_midstream,
            both_ends_followed: report.both_ends_followed,
            networks_with_estimate: with,
            networks_without_estimate: without,
            no_estimate_by_reason: reasons,
            no_estimate_example: example(&end.networks),
            min_samples: report.window.min_samples,
            min_connections: report.window.min_connections,
            largest_senders: report.largest_senders.iter().map(|(address, sender)| row(*address, sender)).collect(),
        }
    }
}

/// The network without an estimate that most transfers went to, and why it has none.
fn example(views: &[NetworkView]) -> Option<(Network, String)> {
    let without = views.iter().filter(|view| view.estimate.is_none() && view.outcomes.seen > 0);
    let busiest = without.max_by_key(|view| view.outcomes.seen)?;
    Some((busiest.network, busiest.no_estimate()?.to_string()))
}

fn row(address: IpAddr, sender: &SenderTraffic) -> SenderRow {
    let sent = &sender.sent;
    SenderRow {
        src: address,
        connections: sent.connections,
        unique_bytes: sent.unique.0,
        throughput_bps: sent.throughput_bps(),
        retransmitted_pct: sent.retransmitted_pct(),
        congestion_control: sender.congestion_control().name(),
    }
}
