//! What the gateway answers: gRPC for agents, JSON, metrics and health over HTTP for people and scripts.
//!
//! Both ask the same published state through the same functions (`advice`, `reports`); they differ in words only.
//! Nothing a client sends ends more than its own request: messages, connections, streams and times are limited, and what
//! is refused gets one sentence that says why.
//!
//! Knows nothing about packets, the engine's thread or how listeners came to be; it is handed bound ones.

mod access;
mod advice;
mod benefit;
mod connection;
mod costly;
mod gate;
mod grpc;
mod grpc_health;
mod holdings;
mod http;
mod listener;
mod memory;
mod metrics;
mod owners;
mod passwords;
mod places;
mod refusals;
mod reports;
#[cfg(test)]
mod tests;
mod totals;

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spand_confine::Confined;
use spand_proto::operator::Failure;
use spand_proto::report::{MAX_CONNECTIONS, Report, ReportReceipt};
use spand_proto::start::Mode;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use crate::config;
use crate::names::{self, Names};
use crate::publisher::{Client, Published};
use crate::sharing::ShareStatus;
use crate::store::StoreMeasures;
use crate::totals::Totals;

use self::access::Expected;
pub use self::access::{Access, AccessError};
use self::connection::Peer;
use self::costly::Costly;
use self::holdings::Holdings;
#[cfg(fuzzing)]
pub use self::http::fuzzing;
pub use self::http::paths;
pub(crate) use self::http::sorts;
use self::listener::Listener;
pub use self::listener::Listening;
use self::metrics::{ApiMeasures, Metrics};
pub use self::passwords::{PasswordsError, line as password_line};
use self::places::{Places, RESERVED};
use self::refusals::{Reason, Refusals};
use self::reports::Reports;
use crate::buckets::Buckets;

/// Settings of the API. Each limit says what happens when it is reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiConfig {
    /// Mode of an answer where the question names none. Default `careful`.
    pub mode: Mode,
    /// gRPC connections at a time. Default 2,000. The next one takes the place of one that does nothing with it, else it is closed
    /// at once; both are counted.
    pub grpc_connections: NonZeroUsize,
    /// HTTP connections at a time. Default 256. As for gRPC.
    pub http_connections: NonZeroUsize,
    /// Connections of one peer at a time, on each listener; a peer is an IPv4 address or an IPv6 /64. Default 64.
    pub connections_per_peer: NonZeroUsize,
    /// Subscriptions of one peer at a time. Default 128.
    pub streams_per_peer: NonZeroUsize,
    /// Requests of one peer in a second, on each listener; as many more at once after a pause. A call counts once more for each
    /// 8 KiB that it sends, and for each 16 questions. Default 1,000.
    pub requests_per_s: NonZeroU32,
    /// New subscriptions of one client in a second, by its certificate or else its address; as many at once after a pause as
    /// [`ApiConfig::streams_per_peer`]. Default 10. The next one is refused, counted.
    pub subscriptions_per_s: NonZeroU32,
    /// Connections that one peer reports in a second; as many more at once after a pause, and a full report always. Default 10,000.
    pub reported_connections_per_s: NonZeroU32,
    /// Largest gRPC request in bytes. Default 256 KiB.
    pub request_bytes: NonZeroUsize,
    /// Longest time for a request: to send its head, and to be answered. Default 10 s.
    pub request_timeout: Duration,
    /// Hosts distinguished in reports, by certificate or else by address. Default 10,000. At the limit a host that was silent
    /// for a day is forgotten, counted; else, of those with the fewest compared transfers, the one silent longest. A batch that
    /// it repeats then counts twice, and its transfers stay in the comparison, but not as a host's.
    pub reporting_hosts: NonZeroUsize,
    /// Live streams (`/v1/live`) at a time. Default 32. The next one is refused, counted, unless a peer has two more than the one
    /// that asks: then its oldest ends.
    pub live_streams: NonZeroUsize,
    /// Live streams of one peer at a time. Default 8. The next one is refused, counted.
    pub live_streams_per_peer: NonZeroUsize,
    /// Time between two messages of a live stream. Default 1 s.
    pub live_interval: Duration,
}

