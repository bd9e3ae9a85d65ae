//! What applications may be given, and which of them watches what. Shared by the agent's task, which writes, and the thread that serves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use spand_advice::{Ended, Nothing, Offer, Reason, Renewed, Settings, ToApplication};
use spand_proto::network::Network;
use spand_proto::start::RefusalReason;
use spand_proto::units::{Micros, Segments, Timestamp};
use tokio::sync::Notify;

use super::ApplicationsStatus;

/// What is offered by network.
#[derive(Debug)]
pub struct Offers(Mutex<State>);

#[derive(Debug)]
struct State {
    settings: Settings,
    offers: BTreeMap<Network, Given>,
    /// Counts changes of offers other than a longer lifetime.
    revision: u64,
    watchers: BTreeMap<u64, Watcher>,
    /// Who watches a network of the default division: a decision about ten thousand networks asks for each.
    watching: BTreeMap<Network, BTreeSet<u64>>,
    /// Who of them has a part of the lease, since it asked for a start there or reported one, and until when.
    active: BTreeMap<Network, BTreeMap<u64, Timestamp>>,
    users: BTreeMap<u32, User>,
    /// Networks that the applications of one user watch together.
    most: NonZeroUsize,
    next: u64,
    status: ApplicationsStatus,
}

#[derive(Debug)]
struct Given {
    offer: Offer,
    revision: u64,
}

/// What the applications of one user have together: others cannot tell them apart, and one may start as many as it likes.
#[derive(Debug, Default)]
struct User {
    connections: usize,
    networks: usize,
    /// The time until which its reports so far use up its rate, each for [`REPORT_EVERY`].
    paid: Timestamp,
}

/// For how long a start or a report gives a part of the lease.
const ACTIVE: Micros = Micros::from_secs(60);
/// Time between two reports of one user, on average.
const REPORT_EVERY: Micros = Micros::from_millis(10);
/// Reports of one user that may arrive at once.
const REPORTS_AT_ONCE: u64 = 1_000;

/// An offer that ends within this time is sent whole again.
const RENEWED_BEFORE: Micros = Micros::from_secs(3);

/// One application.
#[derive(Debug)]
struct Watcher {
    name: String,
    uid: u32,
    /// The watched networks (/24, /48). The number is the turn of the last request for each.
    watched: BTreeMap<Network, u64>,
    order: BTreeMap<u64, Network>,
    /// The turn at which unused networks were last forgotten.
    swept: u64,
    dirty: BTreeSet<Network>,
    settings_dirty: bool,
    sent: BTreeMap<Network, Sent>,
    /// Added to the seed of the control group: processes draw independently.
    salt: u64,
    wake: Arc<Notify>,
}

/// What an application has of an offer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Sent {
    revision: u64,
    lease: Option<Segments>,
    expires: Timestamp,
}

impl Watcher {
    /// Whether a network with advice may be asked for by this application's connections.
    fn concerns(&self, network: Network) -> bool {
        let own = Network::of(network.prefix().addr());
        if own.covers(network) {
            return self.watched.contains_key(&own);
        }
        let above = self.watched.range(Network::of(network.prefix().network())..);
        above.take_while(|(watched, _)| network.covers(**watched)).next().is_some()
    }

    fn mark(&mut self, network: Network) {
        self.dirty.insert(network);
        self.wake.notify_one();
    }
}

