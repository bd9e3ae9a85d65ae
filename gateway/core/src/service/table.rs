//! The services, by address and port; the one that sent longest ago goes where there is no room.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

use hashbrown::HashMap;
use spand_proto::units::{Bytes, Micros, Timestamp};

use super::ServiceSize;
use super::histogram::{Histogram, SPAN};
use crate::event::{Event, TransferEnded};
use crate::flow::tuple::SeededState;
use crate::recency::Recency;

/// Transfers from which on a quantile is given: with fewer it is the size of one or two of them.
const LEAST_TRANSFERS: u32 = 10;
/// A quantile that was told is looked at again after this long at the soonest: it is a walk over the whole histogram.
const LOOK: Micros = Micros::from_secs(1);
/// A service is forgotten this long after its last transfer: what its histogram holds is older than it would count.
const FORGET: Micros = Micros(2 * SPAN.0);
/// Services forgotten at a time, so that no frame waits for many.
const FORGET_AT_ONCE: usize = 64;

/// Services and the sizes of their transfers.
#[derive(Debug)]
pub(crate) struct ServiceTable {
    by_service: HashMap<SocketAddr, u32, SeededState>,
    places: Vec<Option<Box<Entry>>>,
    free: Vec<u32>,
    recency: Recency,
    limit: usize,
    refresh: Micros,
    change: f64,
    /// Another engine keeps the services: what ends here is told.
    elsewhere: bool,
    /// Taken after every frame, so no more than that leads to.
    events: VecDeque<Event>,
}

#[derive(Debug)]
struct Entry {
    service: SocketAddr,
    sizes: Histogram,
    newest: Timestamp,
    /// Transfers since it is known, as far as that matters.
    transfers: u32,
    looked: Timestamp,
    told: Option<(Timestamp, Bytes)>,
}

impl ServiceTable {
    /// No service; at most `limit`. A quantile is told where it moved by `change`, or after `refresh`. With
    /// `elsewhere` nothing is kept and every transfer is told.
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
            events: VecDeque::new(),
        }
    }

    /// A transfer of `size` payload bytes ended; whether another service had to go for it.
    pub(crate) fn add(&mut self, service: SocketAddr, at: Timestamp, size: Bytes) -> bool {
        if self.elsewhere {
            self.events.push_back(Event::TransferEnded(TransferEnded { service, at, size }));
            return false;
        }
        let found = self.by_service.get(&service).copied();
        let evicts = found.is_none() && self.by_service.len() >= self.limit;
        if evicts && let Some(oldest) = self.recency.oldest() {
            self.remove(oldest);
        }
        let Some(slot) = found.or_else(|| self.insert(service, at)) else { return evicts };
        self.recency.touch(slot);
        let Some(entry) = self.entry_mut(slot) else { return evicts };
        entry.newest = at;
        entry.sizes.add(at, size);
        entry.transfers = entry.transfers.saturating_add(1);
        self.tell(slot, at);
        evicts
    }

    /// Forgets some of what sent nothing for long.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        for _ in 0..FORGET_AT_ONCE {
            let oldest = self.recency.oldest();
            let due = |slot: &u32| self.entry(*slot).is_some_and(|entry| entry.newest.after(FORGET) <= now);
            let Some(slot) = oldest.filter(due) else { return };
            self.remove(slot);
        }
    }

    /// When [`ServiceTable::expire`] has something to do next.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.entry(self.recency.oldest()?).map(|entry| entry.newest.after(FORGET))
    }

    /// What is to be told.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether something is to be told.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Every service whose quantile is known, by address and port.
    pub(crate) fn sizes(&self) -> Vec<ServiceSize> {
        let mut sizes: Vec<_> = self.places.iter().flatten().filter_map(|entry| entry.size()).collect();
        sizes.sort_unstable_by_key(|size| size.service);
        sizes
    }

    fn entry(&self, slot: u32) -> Option<&Entry> {
        self.places.get(index(slot))?.as_deref()
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.places.get_mut(index(slot))?.as_deref_mut()
    }

    fn insert(&mut self, service: SocketAddr, at: Timestamp) -> Option<u32> {
        let slot = if let Some(slot) = self.free.pop() {
            slot
        } else {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).ok()?
        };
        let entry = Entry { service, sizes: Histogram::new(at), newest: at, transfers: 0, looked: at, told: None };
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
        if entry.told.is_some() {
            self.events.push_back(Event::ServiceForgotten(entry.service));
        }
    }

    /// Tells a service's quantile where it appeared, moved, went, or was told a while ago.
    fn tell(&mut self, slot: u32, at: Timestamp) {
        let (refresh, change) = (self.refresh, self.change);
        let Some(entry) = self.entry_mut(slot) else { return };
        if entry.transfers < LEAST_TRANSFERS || (entry.told.is_some() && at.since(entry.looked) < LOOK) {
            return;
        }
        entry.looked = at;
        let size = entry.size();
        let event = match (entry.told, size) {
            (None, None) => return,
            (Some(_), None) => Event::ServiceForgotten(entry.service),
            (Some((told_at, told)), Some(size))
                if at.since(told_at) < refresh && !moved(told, size.quantile, change) =>
            {
                return;
            }
            (_, Some(size)) => Event::ServiceSize(size),
        };
        entry.told = size.map(|size| (at, size.quantile));
        self.events.push_back(event);
    }
}