impl Default for ApiConfig {
    fn default() -> Self {
        let limit = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            mode: Mode::default(),
            grpc_connections: limit(2_000),
            http_connections: limit(256),
            connections_per_peer: limit(64),
            streams_per_peer: limit(128),
            requests_per_s: const { NonZeroU32::new(1_000).unwrap() },
            subscriptions_per_s: const { NonZeroU32::new(10).unwrap() },
            reported_connections_per_s: const { NonZeroU32::new(10_000).unwrap() },
            // A full report has 1,024 connections of at most 200 bytes.
            request_bytes: limit(256 << 10),
            request_timeout: Duration::from_secs(10),
            reporting_hosts: limit(10_000),
            live_streams: limit(32),
            live_streams_per_peer: limit(8),
            live_interval: Duration::from_secs(1),
        }
    }
}

impl ApiConfig {
    /// Connections beyond the limits of both listeners, for this machine's own programs.
    pub(crate) const RESERVED_CONNECTIONS: usize = 2 * RESERVED;
}

/// What all handlers share; clones share it.
#[derive(Clone, Debug)]
pub struct Api {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: ApiConfig,
    access: Access,
    refusals: Refusals,
    /// Subscriptions by peer.
    streams: Holdings,
    /// Requests by peer: of agents, of people.
    rates: [Buckets; 2],
    /// New subscriptions by client.
    subscription_rate: Buckets<Client>,
    /// Reported connections by peer.
    reported: Buckets,
    published: Published,
    reports: Reports,
    /// The whole over time.
    totals: Mutex<Totals>,
    measures: ApiMeasures,
    metrics: Metrics,
    share: Option<ShareStatus>,
    /// Answers that cost much to make.
    costly: Costly,
    /// Places for live streams.
    live: Places,
    names: names::InForce,
}

const SUBSCRIBES_TOO_OFTEN: &str = "it subscribes too often: keep one subscription, and wait before the next";
const TOO_OFTEN: &str = "it asks more often than api.requests_per_s allows: ask less often";
const REPORTS_TOO_MUCH: &str = "it reports more than 10,000 connections a second: report them later";
/// Connections of a full report.
const FULL_REPORT: NonZeroU32 = const { NonZeroU32::new(1_024).unwrap() };
const _: () = assert!(FULL_REPORT.get() as usize == MAX_CONNECTIONS);
/// Who asks too often waits this long for its refusal: without a pause the refusals alone would take a processor.
const REFUSED: Duration = Duration::from_millis(200);
/// How often files that may change are looked at.
const LOOK: Duration = Duration::from_secs(5);

impl Api {
    /// An API on the published state that anyone may ask. `store` where there is one.
    pub fn new(config: ApiConfig, published: Published, store: Option<StoreMeasures>) -> Self {
        Self::with_access(config, Access::default(), published, (store, None), &Confined::default())
    }

    /// An API with the access rules of `access`, of a process with the sandbox of `confined`.
    pub fn with_access(
        config: ApiConfig,
        access: Access,
        published: Published,
        (store, share): (Option<StoreMeasures>, Option<ShareStatus>),
        confined: &Confined,
    ) -> Self {
        let refusals = Refusals::new();
        let streams = Holdings::new(config.streams_per_peer);
        let rate = || Buckets::new(f64::from(config.requests_per_s.get()), config.requests_per_s);
        let rates = [rate(), rate()];
        let at_once = u32::try_from(config.streams_per_peer.get()).ok().and_then(NonZeroU32::new);
        let per_s = f64::from(config.subscriptions_per_s.get());
        let subscription_rate = Buckets::new(per_s, at_once.unwrap_or(NonZeroU32::MAX).max(config.subscriptions_per_s));
        let reported = config.reported_connections_per_s;
        let reported = Buckets::new(f64::from(reported.get()), reported.max(FULL_REPORT));
        let measures = ApiMeasures::default();
        let reports = Reports::new(config.reporting_hosts, published.now());
        let stored = (store, share.as_ref());
        let metrics = Metrics::new(&published, stored, (&measures, &refusals), &reports, (&access, confined));
        let live = Places::new(config.live_streams, config.live_streams_per_peer, 0);
        Self {
            shared: Arc::new(Shared {
                config,
                access,
                refusals,
                streams,
                rates,
                subscription_rate,
                reported,
                published,
                reports,
                totals: Mutex::default(),
                measures,
                metrics,
                share,
                costly: Costly::default(),
                live,
                names: names::InForce::default(),
            }),
        }
    }

