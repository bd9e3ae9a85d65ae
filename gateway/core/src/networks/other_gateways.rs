//! The hook through which a table shares its records with other gateways and estimates from theirs, too. It stores and sends nothing.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::slots::Slot;
use super::{Entry, NetworkTable};
use crate::config::WindowConfig;
use crate::types::{ConnectionId, SampleRate};
use crate::window::parallel::Parallel;
use crate::window::record::NetworkRecord;

/// What other gateways saw of the networks of one table, and what is to leave for them.
pub trait OtherGateways: Any + Debug + Send {
    /// Returns the address by which records know a remote end.
    fn pseudonym(&self, remote: IpAddr) -> IpAddr;

    /// Replaces the remote addresses of a stored record that may be from before anything was shared.
    fn restore(&self, record: &mut NetworkRecord);

    /// Returns the number of a connection, by the ends and the sequence number of its first segment.
    fn connection(&self, ends: [(IpAddr, u16); 2], seq: u32) -> ConnectionId;

    /// A bucket of a network opens at `at`: the one before is closed.
    fn open(&mut self, own: OwnNetwork<'_>, at: Timestamp);

    /// Something was added to a network's record.
    fn add(&mut self, own: OwnNetwork<'_>);

    /// A network has another estimate than before, or has none yet. Returns when to look at it again, where it has to be.
    fn announce(&mut self, own: OwnNetwork<'_>, now: Timestamp) -> Option<Timestamp>;

    /// A network was due, and its record is without what has aged. Returns when to look at it again, where it has to be.
    fn age(&mut self, own: OwnNetwork<'_>, now: Timestamp) -> Option<Timestamp>;

    /// Closes buckets that are over, `work` of them at most, of networks that `find` returns. Returns what is left of the work.
    fn close_over<'a>(
        &mut self,
        now: Timestamp,
        work: usize,
        find: &dyn Fn(Network) -> Option<OwnNetwork<'a>>,
    ) -> usize;

    /// Returns when [`Self::close_over`] has something to do next.
    fn next_close(&self) -> Option<Timestamp>;

    /// Brings the record up to date that follows from a network's own one and what other gateways saw.
    fn renew(&mut self, own: OwnNetwork<'_>, now: Timestamp);

    /// Returns that record as of the last [`Self::renew`]; `None` where no other gateway saw the network.
    fn merged(&self, place: usize) -> Option<&NetworkRecord>;

    /// Returns it as of `now`.
    fn merged_at(&self, own: OwnNetwork<'_>, now: Timestamp) -> Option<Cow<'_, NetworkRecord>>;

    /// Returns how many connections all gateways saw at once, and this gateway's tap alone; `None` where no other one saw the network.
    fn seen(&self, own: OwnNetwork<'_>, now: Timestamp) -> Option<(Seen, u32)>;

    /// Returns a network that only other gateways saw, the first that makes room.
    fn first_to_go(&self) -> Option<Network>;

    /// A network is in the table no longer.
    fn remove(&mut self, place: usize, network: Network);

    /// Heap memory of what other gateways saw of a network.
    fn held_bytes(&self, place: usize) -> usize;
}

/// A network of the table.
#[derive(Clone, Copy, Debug)]
pub struct OwnNetwork<'a> {
    /// Its place in the table for as long as it is in there: places are numbered from 0, and used again.
    pub place: usize,
    /// Which it is.
    pub network: Network,
    /// What this gateway saw of it.
    pub record: &'a NetworkRecord,
    /// An estimate was announced that packets gave, and not reports.
    pub is_announced: bool,
    parallel: &'a Parallel,
}

/// How many connections a gateway saw at once.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The share of connections that was followed.
    pub followed: SampleRate,
    /// The most of the last one to two buckets.
    pub parallel: u32,
    /// The fewest when a window was sampled.
    pub parallel_at_samples: u32,
}

impl OwnNetwork<'_> {
    /// How many connections to it this gateway saw at once.
    pub fn seen(&self, now: Timestamp, config: &WindowConfig) -> Seen {
        Seen {
            followed: self.parallel.rate.within(now, config.span()),
            parallel: self.parallel.most(now, config.bucket),
            parallel_at_samples: self.parallel.at_samples(),
        }
    }
}

impl Entry {
    pub(super) fn own(&self, slot: Slot) -> OwnNetwork<'_> {
        let Self { network, record, parallel, .. } = self;
        let is_announced = self.announced.is_some() && self.reported.is_none();
        OwnNetwork { place: slot.index(), network: *network, record, is_announced, parallel }
    }
}

impl NetworkTable {
    /// Estimates from now on from what other gateways saw too.
    pub fn share_by(&mut self, others: Box<dyn OtherGateways>) {
        self.others = Some(others);
    }

    /// What other gateways saw, as the type that it was given as.
    pub fn others<T: OtherGateways>(&self) -> Option<&T> {
        (self.others.as_deref()? as &dyn Any).downcast_ref()
    }

    /// The same, to be changed.
    pub fn others_mut<T: OtherGateways>(&mut self) -> Option<&mut T> {
        (self.others.as_deref_mut()? as &mut dyn Any).downcast_mut()
    }

    /// A network of the table.
    pub fn own_network(&self, network: Network) -> Option<OwnNetwork<'_>> {
        self.slots.own(self.slots.find(network)?)
    }

    /// Every network with samples of this gateway, in no order that means anything.
    pub fn networks_with_samples(&self) -> impl Iterator<Item = OwnNetwork<'_>> {
        let all = self.slots.entries().map(|(slot, entry)| entry.own(slot));
        all.filter(|own| !own.record.buckets.is_empty())
    }

