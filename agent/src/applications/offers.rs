//! What applications may be given, and which of them watches what. Shared by the agent's task, which writes, and the thread that serves.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use spand_advice::{Nothing, Offer, Reason, Renewed, Settings, ToApplication};
use spand_proto::network::Network;
use spand_proto::start::RefusalReason;
use spand_proto::units::{Micros, Segments, Timestamp};
use tokio::sync::Notify;

use super::{ApplicationsStatus, part};

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
    next: u64,
    status: ApplicationsStatus,
}

#[derive(Debug)]
struct Given {
    offer: Offer,
    revision: u64,
}

/// An offer that ends within this time is sent whole again.
const RENEWED_BEFORE: Micros = Micros::from_secs(3);

/// One application.
#[derive(Debug)]
struct Watcher {
    name: String,
    /// Networks by the default division of addresses, at most `most` of them, with the turn of the last request.
    watched: BTreeMap<Network, u64>,
    order: BTreeMap<u64, Network>,
    /// The turn at which unused networks were last forgotten.
    swept: u64,
    most: usize,
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
    pub(super) fn new(settings: Settings) -> Self {
        let state = State {
            settings,
            offers: BTreeMap::new(),
            revision: 0,
            watchers: BTreeMap::new(),
            watching: BTreeMap::new(),
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

    /// Offers nothing for other networks than these.
    pub(super) fn retain(&self, held: &BTreeSet<Network>) {
        let mut state = self.state();
        let gone: Vec<Network> = state.offers.keys().filter(|network| !held.contains(network)).copied().collect();
        for network in gone {
            state.offers.remove(&network);
            state.mark(network);
        }
    }

    /// Applications with connections to a network.
    pub(super) fn watchers(&self, network: Network) -> usize {
        self.state().concerned(network)
    }

    /// Begins to count what an application watches, at most `most` networks; gives its number.
    pub(super) fn join(&self, name: String, most: usize, wake: Arc<Notify>) -> u64 {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let watcher = Watcher {
            name,
            watched: BTreeMap::new(),
            order: BTreeMap::new(),
            swept: 0,
            most,
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
            state.on_unwatched(number, *network);
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
        let Some(watcher) = state.watchers.get_mut(&number) else { return (None, None) };
        if let Some(at) = watcher.watched.get_mut(&network) {
            watcher.order.remove(at);
            *at = turn;
            watcher.order.insert(turn, network);
            if again {
                state.again(number, network);
            }
            return (None, None);
        }
        let mut gone = None;
        if watcher.watched.len() >= watcher.most
            && let Some((_, oldest)) = watcher.order.pop_first()
        {
            watcher.forget(oldest);
            gone = Some(oldest);
        }
        watcher.watched.insert(network, turn);
        watcher.order.insert(turn, network);
        state.watching.entry(network).or_default().insert(number);
        if let Some(gone) = gone {
            state.on_unwatched(number, gone);
            state.status.evicted += 1;
        }
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
        let did = watcher.forget(network);
        if did {
            state.on_unwatched(number, network);
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
        let gone: Vec<Network> = watcher.sent.keys().filter(|sent| !watcher.concerns(**sent)).copied().collect();
        for network in gone.iter().chain(&unused) {
            watcher.sent.remove(network);
            watcher.dirty.remove(network);
        }
        for network in &unused {
            state.on_unwatched(number, *network);
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
    /// The number of watchers that may ask for a network with advice. Wide networks are few, and only for them each watcher is looked at.
    fn concerned(&self, network: Network) -> usize {
        let own = Network::of(network.prefix().addr());
        if own.covers(network) {
            return self.watching.get(&own).map_or(0, BTreeSet::len);
        }
        self.watchers.values().filter(|watcher| watcher.concerns(network)).count()
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

    fn on_unwatched(&mut self, number: u64, network: Network) {
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
        let others = self.concerned(network);
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
        let lease = given.offer.lease.map(|lease| part(lease, others));
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