    /// Takes a report of a client, as one over gRPC that its limits let through.
    pub async fn take_report(&self, client: &Client, report: &Report) -> ReportReceipt {
        self.shared.reports.take(client, report, &self.shared.published).await
    }

    /// Names networks by the files of a configuration, in place of the names before. Gives a warning for each that cannot be read.
    pub fn name_networks(&self, config: &config::Names) -> Result<Vec<String>, Failure> {
        let (names, warnings) = Names::load_readable(config)?;
        self.shared.names.replace(names);
        Ok(warnings)
    }

    /// What networks are called.
    pub(crate) fn names(&self) -> &names::InForce {
        &self.shared.names
    }

    /// Keeps the access rules in step with their files: checks every few seconds, and at once when notified. Never
    /// ends.
    pub async fn keep_access(&self, reload: &Notify) {
        loop {
            drop(tokio::time::timeout(LOOK, reload.notified()).await);
            // A disk that does not answer must not hold up those who ask.
            let access = self.shared.access.clone();
            drop(tokio::task::spawn_blocking(move || access.look()).await);
        }
    }

    /// Whether a peer may send another request now; if not, it is counted. A refused peer waits for [`REFUSED`] first.
    fn may_ask(&self, expected: Expected, peer: &Peer) -> bool {
        let may = self.rate(expected).take(peer.address);
        if !may {
            self.shared.refusals.refuse(expected.name(), Reason::Rate, peer.address, TOO_OFTEN);
        }
        may
    }

    /// What a peer asked counts as N requests more.
    fn charge(&self, expected: Expected, peer: &Peer, requests: usize) {
        self.rate(expected).charge(peer.address, u32::try_from(requests).unwrap_or(u32::MAX));
    }

    fn rate(&self, expected: Expected) -> &Buckets {
        let [agents, people] = &self.shared.rates;
        match expected {
            Expected::Agents => agents,
            Expected::People => people,
        }
    }

    /// Whether a peer may begin one more subscription now; where not, it is counted.
    fn may_subscribe(&self, peer: &Peer) -> bool {
        let may = self.shared.subscription_rate.take_of(peer.client());
        if !may {
            self.shared.refusals.refuse("grpc", Reason::SubscriptionRate, peer.address, SUBSCRIBES_TOO_OFTEN);
        }
        may
    }

    /// Whether a peer may report this many connections now; if not, it is counted.
    fn may_report(&self, peer: &Peer, connections: usize) -> bool {
        let may = u32::try_from(connections).is_ok_and(|count| self.shared.reported.take_many(peer.address, count));
        if !may {
            self.shared.refusals.refuse(Expected::Agents.name(), Reason::Reports, peer.address, REPORTS_TOO_MUCH);
        }
        may
    }

    /// Notes what the API refused at its own limits.
    fn note_limits(&self) {
        let measures = &self.shared.measures;
        self.shared.published.note_limits(&[
            ("connections_displaced", measures.displaced()),
            ("grpc_connections_refused", measures.refused("grpc")),
            ("http_connections_refused", measures.refused("http")),
            ("live_streams_refused", measures.live_refused.get()),
            ("peers_refused", self.shared.refusals.worth_an_event()),
        ]);
    }

    /// Answers gRPC on what listens until `stop` turns true or its sender is gone. The streams of subscribers end then.
    pub async fn serve_grpc(&self, listening: impl Into<Listening>, stop: watch::Receiver<bool>) {
        let config = &self.shared.config;
        let listener = Listener::new(listening.into(), config.grpc_connections, Expected::Agents, self);
        grpc::serve(self.clone(), listener, stop).await;
    }

    /// Answers HTTP on `listener` until `stop` turns true or its sender is gone.
    pub async fn serve_http(&self, listener: TcpListener, stop: watch::Receiver<bool>) {
        let config = &self.shared.config;
        let listener = Listener::new(listener.into(), config.http_connections, Expected::People, self);
        http::serve(self.clone(), listener, stop).await;
    }
}

/// Returns when the gateway stops.
async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error says that the sender is gone, which is the end as well.
    drop(stop.wait_for(|stop| *stop).await);
}
