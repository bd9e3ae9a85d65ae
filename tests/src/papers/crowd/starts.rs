//! With which window and threshold each connection sent its first segment, as the kernel says it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Result, ensure};
use spand_proto::start::NO_THRESHOLD;

use crate::lab::topology::SERVER_V4;
use crate::lab::truth::{CongestionState, FlowId, Record, Row, SegmentTruth, Source};

/// No path here has such a window.
const THRESHOLD_MAX: u32 = 0xffff;

/// The state of a sender before its first segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Start {
    /// Congestion window in segments.
    pub(super) window: u32,
    /// Slow-start threshold in segments, where there is one.
    pub(super) threshold: Option<u32>,
}

/// What was observed of an arm.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The start of each connection.
    pub(super) starts: Vec<Start>,
    /// Connections that went through a recovery without a threshold, which bounds nothing: Reno sets one at each loss, but where the
    /// kernel skips its program (docs/limits.md, "Patched kernels").
    pub(super) unbounded: u32,
}

/// The observation under way.
#[derive(Debug)]
pub(super) struct Starts {
    record: Record,
    truth: SegmentTruth,
}

impl Starts {
    /// Observes senders on `port`.
    pub(super) fn observe(port: u16) -> Result<Self> {
        let record = Record::only(|row| is_first(row) || is_unbounded(row));
        let truth = SegmentTruth::start(record.clone(), port)?;
        Ok(Self { record, truth })
    }

    /// Ends it: what was observed of each arm.
    pub(super) fn by_arm(self, number_of: impl Fn(IpAddr) -> Option<u8>) -> Result<BTreeMap<u8, Observed>> {
        let Self { record, truth } = self;
        let lost = truth.finish()? + record.dropped();
        ensure!(lost == 0, "{lost} segments were not observed");
        let (mut firsts, mut unbounded) = (BTreeMap::new(), BTreeSet::new());
        // The other senders are a host of their own on the same port.
        for row in record.rows().into_iter().filter(|row| row.flow().local.ip() == SERVER_V4) {
            if is_unbounded(&row) {
                if unbounded.insert(row.flow()) {
                    eprintln!(
                        "{:?} recovers with a threshold of {:?} and a window of {:?} segments",
                        row.flow(),
                        row.ssthresh,
                        row.cwnd
                    );
                }
            } else if let Some(start) = start_of(&row) {
                firsts.insert(row.flow(), start);
            }
        }
        let mut all: BTreeMap<u8, Observed> = BTreeMap::new();
        let number = |flow: &FlowId| number_of(flow.remote.ip());
        for (number, start) in firsts.iter().filter_map(|(flow, start)| Some((number(flow)?, start))) {
            all.entry(number).or_default().starts.push(*start);
        }
        for number in unbounded.iter().filter_map(number) {
            all.entry(number).or_default().unbounded += 1;
        }
        Ok(all)
    }
}

/// The first data segment that leaves: it is among those sent, and not yet among those outstanding. Of the bytes acknowledged, the SYN is
/// one.
fn is_first(row: &Row) -> bool {
    let is_data = row.data_segs_out.is_some_and(|segments| segments > 0) && row.total_retrans == Some(0);
    row.source == Source::SegmentOut
        && is_data
        && row.unacked == Some(0)
        && row.bytes_acked.is_some_and(|bytes| bytes <= 1)
}

fn is_unbounded(row: &Row) -> bool {
    row.ca_state == Some(CongestionState::Recovery) && row.ssthresh.is_some_and(|ssthresh| ssthresh > THRESHOLD_MAX)
}

fn start_of(row: &Row) -> Option<Start> {
    Some(Start { window: row.cwnd?, threshold: row.ssthresh.filter(|ssthresh| *ssthresh != NO_THRESHOLD.0) })
}
