//! When connections begin, how long they live, and to which client they go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_proto::start::NO_THRESHOLD;

use crate::lab::topology::SERVER_V4;
use crate::lab::truth::{CongestionState, FlowId, Record, Row, SegmentTruth, Source};

/// The laws by which connections come and go.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    /// Mean time between two, by an exponential law.
    pub arrivals: Duration,
    /// Mean time that one sends, by Pareto's law.
    pub life: Duration,
    /// The shape of that law; above 1.
    pub shape: f64,
    /// After this none sends any more.
    pub length: Duration,
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connection {
    /// When it begins, from the beginning of the run.
    pub at: Duration,
    /// How long it sends.
    pub life: Duration,
    /// Its client, from 0.
    pub client: u8,
}

impl Lives {
    /// The connections of a run; the same for the same seed.
    pub fn draw(&self, seed: u64, clients: u8) -> Vec<Connection> {
        // Each kind of chance by itself: a longer run has the connections of a shorter one, and more.
        let mut dice = [0_u64, 1, 2].map(|kind| StdRng::seed_from_u64(seed ^ kind << 56));
        let [arrivals, lives, places] = &mut dice;
        let least = self.life.as_secs_f64() * (self.shape - 1.0) / self.shape;
        let mut all = Vec::new();
        let mut at = Duration::ZERO;
        loop {
            // Of (0, 1]: the logarithm and the power of zero are none.
            let part = |dice: &mut StdRng| 1.0 - dice.random::<f64>();
            at += self.arrivals.mul_f64(-part(arrivals).ln());
            if at >= self.length {
                return all;
            }
            let left = self.length.saturating_sub(at).as_secs_f64();
            let life = (least * part(lives).powf(-1.0 / self.shape)).min(left);
            all.push(Connection {
                at,
                life: Duration::from_secs_f64(life),
                client: places.random_range(0..clients.max(1)),
            });
        }
    }
}

// With which window and threshold each connection sent its first segment, as the kernel says it.

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
    /// kernel skips its program (docs/explain/limits.md, "Patched kernels").
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIVES: Lives = Lives {
        arrivals: Duration::from_secs(5),
        life: Duration::from_secs(100),
        shape: 1.35,
        length: Duration::from_secs(200_000),
    };

    #[test]
    fn connections_come_and_live_by_their_laws() {
        let all = LIVES.draw(1, 5);
        let count = all.len() as f64;
        assert!((39_000.0..41_000.0).contains(&count), "{count}");
        assert!(all.is_sorted_by_key(|connection| connection.at));
        let lives = all.iter().map(|connection| connection.life.as_secs_f64());
        // The scale is 100 s * 0.35 / 1.35; half live longer than it times 2^(1/1.35).
        assert!(lives.clone().filter(|life| *life < 25.92).count() < 10, "only the last ones are cut off");
        let long = lives.filter(|life| *life > 43.32).count() as f64;
        assert!((0.49..0.51).contains(&(long / count)), "{long}");
        assert!((0..5).all(|client| all.iter().filter(|connection| connection.client == client).count() > 7_500));
    }

    #[test]
    fn a_longer_run_begins_as_a_shorter_one_and_seeds_differ() {
        let short = Lives { length: Duration::from_secs(600), ..LIVES };
        let (long, short) = (LIVES.draw(1, 5), short.draw(1, 5));
        assert!(short.len() > 80);
        assert!(short.iter().zip(&long).all(|(short, long)| (short.at, short.client) == (long.at, long.client)));
        assert!(short.iter().all(|connection| connection.at + connection.life <= Duration::from_millis(600_001)));
        assert_ne!(LIVES.draw(2, 5), long);
    }
}