impl Entry {
    fn size(&self) -> Option<ServiceSize> {
        let transfers = self.sizes.count();
        let quantile = self.sizes.quantile().filter(|_| transfers >= LEAST_TRANSFERS)?;
        Some(ServiceSize { service: self.service, quantile, transfers })
    }
}

fn moved(told: Bytes, now: Bytes, change: f64) -> bool {
    told.0.abs_diff(now.0) as f64 > change * told.0 as f64
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
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

    fn events(table: &mut ServiceTable) -> Vec<Event> {
        std::iter::from_fn(|| table.poll_event()).collect()
    }

    fn told(table: &mut ServiceTable) -> Vec<(u64, u32)> {
        let size = |event| match event {
            Event::ServiceSize(size) => (size.quantile.0, size.transfers),
            other => panic!("{other:?}"),
        };
        events(table).into_iter().map(size).collect()
    }

    #[test]
    fn a_quantile_is_told_from_ten_transfers_on_then_where_it_moved_or_grew_old() {
        let mut table = table(10);
        (0..9).for_each(|_| assert!(!table.add(service(443), at(0), Bytes(1 << 14))));
        assert_eq!(table.sizes(), []);
        (0..3).for_each(|_| assert!(!table.add(service(443), at(0), Bytes(1 << 14))));
        assert_eq!(told(&mut table), [(1 << 14, 10)], "the tenth, and no news after it");
        table.add(service(443), at(20), Bytes(1 << 14));
        assert_eq!(told(&mut table), [(1 << 14, 13)], "told anew after the interval");
        (0..4).for_each(|_| assert!(!table.add(service(443), at(21), Bytes(1 << 15))));
        assert_eq!(told(&mut table), []);
        table.add(service(443), at(22), Bytes(1 << 15));
        assert_eq!(told(&mut table), [(1 << 15, 18)], "5 of 18 are larger: the quantile moved");
        (0..50).for_each(|_| assert!(!table.add(service(443), at(22), Bytes(1 << 10))));
        assert_eq!(told(&mut table), [], "looked at once a second");
        table.add(service(443), at(23), Bytes(1 << 10));
        assert_eq!(told(&mut table), [(1 << 14, 69)]);
    }

    #[test]
    fn the_service_that_sent_longest_ago_goes_and_is_told_of() {
        let mut table = table(2);
        (0..10).for_each(|_| assert!(!table.add(service(1), at(0), Bytes(1 << 14))));
        assert!(!table.add(service(2), at(1), Bytes(1 << 14)));
        assert!(!table.add(service(1), at(2), Bytes(1 << 14)));
        assert!(table.add(service(3), at(3), Bytes(1 << 14)), "the second has to go");
        events(&mut table);
        assert!(table.add(service(4), at(3), Bytes(1 << 14)), "then the first");
        assert_eq!(events(&mut table), [Event::ServiceForgotten(service(1))]);
        assert_eq!(table.by_service.len(), 2);
    }

    #[test]
    fn a_silent_service_is_forgotten_when_its_sizes_are_too_old_to_count() {
        let mut table = table(10);
        (0..10).for_each(|_| assert!(!table.add(service(1), at(5), Bytes(1 << 14))));
        events(&mut table);
        assert_eq!(table.poll_timeout(), Some(at(3_605)));
        table.expire(at(3_604));
        assert_eq!(events(&mut table), []);
        table.expire(at(3_605));
        assert_eq!(events(&mut table), [Event::ServiceForgotten(service(1))]);
        assert_eq!((table.poll_timeout(), table.sizes().len()), (None, 0));
    }

    #[test]
    fn a_service_that_became_seldom_has_no_quantile_any_more() {
        let mut table = table(10);
        (0..10).for_each(|_| assert!(!table.add(service(1), at(0), Bytes(1 << 14))));
        table.add(service(1), at(3_000), Bytes(1 << 14));
        events(&mut table);
        table.add(service(1), at(5_000), Bytes(1 << 14));
        assert_eq!(events(&mut table), [Event::ServiceForgotten(service(1))]);
    }
}
