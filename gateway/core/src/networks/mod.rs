//! The table of networks: bounded, aged by packet time, and the source of every event about an estimate.
//!
//! A [`NetworkTable`] takes samples, round-trip times, losses and limits, keeps them in the window of their network
//! ([`crate::window`]), evaluates the rule ([`crate::estimate`]) where one of them changed it, and announces when an
//! estimate appeared, changed, was refreshed or removed. Independent of connections, packets, hosts and subscribers.

mod announce;
mod changes;
mod handover;
mod other_gateways;
mod parallel;
mod recent;
pub mod reported;
mod slots;
#[cfg(test)]
mod tests;
pub mod traffic;
#[cfg(any(test, fuzzing))]
pub(crate) mod twin;
pub mod view;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::iter;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use spand_proto::estimate::{Estimate, RuleKind};
use spand_proto::network::Network;
use spand_proto::opening::Opening;
use spand_proto::units::{Micros, Timestamp};

use self::announce::Announced;
pub use self::announce::{NetworkEvent, Withdrawal};
use self::changes::Changes;
pub use self::other_gateways::{OtherGateways, OwnNetwork, Seen};
use self::recent::Recent;
use self::reported::ReportCounts;
use self::slots::{Slot, Slots};
use self::traffic::TrafficRing;
use crate::config::WindowConfig;
use crate::counters::Ignored;
use crate::estimate::{self, Known, NoEstimate, Rule};
use crate::mem::{Account, number, treed};
use crate::opening::Openings;
use crate::types::{
    ConnectionId, Delivered, Flows, LimitCounts, RttSum, SampleRate, SampleReason, SenderId, SenderState, WindowSample,
};
use crate::window::bucket::{Bucket, BucketOutcomes};
use crate::window::delivery::Delivery;
use crate::window::parallel::Parallel;
use crate::window::record::NetworkRecord;

/// Windows of all networks.
///
/// Adding costs a look-up, and an evaluation of its own network where the last one is some time ago. Nothing else is evaluated
/// but what [`Self::expire`] finds due: a network whose last additions wait for that, whose oldest bucket leaves the window, or
/// whose estimate is to be announced again.
#[derive(Debug)]
pub struct NetworkTable {
    method: Method,
    /// Rules whose answers each view shows beside that of the one in force.
    compared: Vec<RuleKind>,
    slots: Slots,
    changes: Changes,
    pub(crate) recent: Recent,
    events: VecDeque<NetworkEvent>,
    evicted: u64,
    shared: u64,
    rtts_shared: u64,
    openings: Option<Arc<dyn Openings>>,
    live_shared: u64,
    /// Something was added or removed since the last [`Self::take_dirty`].
    dirty: bool,
    memory: Account,
    others: Option<Box<dyn OtherGateways>>,
    hash_seed: u64,
    /// What became of reports.
    pub(crate) reports: ReportCounts,
}

/// One network in the table.
#[derive(Debug)]
struct Entry {
    network: Network,
    record: NetworkRecord,
    parallel: Parallel,
    delivery: Delivery,
    traffic: TrafficRing,
    /// Its senders under way, where a rule looks at them.
    openings: Option<Box<dyn Openings>>,
    announced: Option<Announced>,
    /// Samples came since it was announced.
    has_new_samples: bool,
    /// When it was last evaluated.
    considered: Option<Timestamp>,
    /// Waits in the set of changes.
    changed: bool,
    /// When it is to be looked at.
    due: Option<Timestamp>,
    /// Bytes of its record's samples, and of what other gateways saw, as accounted for.
    held: u32,
    /// What hosts reported, while the wire gives no estimate: beside the rest, since most networks have none.
    reported: Option<Box<NetworkRecord>>,
}

/// How estimates are made.
#[derive(Clone, Copy, Debug)]
struct Method {
    config: WindowConfig,
    rule: &'static dyn Rule,
}

/// What an estimate is made of.
#[derive(Clone, Copy, Debug)]
enum Evidence<'a> {
    /// What packets show: the entry's record, or this one, which has what other gateways saw too.
    Wire(Option<&'a NetworkRecord>),
    /// What hosts report.
    Reports,
}

impl NetworkTable {
    /// What became of reports.
    pub fn report_counts(&self) -> &ReportCounts {
        &self.reports
    }

    /// Samples dropped before they were taken to be shown: at most 4,096 wait.
    pub fn samples_dropped(&self) -> u64 {
        self.recent.dropped
    }

