//! What one gateway saw of connections in the last minutes, bounded.

use std::collections::BTreeMap;

use spand_core::halves::{Half, Halves, HashSample};
use spand_core::memory::treed;
use spand_proto::units::{Micros, Timestamp};

/// How long it is kept.
pub(super) const KEPT: Micros = Micros::from_secs(300);
/// Most connections that are kept of one gateway.
pub(super) const MOST: usize = 8_192;
/// A gateway that was silent for longer may have seen connections of which nothing came.
const SILENCE: Micros = Micros::from_secs(15);

/// Of one gateway.
#[derive(Debug, Default)]
pub(super) struct Kept {
    sample: HashSample,
    /// When the sample last had to be as coarse as it is.
    coarse_at: Timestamp,
    /// From when on all of the sample is here.
    since: Timestamp,
    heard: Timestamp,
    all: BTreeMap<u64, (Timestamp, Half)>,
}

impl Kept {
    /// Bytes at most.
    pub(super) const fn most_bytes() -> usize {
        treed::<u64, (Timestamp, Half)>(MOST)
    }

    /// Takes what came from it; how many had no room.
    pub(super) fn take(&mut self, halves: &Halves, now: Timestamp) -> u64 {
        if self.heard == Timestamp(0) || now.since(self.heard) > SILENCE {
            self.since = now;
        }
        self.heard = now;
        if halves.sample >= self.sample {
            (self.sample, self.coarse_at) = (halves.sample, now);
        } else if now.since(self.coarse_at) >= KEPT {
            // What is in the finer sample alone comes from here on.
            (self.sample, self.coarse_at, self.since) = (self.sample.finer(), now, now);
        }
        let sample = self.sample;
        self.all.retain(|hash, (at, _)| now.since(*at) <= KEPT && sample.has(*hash));
        let in_sample = halves.found.iter().filter(|half| sample.has(half.hash));
        self.all.extend(in_sample.map(|half| (half.hash, (now, *half))));
        while self.all.len() > MOST && self.sample.coarser() > self.sample {
            (self.sample, self.coarse_at) = (self.sample.coarser(), now);
            let sample = self.sample;
            self.all.retain(|hash, _| sample.has(*hash));
        }
        let mut dropped = 0;
        while self.all.len() > MOST {
            self.all.pop_last();
            dropped += 1;
        }
        dropped
    }

    pub(super) fn sample(&self) -> HashSample {
        self.sample
    }

    /// From when on all of the sample is here.
    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// When something came from it last.
    pub(super) fn heard(&self) -> Timestamp {
        self.heard
    }

    /// What it saw of this connection.
    pub(super) fn get(&self, hash: u64) -> Option<Half> {
        self.all.get(&hash).map(|(_, half)| *half)
    }

    /// All, with when each came.
    pub(super) fn all(&self) -> impl Iterator<Item = &(Timestamp, Half)> {
        self.all.values()
    }
}
