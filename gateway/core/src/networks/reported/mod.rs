//! Windows that hosts report of QUIC connections, in which a mirror shows none.
//!
//! A report is a claim, so it is kept apart from what the wire shows: in a record of its own, which is evaluated only while the wire gives no
//! estimate, is dropped when it does, and neither stored nor shared. In it a sample's address is the host that reports and its connection is
//! the remote address: so the rule bounds each host as it bounds an address on the wire, and the minimum of connections is one of remote
//! addresses (`docs/decisions/reported-windows.md`).

mod claim;

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};

use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::units::{Timestamp, Window};
use strum::VariantArray;

use self::claim::Claim;
pub use self::claim::{ReportRefused, ReportedConnection};
use super::{Entry, NetworkTable};
use crate::config::WindowConfig;
use crate::estimate::{self, Counts, Known, NoEstimate, Rule};
use crate::hash::SeededState;
use crate::types::{ConnectionId, RttSum, SampleReason, WindowSample};
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

    fn count(&mut self, outcome: Result<(), ReportRefused>) {
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
        let at = reported.arrived.before(reported.report.ended_ago).min(now);
        let claim = Claim::of(&reported.report, now.since(at))?;
        if self.memory.used_bytes > self.memory.limit_bytes / 2 {
            return Err(ReportRefused::NoRoom);
        }
        // Claims displace no network: they make an entry only while half of the table is free.
        let slot = match self.slots.find(network) {
            Some(slot) => slot,
            None if self.slots.is_half_full() => return Err(ReportRefused::NoRoom),
            None => self.slots.insert(Entry::new(network, self.config.bucket)).ok_or(ReportRefused::NoRoom)?,
        };
        let hash = SeededState(self.hash_seed).hash_one(reported.report.remote.ip()) >> 2;
        // The reporter's number stands where a sample has an address.
        let host = Ipv6Addr::from_bits(reported.reporter.into()).into();
        let sample = claim.sample(network, (host, ConnectionId(hash)), at);
        let shares = self.add_reported(slot, &sample, claim.rtts());
        self.shared += u64::from(shares?);
        self.note_change(slot);
        self.consider_sample(slot, &WindowSample { at: now, ..sample });
        self.account(slot);
        Ok(())
    }

    /// Counts what became of a report.
    pub(crate) fn count_report(&mut self, outcome: Result<(), ReportRefused>) {
        self.reports.count(outcome);
    }

    /// What became of reports.
    pub fn report_counts(&self) -> &ReportCounts {
        &self.reports
    }

    /// Adds a sample to the reported record of an entry. Returns whether it shared a place.
    fn add_reported(&mut self, slot: super::Slot, sample: &WindowSample, rtts: RttSum) -> Result<bool, ReportRefused> {
        self.dirty = true;
        let (config, rule) = (&self.config, self.rules.in_force);
        let entry = self.slots.get_mut(slot).ok_or(ReportRefused::NoRoom)?;
        if entry.reported.is_none() && entry.announced.is_some() {
            return Err(ReportRefused::Wire);
        }
        let record = entry.reported.get_or_insert_with(|| Box::new(NetworkRecord::new(config.bucket)));
        let room = has_room(record, sample, config);
        let shares = room.map(|()| {
            let sample = match sample.reason {
                SampleReason::EndSlowStart if rule.reads_slow_start_ends() => {
                    WindowSample { reason: SampleReason::End, ..*sample }
                }
                _ => *sample,
            };
            let admitted = if sample.reason.is_lower_bound() {
                sample.window
            } else {
                let admitted = rule.admit(&sample, &known(record, &sample, config, rule));
                record.raised = if admitted.raised { Some(sample.at) } else { record.raised };
                admitted.window
            };
            record.add_rtts(sample.at, sample.remote, rtts, config);
            record.add(&sample, admitted, config)
        });
        entry.has_new_samples |= shares.is_ok();
        shares
    }
}

impl Claim {
    fn sample(&self, network: Network, (remote, connection): (IpAddr, ConnectionId), at: Timestamp) -> WindowSample {
        WindowSample {
            at,
            network,
            remote,
            connection,
            window: self.window,
            mss: self.mss,
            reason: self.reason,
            reduced_before: false,
            transfer: spand_proto::units::Bytes(0),
            advised: self.advised,
            rtt_min: Some(self.rtt_min),
            rtt: None,
        }
    }

    fn rtts(&self) -> RttSum {
        RttSum { min: Some(self.rtt_min), ..RttSum::of(self.rtt) }
    }
}