    /// An empty table for at most `limit` networks. `hash_seed` keeps outsiders from aiming networks at one place of it;
    /// no answer depends on it.
    pub fn new(config: WindowConfig, limit: NonZeroUsize, rule: RuleKind, hash_seed: u64) -> Self {
        Self::with_rule(config, limit, estimate::rule(rule), hash_seed)
    }

    /// The same with a rule that has no name, for experiments.
    pub fn with_rule(config: WindowConfig, limit: NonZeroUsize, rule: &'static dyn Rule, hash_seed: u64) -> Self {
        Self {
            method: Method { config, rule },
            compared: Vec::new(),
            slots: Slots::new(limit, hash_seed),
            // As many again for removed networks, which the store has to remove too.
            changes: Changes::new(limit.get().saturating_mul(2)),
            recent: Recent::default(),
            events: VecDeque::new(),
            evicted: 0,
            shared: 0,
            rtts_shared: 0,
            openings: None,
            live_shared: 0,
            dirty: false,
            memory: Account::up_to(usize::MAX),
            others: None,
            hash_seed,
            reports: ReportCounts::default(),
        }
    }

    /// Memory in bytes of N networks without their samples. As many removed ones may wait to be removed from the store.
    pub(crate) const fn places_bytes(networks: usize) -> usize {
        Slots::bytes(networks) + treed::<Network, ()>(2 * networks)
    }

    /// The same with at most this many bytes for samples; beyond, the network refreshed longest ago is evicted.
    #[must_use]
    pub fn within(self, memory_bytes: NonZeroUsize) -> Self {
        Self { memory: Account::up_to(memory_bytes.get()), ..self }
    }

    /// The same with the answers of other rules in each view, never in events.
    #[must_use]
    pub fn comparing(mut self, rules: &[RuleKind]) -> Self {
        self.compared = rules.to_vec();
        self
    }

    /// The same with what a rule for an opening keeps of senders under way.
    #[must_use]
    pub fn with_openings(self, openings: Option<Arc<dyn Openings>>) -> Self {
        Self { openings, ..self }
    }

    /// The window of its networks.
    pub const fn config(&self) -> &WindowConfig {
        &self.method.config
    }

    /// Memory of samples.
    pub const fn memory(&self) -> Account {
        self.memory
    }

    /// Takes a window sample or a lower bound.
    pub fn add(&mut self, sample: &WindowSample) {
        self.add_sampled(sample, SampleRate::ALL);
    }

    /// Takes a window sample or a lower bound of a connection; of those like it, this part is followed.
    pub(crate) fn add_sampled(&mut self, sample: &WindowSample, rate: SampleRate) {
        self.recent.note(sample);
        let Some(slot) = self.slot(sample.network, sample.at) else { return };
        // A copy costs as much as a small record's whole addition.
        let mut sample = Cow::Borrowed(sample);
        if let Some(others) = &self.others {
            sample.to_mut().remote = others.pseudonym(sample.remote);
        }
        let reason = self.read_as(sample.reason);
        if reason != sample.reason {
            sample.to_mut().reason = reason;
        }
        let sample = &*sample;
        let merged = self.others.as_deref().and_then(|others| others.merged(slot.index()));
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let shared = entry.add(sample, Evidence::Wire(merged), &self.method);
        if !sample.reason.is_lower_bound() {
            entry.has_new_samples = true;
            entry.parallel.sampled(sample.at, self.method.config.bucket, rate.weight());
        }
        self.shared += u64::from(shared);
        self.note_change(slot);
        self.tell(slot, OtherGateways::add);
        self.consider_sample(slot, sample);
        self.account(slot);
    }

    /// What a sample counts as: some rules read the end of a slow start like any other.
    fn read_as(&self, reason: SampleReason) -> SampleReason {
        match reason {
            SampleReason::EndSlowStart if self.method.rule.reads_slow_start_ends() => SampleReason::End,
            _ => reason,
        }
    }

    /// Takes round-trip times to an address of the network, and round trips of its sender by what limited them. Cheap: the
    /// estimate that they may move is evaluated at most once a second.
    pub fn add_rounds(&mut self, network: Network, at: Timestamp, remote: IpAddr, rtts: RttSum, limits: LimitCounts) {
        let remote = self.others.as_ref().map_or(remote, |others| others.pseudonym(remote));
        let shared = self.with_record(network, at, |record, config| {
            if let Some(bucket) = record.bucket_at(at, config) {
                bucket.add_limits(limits);
            }
            rtts.count > 0 && record.add_rtts(at, remote, rtts, config)
        });
        self.rtts_shared += u64::from(shared.unwrap_or_default());
    }

