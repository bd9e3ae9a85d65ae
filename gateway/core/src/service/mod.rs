//! How large the transfers of the services inside are: a quantile per server address and port.
//!
//! A start whose application does not specify its size takes that of its service (`docs/explain/definitions.md`, "The start"). Only whole
//! transfers count, and only those of a sender that accepted the connection at its port: the other port is ephemeral. Of one
//! remote address a few count (`histogram::Remotes`), so that no client sets the size for the others.

mod histogram;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;

use hashbrown::HashMap;
use spand_proto::units::{Bytes, Micros, Timestamp};

use self::histogram::{Histogram, SPAN, key_of};
use crate::counters::{Counters, Ignored};
use crate::hash::SeededState;
use crate::mem::{boxed, hashed, listed};
use crate::recency::{Recency, index};
use crate::types::SampleRate;

/// How large a service's transfers are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServiceSize {
    /// Its address inside and the port at which it takes connections.
    pub service: SocketAddr,
    /// Size in payload bytes that three of four transfers did not exceed, at most an eighth of an octave (9 %) too large.
    pub quantile: Bytes,
    /// Transfers behind it, of the last half to whole hour, with their weights; of one remote address at most three in half an hour.
    pub transfers: u32,
}

/// A whole transfer of a service inside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransferEnded {
    /// Whose it was.
    pub service: SocketAddr,
    /// The receiver.
    pub remote: IpAddr,
    /// When it had ended.
    pub at: Timestamp,
    /// What was acknowledged of it.
    pub size: Bytes,
    /// Which part of the connections like its own is followed: the transfer counts with the inverse of that, up to the limit of one remote
    /// address.
    pub rate: SampleRate,
}

/// What changed in the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ServiceEvent {
    /// The size quantile of a service appeared, moved by more than the configured change, or was refreshed.
    Size(ServiceSize),
    /// A transfer ended, for the engine that keeps the services.
    Ended(TransferEnded),
    /// A service has no size quantile any more.
    Forgotten(SocketAddr),
}

/// Transfers from which on a quantile is given: with fewer it is the size of one or two of them.
const LEAST_TRANSFERS: u32 = 10;
/// An announced quantile is computed again after this long at the earliest: it is a walk over the whole histogram.
const LOOK: Micros = Micros::from_secs(1);
/// A service is forgotten this long after its last transfer: what its histogram holds is older than it would count.
const FORGET: Micros = Micros(2 * SPAN.0);
/// Services forgotten at a time, so that no frame waits for many.
const FORGET_AT_ONCE: usize = 64;

/// The services and the sizes of their transfers, by address and port; at the limit the one idle longest is evicted.
#[derive(Debug)]
pub(crate) struct ServiceTable {
    by_service: HashMap<SocketAddr, u32, SeededState>,
    places: Vec<Option<Box<Entry>>>,
    free: Vec<u32>,
    recency: Recency,
    limit: usize,
    refresh: Micros,
    change: f64,
    /// Another engine keeps the services: transfers that end here are sent to it.
    elsewhere: bool,
    hashing: SeededState,
    /// Taken after every frame, so no more than that leads to.
    events: VecDeque<ServiceEvent>,
}

#[derive(Debug)]
struct Entry {
    service: SocketAddr,
    sizes: Histogram,
    newest: Timestamp,
    /// Transfers since it is known, as far as that matters.
    transfers: u32,
    looked: Timestamp,
    announced: Option<(Timestamp, Bytes)>,
}

impl ServiceTable {
    /// Bytes taken by N services.
    pub(crate) const fn places_bytes(services: usize) -> usize {
        services.saturating_mul(boxed::<Entry>())
            + listed::<Option<Box<Entry>>>(services)
            + listed::<u32>(services)
            + Recency::bytes(services)
            + hashed::<(SocketAddr, u32)>(services)
    }

    /// No service; at most `limit`. A quantile is announced if it changed by `change`, or after `refresh`. With
    /// `elsewhere` nothing is kept and every transfer is an event.
    pub(crate) fn new(limit: NonZeroUsize, refresh: Micros, change: f64, hash_seed: u64, elsewhere: bool) -> Self {
        Self {
            by_service: HashMap::with_hasher(SeededState(hash_seed)),
            places: Vec::new(),
            free: Vec::new(),
            recency: Recency::default(),
            limit: limit.get().min(usize::try_from(u32::MAX).unwrap_or(usize::MAX)),
            refresh,
            change,
            elsewhere,
            hashing: SeededState(hash_seed),
            events: VecDeque::new(),
        }
    }

