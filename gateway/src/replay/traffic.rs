//! What was sent, summed up per network and per sender over the whole capture.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use spand_core::counters::Ignored;
use spand_core::flow::evidence::control::CongestionControl;
use spand_core::flow::report::DirectionReport;
use spand_core::networks::view::NetworkView;
use spand_core::types::SampleReason;
use spand_proto::network::Network;
use spand_proto::no_estimate::{Outcomes, Reason};
use spand_proto::units::{Bytes, Micros};
use strum::VariantArray;

/// A count for each of `N` kinds, in place: there is one for every network.
#[derive(Clone, Debug, PartialEq)]
struct Counts<K, const N: usize> {
    counts: [u64; N],
    kinds: PhantomData<K>,
}

impl<K, const N: usize> Default for Counts<K, N> {
    fn default() -> Self {
        Self { counts: [0; N], kinds: PhantomData }
    }
}

impl<K: VariantArray + Copy + PartialEq, const N: usize> Counts<K, N> {
    fn add(&mut self, kind: K, more: u64) {
        if let Some((_, count)) = K::VARIANTS.iter().zip(&mut self.counts).find(|(variant, _)| **variant == kind) {
            *count += more;
        }
    }

    fn of(&self, kind: K) -> u64 {
        self.counted().find(|(variant, _)| *variant == kind).map_or(0, |(_, count)| count)
    }

    /// The kind of which most was counted, among those that `may` be it; none where nothing was.
    fn most(&self, may: impl Fn(K) -> bool) -> Option<K> {
        let counted = self.counted().filter(|&(kind, count)| count > 0 && may(kind));
        counted.max_by_key(|&(_, count)| count).map(|(kind, _)| kind)
    }

    fn counted(&self) -> impl Iterator<Item = (K, u64)> {
        K::VARIANTS.iter().copied().zip(self.counts)
    }
}

/// Sums of what was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sent {
    /// Connections that carried data.
    pub connections: u64,
    /// Payload, each byte once.
    pub unique: Bytes,
    /// Packets with payload, less the mirror port's second copies.
    pub data_packets: u64,
    /// Those of them that carried payload seen before.
    pub retransmitted_packets: u64,
    /// New bytes of transfers that ended.
    pub transferred: Bytes,
    /// How long those took.
    pub active: Micros,
}

/// What was sent to a network, from the start of the capture on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Its sums.
    pub sent: Sent,
    /// Connections by why they gave neither a window sample nor a lower bound.
    without: Outcomes,
    /// Connections that gave one, by what the first was.
    with: Counts<SampleReason, { SampleReason::VARIANTS.len() }>,
}

impl Sent {
    fn add(&mut self, report: &DirectionReport) {
        let copies = report.duplicate_data_packets;
        self.connections += 1;
        self.unique = Bytes(self.unique.0.saturating_add(report.unique.0));
        self.data_packets += report.data_packets.saturating_sub(copies);
        self.retransmitted_packets += retransmitted(report);
        self.transferred = Bytes(self.transferred.0.saturating_add(report.transfers.bytes.0));
        self.active = Micros(self.active.0.saturating_add(report.transfers.active.0));
    }

    /// Mean rate of a connection while a transfer was under way, in bits per second.
    pub fn throughput_bps(&self) -> Option<u64> {
        throughput_bps(self.transferred, self.active)
    }

    /// Part of the packets with payload that carried payload seen before, in percent.
    pub fn retransmitted_pct(&self) -> Option<f64> {
        percent(self.retransmitted_packets, self.data_packets)
    }
}

impl Traffic {
    /// Adds a direction.
    pub fn add(&mut self, report: &DirectionReport) {
        self.sent.add(report);
        match report.first_sample {
            Some(reason) => self.with.add(reason, 1),
            None => self.without.add(why_no_sample(report)),
        }
    }

    /// Why `view`, the network's window, has no sample; `None` where it has one.
    pub fn no_sample(&self, view: Option<&NetworkView>) -> Option<Reason> {
        if view.is_some_and(|view| view.samples > 0) {
            return None;
        }
        if view.is_some_and(|view| view.lower_bounds > 0) {
            let most = self.with.most(SampleReason::is_lower_bound);
            return Some(match most {
                Some(SampleReason::EndReceiverLimited) => Reason::ReceiverLimited,
                Some(SampleReason::EndSlowStart) => Reason::SlowStartEnd,
                Some(SampleReason::Carried) => Reason::SlowStartLoss,
                _ => Reason::AppLimited,
            });
        }
        if self.with.most(|_| true).is_some() {
            return Some(Reason::OutsideWindow);
        }
        Some(self.without.most_frequent().unwrap_or(Reason::Unfinished))
    }
}