    /// Takes what a sender delivered to the network. One without round trips is none yet.
    pub fn add_delivered(&mut self, network: Network, at: Timestamp, delivered: Delivered) {
        if let Some(entry) = self.slots.find(network).and_then(|slot| self.slots.get_mut(slot)) {
            entry.delivery.add(at, delivered);
        }
    }

    /// Whether [`Self::add_state`] keeps anything.
    pub fn wants_live(&self) -> bool {
        self.openings.is_some()
    }

    /// Takes the state of a sender in the middle of a transfer, about once a round trip. A network without samples, round trips or losses is
    /// none yet.
    pub fn add_state(&mut self, network: Network, at: Timestamp, sender: SenderId, state: &SenderState) {
        let Some(slot) = self.slots.find(network) else { return };
        let Some(openings) = self.openings_at(slot) else { return };
        if openings.report(at, sender, state) {
            self.live_shared += 1;
            self.dirty = true;
        }
        self.account(slot);
    }

    fn openings_at(&mut self, slot: Slot) -> Option<&mut Box<dyn Openings>> {
        let of_any = self.openings.as_ref()?;
        Some(self.slots.get_mut(slot)?.openings.get_or_insert_with(|| of_any.of_network()))
    }

    /// A transfer of a sender to the network is over, with a sample or without.
    pub fn count_transfer(&mut self, network: Network, at: Timestamp) {
        self.count(network, at, BucketOutcomes::add_transfer);
    }

    /// Takes why a loss or the end of a transfer gave no sample.
    pub fn count_outcome(&mut self, network: Network, at: Timestamp, why: Ignored) {
        self.count(network, at, |outcomes| outcomes.add(why));
    }

    /// Outcomes move no estimate and leave for no other gateway. Data that nobody acknowledges displaces no network: alone, they
    /// make an entry only while half of the table is free.
    fn count(&mut self, network: Network, at: Timestamp, add: impl FnOnce(&mut BucketOutcomes)) {
        if !self.has_place_to_spare(network) {
            return;
        }
        let Some(slot) = self.slot(network, at) else { return };
        if let Some(entry) = self.slots.get_mut(slot)
            && let Some(bucket) = entry.record.bucket_at(at, &self.method.config)
        {
            add(&mut bucket.outcomes);
        }
        self.note_change(slot);
        self.schedule_evaluation(slot, at);
        self.account(slot);
    }

    /// Takes what passed to and from a network by `at`. Returns whether it has an estimate; `None` where it is not in the table: traffic alone
    /// makes no entry, which any flood could, but keeps one.
    pub fn add_traffic(&mut self, network: Network, at: Timestamp, flows: &Flows) -> Option<bool> {
        let slot = self.slots.find(network)?;
        let entry = self.slots.get_mut(slot)?;
        let covered = entry.announced.is_some();
        if entry.traffic.add(at, flows, &self.method.config) {
            let due = entry.traffic.next_aged(&self.method.config);
            if entry.record.is_new_bucket(at) {
                self.slots.touch(slot);
            }
            due.inspect(|due| self.slots.due_by(slot, *due));
            self.dirty = true;
            self.account(slot);
        }
        self.note_change(slot);
        Some(covered)
    }

    /// Takes a loss event of a sender whose round trip is `rtt`.
    pub fn add_loss(&mut self, network: Network, at: Timestamp, sender: SenderId, rtt: Micros) {
        self.with_record(network, at, |record, config| record.bucket_at(at, config).map(Bucket::add_loss));
        if let Some(openings) = self.slots.find(network).and_then(|slot| self.openings_at(slot)) {
            openings.lose(at, sender, rtt);
        }
    }

    /// Looks at networks that are due at `now` until that was so much work: one for each, and one for every 32 contributions to its
    /// window. `false` where more wait. A caller with packets at hand spreads the work over them; answers are right in between, since
    /// readers pass over what is aged.
    pub fn expire(&mut self, now: Timestamp, work: usize) -> bool {
        let Self { slots, others, .. } = self;
        let find = |network| slots.own(slots.find(network)?);
        let mut left = others.as_mut().map_or(work, |others| others.close_over(now, work, &find));
        while left > 0 {
            let Some(slot) = self.slots.take_due(now) else { return true };
            let contributions = self.slots.get(slot).map_or(0, |entry| entry.record.contributions.len());
            left = left.saturating_sub(1 + contributions / 32);
            self.dirty = true;
            self.age(slot, now);
        }
        self.poll_timeout().is_none_or(|due| due > now)
    }