impl Offers {
    /// The applications of one user watch at most `most` networks together; the one that was asked for longest ago makes room.
    pub(super) fn new(settings: Settings, most: NonZeroUsize) -> Self {
        let state = State {
            settings,
            offers: BTreeMap::new(),
            revision: 0,
            watchers: BTreeMap::new(),
            watching: BTreeMap::new(),
            active: BTreeMap::new(),
            users: BTreeMap::new(),
            most,
            next: 0,
            status: ApplicationsStatus::default(),
        };
        Self(Mutex::new(state))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds it panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settings that hold from now on.
    pub(super) fn set_settings(&self, settings: Settings) {
        let mut state = self.state();
        state.settings = settings;
        for watcher in state.watchers.values_mut() {
            watcher.settings_dirty = true;
            watcher.wake.notify_one();
        }
    }

    /// Offers this for its network.
    pub(super) fn put(&self, offer: Offer) {
        let network = offer.estimate.network;
        let mut state = self.state();
        let State { offers, revision, .. } = &mut *state;
        match offers.get_mut(&network) {
            Some(given) if given.offer == offer => return,
            Some(given) => {
                let expires = std::mem::replace(&mut given.offer.expires, offer.expires);
                if given.offer != offer {
                    *revision += 1;
                    *given = Given { offer, revision: *revision };
                } else if expires >= given.offer.expires {
                    return;
                }
            }
            None => {
                *revision += 1;
                offers.insert(network, Given { offer, revision: *revision });
            }
        }
        state.mark(network);
    }

    /// Offers nothing for a network any more.
    pub(super) fn remove(&self, network: Network) {
        let mut state = self.state();
        if state.offers.remove(&network).is_some() {
            state.mark(network);
        }
    }

    /// Offers nothing for other networks than these, and ends the parts of leases that were not used for a minute.
    pub(super) fn retain(&self, held: &BTreeSet<Network>, now: Timestamp) {
        let mut state = self.state();
        state.expire(now);
        let gone: Vec<Network> = state.offers.keys().filter(|network| !held.contains(network)).copied().collect();
        for network in gone {
            state.offers.remove(&network);
            state.mark(network);
        }
    }

    /// The kernel's part of the lease of a network.
    pub(super) fn kernels_part(&self, network: Network, lease: Segments) -> Segments {
        self.state().part(network, lease, None)
    }

    /// A place for one more connection of a user, of `most`: half of them at most, so that others have some. Else why there is none.
    pub(super) fn admit(&self, uid: u32, most: NonZeroUsize) -> Result<(), String> {
        let mut state = self.state();
        let taken: usize = state.users.values().map(|user| user.connections).sum();
        let of_one = most.get().div_ceil(2);
        let own = state.users.get(&uid).map_or(0, |user| user.connections);
        let why = if taken >= most.get() {
            format!("every place is taken (applications.connections = {most}): close one, or raise it")
        } else if own >= of_one {
            format!(
                "user {uid} has {own} connections, half of applications.connections = {most}: close one, or raise it"
            )
        } else {
            state.users.entry(uid).or_default().connections += 1;
            state.status.connections += 1;
            return Ok(());
        };
        state.status.refused += 1;
        Err(why)
    }

    /// Connections of a user.
    pub(super) fn connections_of(&self, uid: u32) -> usize {
        self.state().users.get(&uid).map_or(0, |user| user.connections)
    }

    /// A connection of a user is over. Whether it was the last one.
    pub(super) fn dismiss(&self, uid: u32) -> bool {
        let mut state = self.state();
        let Some(user) = state.users.get_mut(&uid) else { return true };
        user.connections = user.connections.saturating_sub(1);
        user.connections == 0
    }

    /// An application asks for a start to a network, or reports one. Whether it has a part of the lease by it that it had not.
    pub(super) fn use_part(&self, number: u64, network: Network, now: Timestamp) -> bool {
        let mut state = self.state();
        if !state.watching.get(&network).is_some_and(|numbers| numbers.contains(&number)) {
            return false;
        }
        let is_new = state.active.entry(network).or_default().insert(number, now.after(ACTIVE)).is_none();
        if is_new {
            state.parts_changed(&[network]);
        }
        is_new
    }

    /// Whether a report of an application with a table is of a start that it can have had: to a network that it watches, and on advice
    /// only where it was sent some.
    pub(super) fn may_report(&self, number: u64, ended: &Ended) -> bool {
        let Some(network) = ended.remote.map(|remote| Network::of(remote.ip().to_canonical())) else { return false };
        let state = self.state();
        let Some(watcher) = state.watchers.get(&number) else { return false };
        let was_sent = || state.around(network).iter().any(|around| watcher.sent.contains_key(around));
        watcher.watched.contains_key(&network) && (ended.advised_segments.is_none() || was_sent())
    }

    /// Whether a user's report is within its rate.
    pub(super) fn pay_report(&self, uid: u32, now: Timestamp) -> bool {
        let mut state = self.state();
        let user = state.users.entry(uid).or_default();
        let paid = user.paid.max(now).after(REPORT_EVERY);
        let is_paid = paid <= now.after(Micros(REPORT_EVERY.0 * REPORTS_AT_ONCE));
        if is_paid {
            user.paid = paid;
        }
        is_paid
    }

    /// Begins to count what an application of a user watches; gives its number.
    pub(super) fn join(&self, name: String, uid: u32, wake: Arc<Notify>) -> u64 {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let watcher = Watcher {
            name,
            uid,
            watched: BTreeMap::new(),
            order: BTreeMap::new(),
            swept: 0,
            dirty: BTreeSet::new(),
            settings_dirty: true,
            sent: BTreeMap::new(),
            salt: RandomState::new().hash_one(number),
            wake,
        };
        watcher.wake.notify_one();
        state.watchers.insert(number, watcher);
        number
    }

    /// An application is gone; gives what it watched.
    pub(super) fn leave(&self, number: u64) -> Vec<Network> {
        let mut state = self.state();
        let Some(gone) = state.watchers.remove(&number) else { return Vec::new() };
        let networks: Vec<Network> = gone.watched.into_keys().collect();
        for network in &networks {
            state.on_unwatched((number, gone.uid), *network);
        }
        state.parts_changed(&networks);
        networks
    }

    /// An application watches the network of an address; gives the network where that is new, and one that it watches no more.
    /// `again`: it is sent what is known, whether or not it has been.
    pub(super) fn watch(&self, number: u64, address: IpAddr, again: bool) -> (Option<Network>, Option<Network>) {
        let network = Network::of(address);
        let mut state = self.state();
        let turn = state.next;
        state.next += 1;
        let most = state.most.get();
        let Some(watcher) = state.watchers.get_mut(&number) else { return (None, None) };
        let uid = watcher.uid;
        if let Some(at) = watcher.watched.get_mut(&network) {
            watcher.order.remove(at);
            *at = turn;
            watcher.order.insert(turn, network);
            if again {
                state.again(number, network);
            }
            return (None, None);
        }
        watcher.watched.insert(network, turn);
        watcher.order.insert(turn, network);
        state.watching.entry(network).or_default().insert(number);
        let user = state.users.entry(uid).or_default();
        user.networks += 1;
        let gone = if user.networks > most { state.evict(uid) } else { None };
        let changed: Vec<Network> = std::iter::once(network).chain(gone).collect();
        state.parts_changed(&changed);
        let nothing = state.around(network).is_empty();
        if nothing && let Some(watcher) = state.watchers.get_mut(&number) {
            // Answered with that there is nothing.
            watcher.dirty.insert(network);
            watcher.wake.notify_one();
        }
        (Some(network), gone)
    }

    /// An application watches a network no more. Whether it did.
    pub(super) fn unwatch(&self, number: u64, network: Network) -> bool {
        let mut state = self.state();
        let Some(watcher) = state.watchers.get_mut(&number) else { return false };
        let (did, uid) = (watcher.forget(network), watcher.uid);
        if did {
            state.on_unwatched((number, uid), network);
            state.parts_changed(&[network]);
        }
        did
    }

    /// A watcher forgets what it did not ask for since this was last called. Gives these networks, and what it was sent of them and around
    /// them, which is not kept up to date any more.
    pub(super) fn forget_unused(&self, number: u64) -> (Vec<Network>, Vec<Network>) {
        let mut state = self.state();
        let turn = state.next;
        let Some(watcher) = state.watchers.get_mut(&number) else { return (Vec::new(), Vec::new()) };
        let since = std::mem::replace(&mut watcher.swept, turn);
        let unused: Vec<Network> = watcher.order.range(..since).map(|(_, network)| *network).collect();
        if unused.is_empty() {
            return (unused, Vec::new());
        }
        watcher.order = watcher.order.split_off(&since);
        for network in &unused {
            watcher.watched.remove(network);
        }
        let uid = watcher.uid;
        let gone: Vec<Network> = watcher.sent.keys().filter(|sent| !watcher.concerns(**sent)).copied().collect();
        for network in gone.iter().chain(&unused) {
            watcher.sent.remove(network);
            watcher.dirty.remove(network);
        }
        for network in &unused {
            state.on_unwatched((number, uid), *network);
        }
        state.status.unused += unused.len() as u64;
        state.parts_changed(&unused);
        (unused, gone)
    }

    /// What an application has to be sent.
    pub(super) fn lines(&self, number: u64, now: Timestamp) -> Vec<ToApplication> {
        let mut state = self.state();
        let Some(watcher) = state.watchers.get_mut(&number) else { return Vec::new() };
        let (mut lines, salt) = (Vec::new(), watcher.salt);
        let dirty = std::mem::take(&mut watcher.dirty);
        if std::mem::take(&mut watcher.settings_dirty) {
            let seed = state.settings.seed ^ salt;
            lines.push(ToApplication::Settings(Settings { now, seed, ..state.settings }));
        }
        lines.extend(dirty.into_iter().filter_map(|network| state.line(number, network, now)));
        lines
    }

    /// Counts something.
    pub(super) fn count(&self, count: impl FnOnce(&mut ApplicationsStatus)) {
        count(&mut self.state().status);
    }

    /// What `status` shows.
    pub(super) fn status(&self) -> ApplicationsStatus {
        let state = self.state();
        ApplicationsStatus {
            connected: state.watchers.values().map(|w| w.name.clone()).filter(|name| !name.is_empty()).collect(),
            networks: state.watching.len(),
            ..state.status.clone()
        }
    }
}

impl Watcher {
    fn forget(&mut self, network: Network) -> bool {
        let Some(turn) = self.watched.remove(&network) else { return false };
        self.order.remove(&turn);
        // What was sent inside it is not renewed any more, and ends by itself.
        let inside: Vec<Network> =
            self.sent.range(network..).map(|(sent, _)| *sent).take_while(|sent| network.covers(*sent)).collect();
        for sent in inside {
            self.sent.remove(&sent);
            self.dirty.remove(&sent);
        }
        self.dirty.remove(&network);
        true
    }
}

impl State {
    /// The part of a network's lease that an application has, or the kernel (`None`). The kernel has half of it, and all of it where no
    /// application uses its part. The other half is divided equally among the users who use theirs, and a user's among its applications.
    /// An application that does not use its part yet has the part that its first start would give it.
    fn part(&self, network: Network, lease: Segments, of: Option<u64>) -> Segments {
        let own = Network::of(network.prefix().addr());
        let numbers: BTreeSet<u64> = if own.covers(network) {
            self.active.get(&own).into_iter().flat_map(BTreeMap::keys).copied().collect()
        } else {
            let inside = self.active.range(Network::of(network.prefix().network())..);
            inside.take_while(|(inside, _)| network.covers(**inside)).flat_map(|(_, of)| of.keys()).copied().collect()
        };
        let applications = lease.0 / 2;
        let Some(number) = of else {
            return Segments(if numbers.is_empty() { lease.0 } else { lease.0 - applications });
        };
        let mut users: BTreeMap<u32, u32> = BTreeMap::new();
        for other in numbers.iter().filter(|other| **other != number).chain([&number]) {
            if let Some(watcher) = self.watchers.get(other) {
                *users.entry(watcher.uid).or_default() += 1;
            }
        }
        let uid = self.watchers.get(&number).map(|watcher| watcher.uid);
        let of_one = uid.and_then(|uid| users.get(&uid)).copied().unwrap_or(1);
        Segments(applications / u32::try_from(users.len().max(1)).unwrap_or(u32::MAX) / of_one)
    }