    /// Takes a transfer.
    pub(crate) fn add(&mut self, ended: &TransferEnded, counters: &mut Counters) {
        if self.elsewhere {
            self.events.push_back(ServiceEvent::Ended(*ended));
            return;
        }
        let TransferEnded { service, remote, at, size, rate } = *ended;
        let found = self.by_service.get(&service).copied();
        let Some(slot) = found.or_else(|| self.insert(service, at, counters)) else { return };
        self.recency.touch(slot);
        let Some(entry) = self.places.get_mut(index(slot)).and_then(Option::as_mut) else { return };
        entry.newest = at;
        let weight = u8::try_from(rate.weight().div_ceil(SampleRate::ALL.weight())).unwrap_or(u8::MAX);
        if entry.sizes.add(at, key_of(remote, self.hashing), size, weight) {
            entry.transfers = entry.transfers.saturating_add(1);
        } else {
            counters.ignore(Ignored::ServiceRemoteLimit);
        }
        self.events.extend(entry.announce(at, self.refresh, self.change));
    }

    /// Forgets some of what sent nothing for long.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        for _ in 0..FORGET_AT_ONCE {
            let Some(slot) = self.recency.oldest().filter(|_| self.poll_timeout().is_some_and(|due| due <= now)) else {
                return;
            };
            self.remove(slot);
        }
    }

    /// When [`ServiceTable::expire`] has something to do next.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let oldest = self.places.get(index(self.recency.oldest()?))?.as_ref()?;
        Some(oldest.newest.after(FORGET))
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<ServiceEvent> {
        self.events.pop_front()
    }

    /// Whether there are events.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Every service whose quantile is known, by address and port.
    pub(crate) fn sizes(&self) -> Vec<ServiceSize> {
        let mut sizes: Vec<_> = self.places.iter().flatten().filter_map(|entry| entry.size()).collect();
        sizes.sort_unstable_by_key(|size| size.service);
        sizes
    }

    /// Adds a service that has no entry; at the limit that of the one idle longest goes.
    fn insert(&mut self, service: SocketAddr, at: Timestamp, counters: &mut Counters) -> Option<u32> {
        if self.by_service.len() >= self.limit
            && let Some(oldest) = self.recency.oldest()
        {
            counters.ignore(Ignored::NoRoomService);
            self.remove(oldest);
        }
        let slot = self.free.pop().or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).ok()
        })?;
        let entry = Entry { service, sizes: Histogram::new(at), newest: at, transfers: 0, looked: at, announced: None };
        *self.places.get_mut(index(slot))? = Some(Box::new(entry));
        self.by_service.insert(service, slot);
        self.recency.push(slot);
        Some(slot)
    }

    fn remove(&mut self, slot: u32) {
        let Some(entry) = self.places.get_mut(index(slot)).and_then(Option::take) else { return };
        self.by_service.remove(&entry.service);
        self.recency.remove(slot);
        self.free.push(slot);
        if entry.announced.is_some() {
            self.events.push_back(ServiceEvent::Forgotten(entry.service));
        }
    }
}

impl Entry {
    /// Returns an event if the quantile appeared, changed or went, or if its last event is a while ago.
    fn announce(&mut self, at: Timestamp, refresh: Micros, change: f64) -> Option<ServiceEvent> {
        if self.transfers < LEAST_TRANSFERS || (self.announced.is_some() && at.since(self.looked) < LOOK) {
            return None;
        }
        self.looked = at;
        let size = self.size();
        let event = match (self.announced, size) {
            (None, None) => return None,
            (Some(_), None) => ServiceEvent::Forgotten(self.service),
            (Some((announced_at, announced)), Some(size))
                if at.since(announced_at) < refresh && !moved(announced, size.quantile, change) =>
            {
                return None;
            }
            (_, Some(size)) => ServiceEvent::Size(size),
        };
        self.announced = size.map(|size| (at, size.quantile));
        Some(event)
    }

    fn size(&self) -> Option<ServiceSize> {
        let transfers = self.sizes.count();
        let quantile = self.sizes.quantile().filter(|_| transfers >= LEAST_TRANSFERS)?;
        Some(ServiceSize { service: self.service, quantile, transfers })
    }
}