    /// When [`Self::expire`] has something to do next.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let (due, close) = (self.slots.next_due(), self.others.as_ref().and_then(|others| others.next_close()));
        due.zip(close).map(|(due, close)| due.min(close)).or(due).or(close)
    }

    /// Whether anything with events or counters was added or removed since the last call.
    pub(crate) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// The oldest event not taken yet. Each call above adds at most as many as networks it touched: take them after it.
    pub fn poll_event(&mut self) -> Option<NetworkEvent> {
        self.events.pop_front()
    }

    /// Samples and lower bounds added since the last call, as they were measured; the first call only starts the account.
    pub fn take_samples(&mut self) -> Vec<WindowSample> {
        self.recent.take()
    }

    /// Drops the networks that are not to be kept, with their samples; announced ones are withdrawn.
    pub(crate) fn drop_unless(&mut self, keep: impl Fn(Network) -> bool) -> usize {
        let gone = self.slots.entries().filter(|(_, entry)| !keep(entry.network)).map(|(slot, _)| slot);
        let gone: Vec<Slot> = gone.collect();
        for slot in &gone {
            self.remove(*slot, Withdrawal::Administrator);
        }
        self.dirty = true;
        gone.len()
    }

    /// The number that a connection has where records are shared.
    pub(crate) fn connection(&self, ends: [(IpAddr, u16); 2], seq: u32) -> Option<ConnectionId> {
        self.others.as_ref().map(|others| others.connection(ends, seq))
    }

    /// Networks in the table, including aged ones that were not evaluated since.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Networks that had to go because the table was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Samples that shared the place of another connection because their bucket was full.
    pub fn shared(&self) -> u64 {
        self.shared
    }

    /// Reports of senders under way that were only added to the sums of their network.
    pub fn live_shared(&self) -> u64 {
        self.live_shared
    }

    /// Round-trip times at which an address lost its slot in its bucket, so that they no longer count as its own.
    pub fn rtts_shared(&self) -> u64 {
        self.rtts_shared
    }

    /// The place of a network, new where it has to be; the network refreshed longest ago makes room for it.
    fn slot(&mut self, network: Network, at: Timestamp) -> Option<Slot> {
        self.dirty = true;
        let slot = if let Some(slot) = self.slots.find(network) {
            slot
        } else {
            if self.slots.is_full() {
                self.evict();
            }
            self.entered(network)?
        };
        // Order by bucket is exact enough, and spares most packets the writes.
        if self.slots.get(slot)?.record.is_new_bucket(at) {
            self.slots.touch(slot);
            self.tell(slot, |others, own| others.open(own, at));
        }
        Some(slot)
    }

    /// The place of a network, new where it has to be; none where the table is full.
    fn entered(&mut self, network: Network) -> Option<Slot> {
        let known = self.slots.find(network);
        known.or_else(|| self.slots.insert(Entry::new(network, self.method.config.bucket)))
    }

    /// Whether a network has an entry, or may have one that displaces no other.
    fn has_place_to_spare(&self, network: Network) -> bool {
        self.slots.find(network).is_some() || !self.slots.is_half_full()
    }

    fn with_record<T>(
        &mut self,
        network: Network,
        at: Timestamp,
        add: impl FnOnce(&mut NetworkRecord, &WindowConfig) -> T,
    ) -> Option<T> {
        let slot = self.slot(network, at)?;
        let entry = self.slots.get_mut(slot)?;
        let added = add(&mut entry.record, &self.method.config);
        self.note_change(slot);
        self.tell(slot, OtherGateways::add);
        self.schedule_evaluation(slot, at);
        self.account(slot);
        Some(added)
    }

    /// Takes down what the record of a network holds after something changed it. Where that is too much, the network refreshed
    /// longest ago is evicted, but not the last one.
    #[inline]
    fn account(&mut self, slot: Slot) {
        let Some(entry) = self.slots.get_mut(slot) else { return };
        let openings = entry.openings.as_ref().map_or(0, |openings| openings.held_bytes());
        let reported = entry.reported.as_ref().map_or(0, |record| size_of::<NetworkRecord>() + record.held_bytes());
        let foreign = self.others.as_ref().map_or(0, |others| others.held_bytes(slot.index()));
        let held = number(entry.record.held_bytes() + entry.traffic.held_bytes() + openings + reported + foreign);
        if held == entry.held {
            return;
        }
        self.memory.change(std::mem::replace(&mut entry.held, held), held);
        while self.memory.is_over() && self.slots.len() > 1 {
            self.evict();
        }
    }

    /// Makes room: a network that only other gateways saw goes first, and else the one refreshed longest ago.
    fn evict(&mut self) {
        let foreign = self.others.as_ref().and_then(|others| self.slots.find(others.first_to_go()?));
        if let Some(slot) = foreign.or_else(|| self.slots.oldest()) {
            self.evicted += 1;
            self.remove(slot, Withdrawal::Evicted);
        }
    }

    fn note_change(&mut self, slot: Slot) {
        if let Some(entry) = self.slots.get_mut(slot)
            && !entry.changed
        {
            entry.changed = self.changes.note(entry.network);
        }
    }
}