    fn expire(&mut self, now: Timestamp) {
        let mut changed = Vec::new();
        self.active.retain(|network, numbers| {
            let before = numbers.len();
            numbers.retain(|_, until| *until > now);
            changed.extend((numbers.len() < before).then_some(*network));
            !numbers.is_empty()
        });
        self.parts_changed(&changed);
        self.users.retain(|_, user| user.connections > 0 || user.networks > 0 || user.paid > now);
    }

    /// A user's application that watches most forgets what it asked for longest ago.
    fn evict(&mut self, uid: u32) -> Option<Network> {
        let of_user = self.watchers.iter_mut().filter(|(_, watcher)| watcher.uid == uid);
        let oldest = |watcher: &Watcher| Reverse(watcher.order.first_key_value().map(|(turn, _)| *turn));
        let (number, watcher) = of_user.max_by_key(|(_, watcher)| (watcher.watched.len(), oldest(watcher)))?;
        let (number, oldest) = (*number, *watcher.order.first_key_value()?.1);
        watcher.forget(oldest);
        self.on_unwatched((number, uid), oldest);
        self.status.evicted += 1;
        Some(oldest)
    }

    fn mark(&mut self, network: Network) {
        let own = Network::of(network.prefix().addr());
        if own.covers(network) {
            for number in self.watching.get(&own).into_iter().flatten() {
                if let Some(watcher) = self.watchers.get_mut(number) {
                    watcher.mark(network);
                }
            }
            return;
        }
        for watcher in self.watchers.values_mut().filter(|watcher| watcher.concerns(network)) {
            watcher.mark(network);
        }
    }