    /// Takes what another gateway saw of a network by `take`, which returns whether that changed anything. Cheap: the network is evaluated
    /// when it is its turn. `None` where there is no room for the network.
    ///
    /// # Errors
    ///
    /// That of `take`.
    pub fn take_foreign<T: OtherGateways, E>(
        &mut self,
        network: Network,
        now: Timestamp,
        take: impl FnOnce(&mut T, OwnNetwork<'_>) -> Result<bool, E>,
    ) -> Option<Result<(), E>> {
        self.others::<T>()?;
        let slot = self.entered(network)?;
        self.dirty = true;
        let own = self.slots.own(slot)?;
        let others = (self.others.as_deref_mut()? as &mut dyn Any).downcast_mut()?;
        let changes = take(others, own);
        if matches!(changes, Ok(true)) {
            let (entry, merged) = (self.slots.get(slot)?, self.merged(slot));
            let look = entry.considered.map_or(now, |at| at.after(entry.sample_look(merged)).max(now));
            self.slots.due_by(slot, look);
            self.note_change(slot);
            self.account(slot);
        }
        Some(changes.map(drop))
    }

    /// Lets other gateways know of a network, where there are any.
    #[inline]
    pub(super) fn tell<T>(
        &mut self,
        slot: Slot,
        tell: impl FnOnce(&mut dyn OtherGateways, OwnNetwork<'_>) -> T,
    ) -> Option<T> {
        let others = self.others.as_deref_mut()?;
        Some(tell(others, self.slots.own(slot)?))
    }

    /// The same where the network may have to be looked at again.
    pub(super) fn tell_and_look(
        &mut self,
        slot: Slot,
        tell: impl FnOnce(&mut dyn OtherGateways, OwnNetwork<'_>) -> Option<Timestamp>,
    ) {
        if let Some(look) = self.tell(slot, tell).flatten() {
            self.slots.due_by(slot, look);
        }
    }

    /// What a network is evaluated by at `now` in place of its record, where other gateways saw it too.
    pub(super) fn merged_at(&self, slot: Slot, now: Timestamp) -> Option<Cow<'_, NetworkRecord>> {
        self.others.as_deref()?.merged_at(self.slots.own(slot)?, now)
    }

    /// The same as of its last evaluation.
    pub(super) fn merged(&self, slot: Slot) -> Option<&NetworkRecord> {
        self.others.as_deref()?.merged(slot.index())
    }
}