impl Entry {
    fn new(network: Network, bucket: Micros) -> Self {
        Self {
            network,
            record: NetworkRecord::new(bucket),
            parallel: Parallel::default(),
            delivery: Delivery::default(),
            traffic: TrafficRing::default(),
            openings: None,
            announced: None,
            considered: None,
            has_new_samples: false,
            changed: false,
            due: None,
            held: 0,
            reported: None,
        }
    }

    /// What estimates are made of: its record, or that merged with what other gateways saw.
    fn evaluated<'a>(&'a self, merged: Option<&'a NetworkRecord>) -> &'a NetworkRecord {
        merged.unwrap_or(&self.record)
    }

    /// Whether nothing is left in its window that this gateway saw.
    fn is_empty(&self) -> bool {
        self.record.buckets.is_empty() && self.traffic.is_empty() && self.reported.is_none()
    }

    /// What its window says at `now` by the wire: by packets that this gateway or others saw.
    fn by_wire(&self, merged: Option<&NetworkRecord>, now: Timestamp, by: &Method) -> Result<Estimate, NoEstimate> {
        let known = (self.evaluated(merged), &self.delivery, self.opening(now));
        let estimate = estimate::estimate(self.network, known, now, &by.config, by.rule)?;
        Ok(self.bounded(estimate, merged, now, by))
    }

    /// An estimate no further from what the own tap saw than cells of others may move it.
    fn bounded(&self, of_all: Estimate, merged: Option<&NetworkRecord>, now: Timestamp, by: &Method) -> Estimate {
        if merged.is_none() {
            return of_all;
        }
        estimate::bounded(of_all, (self.record.slice(now, &by.config), &self.record), (&self.delivery, now), by.rule)
    }

    fn opening(&self, now: Timestamp) -> Option<Opening> {
        self.openings.as_ref()?.opening(now)
    }

    /// The records that its estimate may be made of.
    fn records<'a>(&'a self, merged: Option<&'a NetworkRecord>) -> impl Iterator<Item = &'a NetworkRecord> {
        iter::once(self.evaluated(merged)).chain(self.reported.as_deref())
    }

    /// Adds a sample as the rule admits it, or a lower bound. Returns whether it had to share the place of another connection.
    fn add(&mut self, sample: &WindowSample, to: Evidence<'_>, by: &Method) -> bool {
        let is_sample = !sample.reason.is_lower_bound();
        let admitted = is_sample.then(|| by.rule.admit(sample, &self.known(sample, to, by)));
        let record = match to {
            Evidence::Wire(_) => &mut self.record,
            Evidence::Reports => self.reported.get_or_insert_with(|| Box::new(NetworkRecord::new(by.config.bucket))),
        };
        if admitted.is_some_and(|admitted| admitted.raised) {
            record.raised = Some(sample.at);
        }
        record.add(sample, admitted.map_or(sample.window, |admitted| admitted.window), &by.config)
    }

    /// What the rule may know before it admits `sample`, from that evidence alone.
    fn known(&self, sample: &WindowSample, from: Evidence<'_>, by: &Method) -> Known {
        // Only advised samples can be raised, so only they are worth an evaluation.
        if !sample.advised {
            return Known::default();
        }
        let (estimate, record) = match from {
            Evidence::Wire(merged) => (self.by_wire(merged, sample.at, by), Some(self.evaluated(merged))),
            Evidence::Reports => (self.by_reports(sample.at, by), self.reported.as_deref()),
        };
        let (Some(record), estimate) = (record, estimate.ok()) else { return Known::default() };
        Known {
            share: estimate.as_ref().map(|estimate| estimate.share),
            rtt: estimate.and_then(|estimate| estimate.rtt_mean),
            carried: by.rule.carried(record.slice(sample.at, &by.config), sample.remote),
            raised: record.raised.max(self.record.raised),
        }
    }
}
