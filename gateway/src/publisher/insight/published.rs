//! Queries of the dashboard to the published state.

use std::net::IpAddr;
use std::time::Duration;

use spand_proto::network::Network;
use spand_proto::push;
use spand_proto::units::Segments;
use tokio::time::MissedTickBehavior;

use super::{Entry, NetworkHistory, Traffic, TrafficPoint, Trend};
use crate::publisher::subscribers::Subscriber;
use crate::publisher::{Client, Published, SubscribeError, Subscription};

/// Interval at which limits are checked.
const LOOK: Duration = Duration::from_secs(1);
/// Leases looked up under one hold of the lock.
const LEASES_CHUNK: usize = 64;

impl Published {
    /// Subscribes the host of a request, authenticated by a certificate with these names, for a client with which its streams share
    /// their turns; what becomes of it is noted under its name.
    pub fn subscribe_host(
        &self,
        wish: &push::Subscription,
        certificate: Option<String>,
        client: Option<Client>,
    ) -> Result<Subscription, SubscribeError> {
        let subscriber = Subscriber {
            host_name: Some(wish.host_name.clone()),
            certificate,
            client,
            agent: wish.agent.clone(),
            cluster: wish.cluster.clone(),
        };
        let subscription = self.subscribe_as(subscriber.clone(), &wish.addresses);
        let subscription = subscription.map(|subscription| subscription.holding(&wish.networks));
        let what = if subscription.is_ok() { "subscribed" } else { "refused" };
        self.shared.insight.agent(self.now(), what, &subscriber);
        subscription
    }

    /// The history of a network, if it is among those kept.
    pub fn history(&self, network: Network) -> Option<NetworkHistory> {
        self.shared.insight.history(network)
    }

    /// What `read` makes of the windows of several networks.
    pub fn trends_of<T>(&self, networks: &[Network], read: impl Fn(Option<&Trend>) -> T) -> Vec<T> {
        self.shared.insight.trends_of(networks, read)
    }

    /// Networks that are no longer remembered because there were more than are.
    pub fn histories_dropped(&self) -> u64 {
        self.shared.insight.histories_dropped()
    }

    /// Samples that were not remembered because too many came at once.
    pub fn samples_dropped(&self) -> u64 {
        self.engine().samples_dropped
    }

    /// The newest `limit` entries of the log from `sequence` on, in order; the sequence number of the next one; and how many
    /// from `sequence` on are not among them.
    pub fn log(&self, sequence: u64, limit: usize) -> (Vec<Entry>, u64, u64) {
        self.shared.insight.entries(sequence, limit)
    }

    /// The sequence number of the next entry of the log.
    pub fn log_next(&self) -> u64 {
        self.shared.insight.log_next()
    }

    /// Entries of the log that had to go.
    pub fn log_dropped(&self) -> u64 {
        self.shared.insight.log_dropped()
    }

    /// The traffic now.
    pub fn traffic(&self) -> Traffic {
        self.shared.insight.traffic(self.now())
    }

    /// The traffic of the last ten minutes, one point per second.
    pub fn traffic_points(&self) -> Vec<TrafficPoint> {
        self.shared.insight.points()
    }

    /// Whether the gateway stops.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.outbound.lock().gather.is_closed()
    }

    /// Rises when published networks change.
    pub fn revision(&self) -> u64 {
        self.shared.insight.revision()
    }

    /// Notes limits that were reached, from counts that only rise, by a closed list of names.
    pub(crate) fn note_limits(&self, counts: &[(&'static str, u64)]) {
        self.shared.insight.counts(self.now(), counts);
    }

    /// The subscribers: name, agent, addresses, and since when.
    pub fn subscribers(&self) -> Vec<SubscriberView> {
        // Starts wait for the lock: what costs time is done without it.
        let all = self.shared.outbound.lock().subscribers.all();
        all.iter().map(|queue| queue.view()).collect()
    }

    /// The leases of a network in segments, by host ([`SubscriberView::host_id`]).
    pub fn leases_of(&self, network: Network, host_ids: &[u64]) -> Vec<Segments> {
        let estimate = self.estimate(network);
        let share = estimate.map_or(Segments(0), |estimate| estimate.share_segments(estimate.mss));
        // Starts wait for the lock.
        let some = host_ids.chunks(LEASES_CHUNK).flat_map(|some| {
            let (mut state, now) = (self.shared.state.write(), self.now());
            some.iter().map(|host_id| state.leases.lease(*host_id, network, share, now)).collect::<Vec<_>>()
        });
        some.collect()
    }

    /// Looks again and again at what has reached a limit and which parts work.
    pub(in crate::publisher) async fn watch(&self) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let measures = self.measures();
            self.note_limits(&[
                ("subscriptions_refused", measures.subscriptions_refused.get()),
                ("starts_overflowed", measures.starts_overflowed.get()),
                ("leases_no_room", measures.leases_no_room.get()),
                ("destinations_no_room", measures.destinations_evicted.get()),
                ("addresses_no_room", measures.addresses_displaced.get()),
                ("slow_subscriber", measures.resyncs_slow_reader.get()),
                ("histories_no_room", self.histories_dropped()),
            ]);
            self.forget_gone_hosts();
            self.shared.insight.readiness(self.now(), &self.readiness().reasons());
        }
    }
}

/// A subscriber as people see it.
#[derive(Clone, Debug)]
pub struct SubscriberView {
    /// Its description.
    pub subscriber: Subscriber,
    /// Its addresses, sorted.
    pub addresses: Vec<IpAddr>,
    /// Since when, by the packet clock.
    pub since: spand_proto::units::Timestamp,
    /// Its host: subscribers with the same addresses are of one host.
    pub host_id: u64,
    /// Starts that wait for it.
    pub waiting_starts: usize,
}