    fn on_unwatched(&mut self, (number, uid): (u64, u32), network: Network) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.networks = user.networks.saturating_sub(1);
        }
        if let Some(numbers) = self.active.get_mut(&network) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.active.remove(&network);
            }
        }
        if let Some(numbers) = self.watching.get_mut(&network) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.watching.remove(&network);
            }
        }
    }

    /// An application asks once more about a network: it may have lost what it was sent.
    fn again(&mut self, number: u64, network: Network) {
        let around = self.around(network);
        let Some(watcher) = self.watchers.get_mut(&number) else { return };
        for network in around.iter().chain([&network]) {
            watcher.sent.remove(network);
            watcher.dirty.insert(*network);
        }
        watcher.wake.notify_one();
    }

    /// Networks with advice that share addresses with one of the default division.
    fn around(&self, network: Network) -> Vec<Network> {
        let (prefix, len) = (network.prefix(), network.prefix().prefix_len());
        let wider = (0..len).filter_map(|len| Some(Network::new(IpNet::new(prefix.addr(), len).ok()?)));
        let mut around: Vec<Network> = wider.filter(|wider| self.offers.contains_key(wider)).collect();
        let inside = self.offers.range(network..).map(|(inside, _)| *inside);
        around.extend(inside.take_while(|inside| network.contains(inside.prefix().addr())));
        around
    }

    /// Others' parts of leases are smaller or larger now.
    fn parts_changed(&mut self, networks: &[Network]) {
        for network in networks {
            for around in self.around(*network) {
                self.mark(around);
            }
        }
    }

    /// The line about a network, where the application does not have it already.
    fn line(&mut self, number: u64, network: Network, at: Timestamp) -> Option<ToApplication> {
        let lease = self.offers.get(&network).and_then(|given| given.offer.lease);
        let lease = lease.map(|lease| self.part(network, lease, Some(number)));
        let watcher = self.watchers.get_mut(&number)?;
        let Some(given) = self.offers.get(&network) else {
            if watcher.sent.remove(&network).is_some() {
                return Some(ToApplication::Gone(network));
            }
            let reason = Reason::Refused(RefusalReason::NoEstimate);
            return watcher
                .watched
                .contains_key(&network)
                .then_some(ToApplication::Nothing(Nothing { network, reason }));
        };
        let now = Sent { revision: given.revision, lease, expires: given.offer.expires };
        let before = watcher.sent.insert(network, now);
        match before {
            Some(before) if before == now => None,
            // One that ends soon may have been forgotten by the application meanwhile.
            Some(before)
                if (before.revision, before.lease) == (now.revision, now.lease)
                    && before.expires > at.after(RENEWED_BEFORE) =>
            {
                Some(ToApplication::Renewed(Renewed { network, expires: now.expires }))
            }
            _ => Some(ToApplication::Offer(Box::new(Offer { lease, ..given.offer.clone() }))),
        }
    }
}
