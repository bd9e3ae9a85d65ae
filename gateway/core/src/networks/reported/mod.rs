//! Windows that hosts report of QUIC connections, in which a mirror shows none.
//!
//! A report is a claim, so it is kept apart from what the wire shows: in a record of its own, which is evaluated only while the wire gives no
//! estimate, is dropped when it does, and neither stored nor shared. In it a sample's address is the host that reports and its connection is
//! the remote address: so the rule bounds each host as it bounds an address on the wire, and the minimum of connections is one of remote
//! addresses (`docs/explain/decisions/estimate.md`).

mod claim;

use std::net::IpAddr;

use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::units::{Timestamp, Window};
use strum::VariantArray;

pub use self::claim::{ReportRefused, ReportedConnection};
use super::{Entry, Evidence, Method, NetworkTable};
use crate::config::WindowConfig;
use crate::estimate::{self, Counts, NoEstimate};
use crate::hash::SeededState;
use crate::types::{RttSum, WindowSample};
use crate::window::bucket::Contribution;
use crate::window::delivery::Delivery;
use crate::window::record::{CONTRIBUTIONS_PER_BUCKET, NetworkRecord, bucket_nanos};

/// Samples and lower bounds of one host that count in a network and bucket: 120 in five minutes.
pub const SAMPLES_PER_HOST: u32 = 4;
/// The largest share, in bytes, that the reports of one host alone give: 100 segments of 1,460 bytes, as an agent grants at most by default.
pub const MOST_OF_ONE_HOST: f64 = 146_000.0;

/// What became of reports; the counts only rise.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReportCounts {
    /// Those that gave a sample or a lower bound.
    pub taken: u64,
    refused: [u64; ReportRefused::VARIANTS.len()],
}

impl ReportCounts {
    /// Those refused, by reason.
    pub fn refused(&self) -> impl Iterator<Item = (ReportRefused, u64)> {
        ReportRefused::VARIANTS.iter().copied().zip(self.refused)
    }

    /// Adds those of another engine.
    pub fn add(&mut self, other: &Self) {
        self.taken += other.taken;
        for (own, others) in self.refused.iter_mut().zip(other.refused) {
            *own += others;
        }
    }

    pub(crate) fn count(&mut self, outcome: Result<(), ReportRefused>) {
        match outcome {
            Ok(()) => self.taken += 1,
            Err(reason) => {
                if let Some(count) = self.refused.get_mut(reason as usize) {
                    *count += 1;
                }
            }
        }
    }
}

/// What reports show of a network.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReportedView {
    /// Samples and lower bounds in the window.
    pub samples: u32,
    /// Hosts that gave them.
    pub hosts: u32,
    /// When the newest connection among them ended.
    pub newest: Timestamp,
    /// The estimate in force is made of them.
    pub in_force: bool,
}

impl ReportedView {
    /// What the record of reports shows in the window at `now`; `None` where that is nothing.
    pub(super) fn of(record: &NetworkRecord, in_force: bool, now: Timestamp, config: &WindowConfig) -> Option<Self> {
        let slice = record.slice(now, config);
        let Counts { samples, lower_bounds, .. } = Counts::of(slice);
        let samples = samples.saturating_add(lower_bounds);
        let newest = record.newest.unwrap_or_default();
        (samples > 0).then(|| Self { samples, hosts: hosts(slice.contributions), newest, in_force })
    }
}

impl NetworkTable {
    /// Takes the report of a connection to `network` at `now`.
    ///
    /// # Errors
    ///
    /// Why it gives no sample.
    pub fn take_reported(
        &mut self,
        network: Network,
        reported: &ReportedConnection,
        now: Timestamp,
    ) -> Result<(), ReportRefused> {
        let claimed = claim::sample(network, reported, now, SeededState(self.hash_seed))?;
        if self.memory.used_bytes > self.memory.limit_bytes / 2 || !self.has_place_to_spare(network) {
            return Err(ReportRefused::NoRoom);
        }
        let slot = self.entered(network).ok_or(ReportRefused::NoRoom)?;
        let sample = WindowSample { reason: self.read_as(claimed.reason), ..claimed };
        let entry = self.slots.get_mut(slot).ok_or(ReportRefused::NoRoom)?;
        match &entry.reported {
            Some(record) => has_room(record, &sample, &self.method.config)?,
            None if entry.announced.is_some() => return Err(ReportRefused::Wire),
            None => {}
        }
        let shared = entry.add(&sample, Evidence::Reports, &self.method);
        if let Some(record) = &mut entry.reported {
            let rtts = sample.rtt.map(RttSum::of).unwrap_or_default();
            record.add_rtts(sample.at, sample.remote, RttSum { min: sample.rtt_min, ..rtts }, &self.method.config);
        }
        entry.has_new_samples = true;
        self.dirty = true;
        self.shared += u64::from(shared);
        self.note_change(slot);
        self.consider_sample(slot, &WindowSample { at: now, ..claimed });
        self.account(slot);
        Ok(())
    }
}

/// Whether a sample's bucket has room for another one of its host.
fn has_room(record: &NetworkRecord, sample: &WindowSample, config: &WindowConfig) -> Result<(), ReportRefused> {
    let index = sample.at.0 / bucket_nanos(config.bucket);
    let index = record.buckets.last().map_or(index, |newest| newest.index.max(index));
    let first = record.contributions.partition_point(|part| part.bucket < index);
    let in_bucket = record.contributions.get(first..).unwrap_or_default();
    let host = |part: &&Contribution| part.source.is_some_and(|source| source.remote == sample.remote);
    let given: u32 = in_bucket.iter().filter(host).map(|part| part.samples + part.lower_bounds).sum();
    if given >= SAMPLES_PER_HOST {
        return Err(ReportRefused::HostLimit);
    }
    let is_full = given == 0 && hosts(in_bucket) as usize >= CONTRIBUTIONS_PER_BUCKET;
    if is_full { Err(ReportRefused::NoRoom) } else { Ok(()) }
}

/// Hosts that gave these parts.
fn hosts<'a>(parts: impl IntoIterator<Item = &'a Contribution>) -> u32 {
    let mut hosts: Vec<IpAddr> = parts.into_iter().filter_map(|part| Some(part.source?.remote)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    u32::try_from(hosts.len()).unwrap_or(u32::MAX)
}

impl Entry {
    /// The estimate that reports give. Nothing of it is by the senders under way, which the wire shows.
    pub(super) fn by_reports(&self, now: Timestamp, by: &Method) -> Result<Estimate, NoEstimate> {
        let record = self.reported.as_deref().ok_or(NoEstimate::TooFewSamples)?;
        let known = (record, &Delivery::default(), None);
        let estimate = estimate::estimate(self.network, known, now, &by.config, by.rule)?;
        // Hosts that gave the share: a host with lower bounds alone does not agree with another one's samples.
        let gave = |part: &&Contribution| estimate.is_lower_bound || part.samples > 0;
        let is_of_one = hosts(record.slice(now, &by.config).contributions.iter().filter(gave)) < 2;
        let most = Window::from_bytes(MOST_OF_ONE_HOST).filter(|most| is_of_one && *most < estimate.share);
        Ok(Estimate { share: most.unwrap_or(estimate.share), ..estimate })
    }
}