fn moved(announced: Bytes, now: Bytes, change: f64) -> bool {
    announced.0.abs_diff(now.0) as f64 > change * announced.0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp::default().after(Micros::from_secs(s))
    }

    fn service(n: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], n))
    }

    fn table(limit: usize) -> ServiceTable {
        ServiceTable::new(NonZeroUsize::new(limit).unwrap(), Micros::from_secs(20), 0.1, 0, false)
    }

    fn ended(service: SocketAddr, remote: IpAddr, at: Timestamp, size: Bytes) -> TransferEnded {
        TransferEnded { service, remote, at, size, rate: SampleRate::ALL }
    }

    /// Transfers to this many remote addresses, from the `first` on.
    fn add(table: &mut ServiceTable, n: u16, at: Timestamp, first: u32, count: u32, size: u64) -> bool {
        let to = |remote: u32| IpAddr::from((0x0a00_0000 + remote).to_be_bytes());
        let mut counters = Counters::default();
        for remote in first..first + count {
            table.add(&ended(service(n), to(remote), at, Bytes(size)), &mut counters);
        }
        assert_eq!(counters.ignored(Ignored::ServiceRemoteLimit), 0);
        counters.ignored(Ignored::NoRoomService) > 0
    }

    fn events(table: &mut ServiceTable) -> Vec<ServiceEvent> {
        std::iter::from_fn(|| table.poll_event()).collect()
    }

    fn announced(table: &mut ServiceTable) -> Vec<(u64, u32)> {
        let size = |event| match event {
            ServiceEvent::Size(size) => (size.quantile.0, size.transfers),
            other => panic!("{other:?}"),
        };
        events(table).into_iter().map(size).collect()
    }

    #[test]
    fn a_quantile_is_announced_from_ten_transfers_on_then_if_it_changed_or_is_old() {
        let mut table = table(10);
        assert!(!add(&mut table, 443, at(0), 0, 9, 1 << 14));
        assert_eq!(table.sizes(), []);
        assert!(!add(&mut table, 443, at(0), 9, 3, 1 << 14));
        assert_eq!(announced(&mut table), [(1 << 14, 10)], "the tenth, and no event after it");
        add(&mut table, 443, at(20), 12, 1, 1 << 14);
        assert_eq!(announced(&mut table), [(1 << 14, 13)], "announced again after the interval");
        add(&mut table, 443, at(21), 13, 4, 1 << 15);
        assert_eq!(announced(&mut table), []);
        add(&mut table, 443, at(22), 17, 1, 1 << 15);
        assert_eq!(announced(&mut table), [(1 << 15, 18)], "5 of 18 are larger: the quantile moved");
        add(&mut table, 443, at(22), 18, 50, 1 << 10);
        assert_eq!(announced(&mut table), [], "computed once a second");
        add(&mut table, 443, at(23), 68, 1, 1 << 10);
        assert_eq!(announced(&mut table), [(1 << 14, 69)]);
    }

    #[test]
    fn the_service_idle_longest_is_evicted_and_announced() {
        let mut table = table(2);
        assert!(!add(&mut table, 1, at(0), 0, 10, 1 << 14));
        assert!(!add(&mut table, 2, at(1), 0, 1, 1 << 14));
        assert!(!add(&mut table, 1, at(2), 0, 1, 1 << 14));
        assert!(add(&mut table, 3, at(3), 0, 1, 1 << 14), "the second has to go");
        events(&mut table);
        assert!(add(&mut table, 4, at(3), 0, 1, 1 << 14), "then the first");
        assert_eq!(events(&mut table), [ServiceEvent::Forgotten(service(1))]);
        assert_eq!(table.by_service.len(), 2);
    }

    #[test]
    fn a_silent_service_is_forgotten_when_its_sizes_are_too_old_to_count() {
        let mut table = table(10);
        assert!(!add(&mut table, 1, at(5), 0, 10, 1 << 14));
        events(&mut table);
        assert_eq!(table.poll_timeout(), Some(at(3_605)));
        table.expire(at(3_604));
        assert_eq!(events(&mut table), []);
        table.expire(at(3_605));
        assert_eq!(events(&mut table), [ServiceEvent::Forgotten(service(1))]);
        assert_eq!((table.poll_timeout(), table.sizes().len()), (None, 0));
    }

    #[test]
    fn a_transfer_of_a_thinned_network_counts_with_its_weight_up_to_the_limit_of_an_address() {
        let (mut table, mut counters) = (table(10), Counters::default());
        let of = |remote: u8, parts, size| TransferEnded {
            rate: SampleRate::of_256(parts),
            ..ended(service(443), [10, 0, 0, remote].into(), at(0), Bytes(size))
        };
        // Unweighted, two of nine would be large: less than the quarter that sets the quantile.
        table.add(&of(1, 128, 1 << 20), &mut counters);
        table.add(&of(2, 1, 1 << 20), &mut counters);
        (3..10).for_each(|remote| table.add(&of(remote, 256, 1 << 10), &mut counters));
        assert_eq!(counters, Counters::default());
        let sizes = table.sizes();
        assert_eq!((sizes[0].transfers, sizes[0].quantile), (2 + 3 + 7, Bytes(1 << 20)));
    }

    #[test]
    fn a_service_that_became_seldom_has_no_quantile_any_more() {
        let mut table = table(10);
        assert!(!add(&mut table, 1, at(0), 0, 10, 1 << 14));
        add(&mut table, 1, at(3_000), 0, 1, 1 << 14);
        events(&mut table);
        add(&mut table, 1, at(5_000), 0, 1, 1 << 14);
        assert_eq!(events(&mut table), [ServiceEvent::Forgotten(service(1))]);
    }

    /// The usual size of a service whose honest clients had `each` transfers of 30 kB to 3.8 MB, without and with one more
    /// client that has 400 of `size` bytes among them. Half of the clients were there before it came.
    fn usual_sizes(clients: u32, each: u32, size: u64) -> [Option<u64>; 2] {
        [0, 400_u32].map(|hostile| {
            let (mut table, mut counters) = (table(1), Counters::default());
            let client = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
            let all = clients * each;
            for n in 0..all {
                // Seven octaves from 30 kB on, each size once and in no order.
                let step = u64::from(n * 37 % all) * 7;
                let (octave, part) = (30_000 << (step / u64::from(all)), step % u64::from(all));
                let honest = Bytes(octave + octave * part / u64::from(all));
                table.add(&ended(service(443), client(n % clients), at(u64::from(n)), honest), &mut counters);
                if n >= all / 2 {
                    for _ in 0..hostile.div_ceil(all - all / 2) {
                        let ended = ended(service(443), "203.0.113.9".parse().unwrap(), at(u64::from(n)), Bytes(size));
                        table.add(&ended, &mut counters);
                    }
                }
            }
            table.sizes().first().map(|size| size.quantile.0)
        })
    }

    #[test]
    fn one_client_does_not_set_the_usual_size_of_a_service() {
        for each in [2, 3] {
            for size in [200, 1 << 30] {
                let [Some(honest), Some(hostile)] = usual_sizes(60, each, size) else { panic!("a size is known") };
                let moved = hostile as f64 / honest as f64 - 1.0;
                assert!(moved.abs() <= 0.1, "{size} bytes, {each} of each: {honest} became {hostile}");
            }
        }
    }

    /// The bound in docs/explain/threat-model.md for services with few clients.
    #[test]
    fn a_service_with_few_clients_has_a_size_of_theirs_or_none() {
        assert_eq!(usual_sizes(1, 3, 200), [None, None], "one client's sizes, and two's, are too few");
        for clients in [3, 10] {
            for size in [200, 1 << 30] {
                let [_, Some(hostile)] = usual_sizes(clients, 3, size) else { panic!("a size is known") };
                assert!((30_000..4_200_000).contains(&hostile), "{clients} clients, {size} bytes: {hostile}");
            }
        }
        // Two clients in two half hours: six transfers of the hostile one against four others, which still decide.
        let (mut table, mut counters) = (table(1), Counters::default());
        let (honest, other) = ("10.0.0.1".parse().unwrap(), "203.0.113.9".parse().unwrap());
        for n in 0..800 {
            table.add(&ended(service(443), other, at(n * 4), Bytes(200)), &mut counters);
            if n % 250 == 0 {
                table.add(&ended(service(443), honest, at(n * 4), Bytes(300_000)), &mut counters);
            }
        }
        assert!(table.sizes()[0].quantile.0 >= 300_000, "{:?}", table.sizes());
    }
}