/// Whether a sample's bucket has room for another one of its host.
fn has_room(record: &NetworkRecord, sample: &WindowSample, config: &WindowConfig) -> Result<(), ReportRefused> {
    let index = sample.at.0 / bucket_nanos(config.bucket);
    let index = record.buckets.last().map_or(index, |newest| newest.index.max(index));
    let in_bucket = || record.contributions.iter().rev().take_while(|part| part.bucket == index);
    let host = |part: &&Contribution| part.source.is_some_and(|source| source.remote == sample.remote);
    let given: u32 = in_bucket().filter(host).map(|part| part.samples + part.lower_bounds).sum();
    if given >= SAMPLES_PER_HOST {
        return Err(ReportRefused::HostLimit);
    }
    // In order of the source, so of the host.
    let mut hosts: Vec<_> = in_bucket().map(|part| part.source.map(|source| source.remote)).collect();
    hosts.dedup();
    if given == 0 && hosts.len() >= CONTRIBUTIONS_PER_BUCKET {
        return Err(ReportRefused::NoRoom);
    }
    Ok(())
}

/// What the rule may know before it admits a reported sample, by reports alone.
fn known(record: &NetworkRecord, sample: &WindowSample, config: &WindowConfig, rule: &dyn Rule) -> Known {
    if !sample.advised {
        return Known::default();
    }
    let estimate = estimate_of(record, sample.network, sample.at, config, rule).ok();
    Known {
        share: estimate.as_ref().map(|estimate| estimate.share),
        rtt: estimate.and_then(|estimate| estimate.rtt_mean),
        carried: rule.carried(record.slice(sample.at, config), sample.remote),
        raised: record.raised,
    }
}

/// What the reports of a network give. Nothing of it is by the senders under way, which the wire shows.
fn estimate_of(
    record: &NetworkRecord,
    network: Network,
    now: Timestamp,
    config: &WindowConfig,
    rule: &dyn Rule,
) -> Result<Estimate, NoEstimate> {
    let slice = record.slice(now, config);
    let counts = Counts::of(slice);
    if counts.connections_in_all < config.min_connections {
        return Err(NoEstimate::TooFewConnections);
    }
    let known = (record, &Delivery::default(), None);
    let estimate = estimate::of_counted(network, known, (slice, &counts), now, config, rule)?;
    // Hosts that gave the share: a host with lower bounds alone does not agree with another one's samples.
    let gave = |part: &Contribution| estimate.is_lower_bound || part.samples > 0;
    let most = Window::from_bytes(MOST_OF_ONE_HOST)
        .filter(|most| hosts(record, now, config, gave) < 2 && *most < estimate.share);
    Ok(most.map_or(estimate.clone(), |share| Estimate { share, ..estimate }))
}

/// Hosts in the window with parts that count.
fn hosts(record: &NetworkRecord, now: Timestamp, config: &WindowConfig, count: impl Fn(&Contribution) -> bool) -> u32 {
    let parts = record.slice(now, config).contributions.iter().filter(|part| count(part));
    let mut hosts: Vec<IpAddr> = parts.filter_map(|part| part.source).map(|source| source.remote).collect();
    hosts.sort_unstable();
    hosts.dedup();
    u32::try_from(hosts.len()).unwrap_or(u32::MAX)
}

impl Entry {
    /// The estimate that reports give.
    pub(super) fn by_reports(
        &self,
        now: Timestamp,
        config: &WindowConfig,
        rule: &dyn Rule,
    ) -> Result<Estimate, NoEstimate> {
        let record = self.reported.as_deref().ok_or(NoEstimate::TooFewSamples)?;
        estimate_of(record, self.network, now, config, rule)
    }

    /// What reports show in the window at `now`; `None` where there are none.
    pub(super) fn reported_view(&self, now: Timestamp, config: &WindowConfig) -> Option<ReportedView> {
        let record = self.reported.as_deref()?;
        let counts = Counts::of(record.slice(now, config));
        let samples = counts.samples.saturating_add(counts.lower_bounds);
        let newest = record.newest.unwrap_or_default();
        (samples > 0).then(|| ReportedView {
            samples,
            hosts: hosts(record, now, config, |_| true),
            newest,
            in_force: false,
        })
    }

    /// Bytes of what was reported.
    pub(super) fn reported_bytes(&self) -> usize {
        self.reported.as_ref().map_or(0, |record| size_of::<NetworkRecord>() + record.held_bytes())
    }

    /// Drops what is older than the window at `now`.
    pub(super) fn drop_aged_reports(&mut self, now: Timestamp, config: &WindowConfig) {
        let Some(record) = &mut self.reported else { return };
        record.drop_aged(now, config);
        if record.buckets.is_empty() {
            self.reported = None;
        }
    }
}
