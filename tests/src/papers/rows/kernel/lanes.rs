//! Transfers side by side, each on a path of its own, and what the kernel says of them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::side_by_side;
use crate::accuracy::result::Health;
use crate::advised::{Advice, Stage, ask, by_connection};
use crate::benefit::stage::prefix;
use crate::lab::path::PathConfig;
use crate::lab::topology::NetworkPlan;
use crate::lab::traffic::{Plan, Step};
use crate::lab::truth::{CongestionState, Row, Source};

/// The packets of the satellite rows: 524 bytes, of which 472 are payload behind a header with timestamps.
pub(super) const PACKET_BYTES: u64 = 524;
pub(super) const SEGMENT_BYTES: u64 = 472;
/// Receive buffers, so that no receiver limits a sender: it begins with them.
const RECEIVE_BUFFERS: &str = "4096 4194304 8388608";

/// One transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// Its congestion control without advice.
    pub(super) control: &'static str,
    /// How it starts instead, on Reno.
    pub(super) advice: Option<Advice>,
    /// Its path.
    pub(super) path: PathConfig,
}

/// What the kernel reported of a transfer, from its first segment on.
pub(super) struct Course(Vec<Row>);

/// Lets all lanes send as much as they can for this time.
pub(super) fn stream(lanes: &[Lane], time: Duration) -> Result<Vec<Course>> {
    let plans = lanes
        .iter()
        .enumerate()
        .map(|(n, lane)| Ok((NetworkPlan { prefix: prefix(n)?, clients: 1, path: lane.path }, lane.advice)));
    let stage = Stage::build("reno", &plans.collect::<Result<Vec<_>>>()?)?;
    for network in &stage.lab.networks {
        network.namespace.ip(&[&format!("link set wan0 mtu {PACKET_BYTES}")])?;
        network.namespace.sysctl("ipv4/tcp_rmem", RECEIVE_BUFFERS)?;
    }
    side_by_side(lanes.len(), |n| {
        let lane = lanes.get(n).context("a lane")?;
        let control = if lane.advice.is_some() { Plan::AS_THE_HOST } else { lane.control };
        ask(&stage.lab, n, 0, &Plan::new(control, vec![Step::Stream(time)])).map(drop)
    })?;
    let advised = lanes.iter().filter(|lane| lane.advice.is_some()).count() as u64;
    ensure!(stage.started() == advised, "{} of {advised} transfers started on advice", stage.started());
    Health::check_paths(&stage.lab.emulator)?;
    let connections = by_connection(stage.finish()?);
    let course = |n| {
        let prefix = prefix(n)?;
        let mut own = connections.iter().filter(|(flow, _)| prefix.contains(&flow.remote.ip()));
        let rows = own.next().context("a transfer that nobody saw")?.1;
        let begin = rows.iter().position(|row| row.source == Source::SegmentOut && row.notsent_bytes > Some(0));
        Ok(Course(rows.get(begin.context("a transfer without a segment")?..).unwrap_or_default().to_vec()))
    };
    (0..lanes.len()).map(course).collect()
}

/// The first packet that was lost.
pub(super) struct FirstLoss {
    /// The window when it was sent, in segments.
    pub(super) window: u32,
    /// Whether that was in slow start.
    pub(super) in_slow_start: bool,
    /// When it was sent, from the transfer's first segment on.
    pub(super) seconds: f64,
}

impl Course {
    fn begin_ns(&self) -> u64 {
        self.0.first().map_or(0, |row| row.time_ns)
    }

    /// The first packet that was lost: the one that was missing when the kernel first saw a loss.
    pub(super) fn first_loss(&self) -> Option<FirstLoss> {
        let is_loss = |row: &Row| matches!(row.ca_state, Some(CongestionState::Recovery | CongestionState::Loss));
        let seen = self.0.iter().position(is_loss)?;
        let missing = self.0.get(seen)?.snd_una?;
        let is_before = |row: &&Row| {
            // Sequence numbers go round.
            let ahead = row.snd_nxt.map(|next| missing.wrapping_sub(next));
            row.source == Source::SegmentOut && ahead.is_some_and(|ahead| ahead < u32::MAX / 2)
        };
        let sent = self.0.get(..seen)?.iter().rfind(is_before)?;
        let (window, threshold) = (sent.cwnd?, sent.ssthresh?);
        let seconds = sent.time_ns.saturating_sub(self.begin_ns()) as f64 / 1e9;
        Some(FirstLoss { window, in_slow_start: window < threshold, seconds })
    }

    /// The last row up to this time.
    fn at(&self, seconds: f64) -> Option<&Row> {
        let since = |row: &&Row| row.time_ns.saturating_sub(self.begin_ns()) as f64 / 1e9 <= seconds;
        self.0.iter().rfind(since)
    }

    /// Bytes acknowledged after this time.
    pub(super) fn bytes(&self, seconds: f64) -> Option<f64> {
        let row = self.at(seconds)?;
        Some(row.bytes_acked? as f64)
    }

    /// Segments sent again up to this time.
    pub(super) fn repeats(&self, seconds: f64) -> Option<f64> {
        self.at(seconds)?.total_retrans.map(f64::from)
    }

    /// The threshold when slow start first had one below any window, in segments.
    pub(super) fn first_threshold(&self, none: u32) -> Option<f64> {
        self.0.iter().find_map(|row| row.ssthresh.filter(|threshold| *threshold < none)).map(f64::from)
    }

    /// Segments of a window that the receiver offered at the least, after the first second.
    pub(super) fn least_offer_bytes(&self) -> Option<f64> {
        let late = |row: &&Row| row.time_ns.saturating_sub(self.begin_ns()) > 1_000_000_000;
        self.0.iter().filter(late).filter_map(|row| row.snd_wnd).min().map(f64::from)
    }
}