/// Packets that carried payload seen before, less the mirror port's second copies.
pub(super) fn retransmitted(report: &DirectionReport) -> u64 {
    report.retransmitted_packets.saturating_sub(report.duplicate_data_packets)
}

/// Bits per second while transfers were under way.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative; `as` saturates")]
pub(super) fn throughput_bps(transferred: Bytes, active: Micros) -> Option<u64> {
    /// A shorter time shows how fast the sender wrote, not what the path carried.
    const LEAST: Micros = Micros::from_millis(1);
    let seconds = active.as_secs_f64();
    (active >= LEAST).then(|| (transferred.0 as f64 * 8.0 / seconds).round() as u64)
}

/// `part` of `whole` in percent, to three places.
pub(super) fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64 * 100_000.0).round() / 1_000.0)
}

fn why_no_sample(report: &DirectionReport) -> Reason {
    match report {
        _ if report.bad_times == Some(Ignored::Untimed) => Reason::Untimed,
        _ if report.bad_times.is_some() => Reason::Unordered,
        _ if !report.acknowledged => Reason::OneSided,
        _ if report.midstream => Reason::Midstream,
        _ if report.loss_events > report.timeouts => Reason::SlowStartLoss,
        _ if report.timeouts > 0 => Reason::Timeout,
        _ => Reason::Unfinished,
    }
}

/// Why a network has no estimate: in the first place why it has no sample.
pub(super) fn why_not(view: Option<&NetworkView>, traffic: Option<&Traffic>) -> Option<Reason> {
    if view.is_some_and(|view| view.estimate.is_some()) {
        return None;
    }
    let no_sample = traffic.and_then(|traffic| traffic.no_sample(view));
    no_sample.or_else(|| Some(view?.no_estimate()?.reason))
}

/// What one address sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SenderTraffic {
    /// To everyone together.
    pub sent: Sent,
    /// Bytes by the congestion control recognised.
    by_control: Counts<CongestionControl, { CongestionControl::VARIANTS.len() }>,
}

impl SenderTraffic {
    pub(super) fn add(&mut self, report: &DirectionReport) {
        self.sent.add(report);
        self.by_control.add(report.congestion_control, report.unique.0);
    }

    /// The congestion control recognised for most of its bytes; unknown where none was recognised for a quarter of them at least.
    pub fn congestion_control(&self) -> CongestionControl {
        let of = |control: &CongestionControl| self.by_control.of(*control);
        let most = self.by_control.most(|control| control != CongestionControl::Unknown);
        most.filter(|control| 4 * of(control) >= self.sent.unique.0).unwrap_or(CongestionControl::Unknown)
    }
}

/// The sums of all directions that are over.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) networks: BTreeMap<Network, Traffic>,
    pub(super) senders: BTreeMap<IpAddr, SenderTraffic>,
    /// Networks, and senders, at most.
    limit: NonZeroUsize,
    /// Directions left out because there were as many.
    pub(super) no_room: u64,
}

impl Ledger {
    pub(super) fn new(limit: NonZeroUsize) -> Self {
        Self { networks: BTreeMap::new(), senders: BTreeMap::new(), limit, no_room: 0 }
    }

    /// Adds a direction towards `network`.
    pub(super) fn add(&mut self, network: Network, report: &DirectionReport) {
        let (limit, source) = (self.limit.get(), report.source.address);
        let room = (self.networks.len() < limit || self.networks.contains_key(&network))
            && (self.senders.len() < limit || self.senders.contains_key(&source));
        if !room {
            self.no_room += 1;
            return;
        }
        self.networks.entry(network).or_default().add(report);
        self.senders.entry(source).or_default().add(report);
    }

    /// The senders of most bytes, those first.
    pub(super) fn largest(&self, count: usize) -> Vec<(IpAddr, SenderTraffic)> {
        let mut largest: Vec<_> = Vec::with_capacity(count + 1);
        for (&address, sender) in &self.senders {
            // On a tie the lower address, which comes first, stays in front.
            let place =
                largest.partition_point(|(_, other): &(_, &SenderTraffic)| other.sent.unique >= sender.sent.unique);
            largest.insert(place, (address, sender));
            largest.truncate(count);
        }
        largest.into_iter().map(|(address, sender)| (address, sender.clone())).collect()
    }
}
