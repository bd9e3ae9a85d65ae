//! The services `spand.v1.Spand` and [`grpc_health`].

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures::Stream;
use futures::stream::{once, unfold};
use spand_proto::contract::HostName;
use spand_proto::convert::{WireError, answers_to_wire};
use spand_proto::push::Subscription as Wish;
use spand_proto::query::Query;
use spand_proto::report::{MAX_CONNECTIONS, Report};
use spand_proto::v1;
use spand_proto::v1::spand_server::{Spand, SpandServer};
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_server::HealthServer;

use super::access::Expected;
use super::connection::{Connection, Peer};
use super::gate::Gate;
use super::holdings::Held;
use super::listener::Listener;
use super::refusals::Reason;
use super::{Api, REPORTS_TOO_MUCH, SUBSCRIBES_TOO_OFTEN, advice, grpc_health, stopped};
use crate::publisher::{Client, SubscribeError, Subscription};

/// Questions of a query for which it counts as one request more.
const QUESTIONS: usize = 16;
/// Calls at a time on one connection: an agent has one stream and seldom more than one call beside it.
const STREAMS_PER_CONNECTION: u32 = 16;
/// What a call and a connection may send before it is read: all calls together, so that one that waits to be read holds up none. With
/// the two requests that are read at a time the unfinished requests of a connection take less than a MiB.
const CALL_WINDOW_BYTES: u32 = 32 << 10;
pub(super) const CONNECTION_WINDOW_BYTES: u32 = STREAMS_PER_CONNECTION * CALL_WINDOW_BYTES;
/// Largest header list of a call.
const MAX_HEADER_BYTES: u32 = 8 << 10;
/// A peer that answers no ping within the timeout is gone, and its subscription with it.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn serve(api: Api, listener: Listener, stop: watch::Receiver<bool>) {
    let timeout = api.shared.config.request_timeout;
    let published = api.shared.published.clone();
    let most = api.shared.config.request_bytes.get();
    let service = SpandServer::new(Service { api: api.clone() }).max_decoding_message_size(most);
    let incoming = unfold(listener, |mut listener| async {
        let connection = listener.accept().await;
        Some((Ok::<Connection, std::io::Error>(connection), listener))
    });
    let served = Server::builder()
        .timeout(timeout)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .initial_stream_window_size(CALL_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .add_service(Gate::new(service, api.clone()))
        .add_service(Gate::new(HealthServer::new(grpc_health::Service(api.clone())), api))
        .serve_with_incoming_shutdown(incoming, async {
            stopped(stop).await;
            // Ends the streams, which the graceful shutdown waits for.
            published.close();
        })
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the gRPC server ended");
    }
}

struct Service {
    api: Api,
}

type Updates = Pin<Box<dyn Stream<Item = Result<v1::Update, Status>> + Send>>;

#[tonic::async_trait]
impl Spand for Service {
    type SubscribeStream = Updates;

    async fn query(&self, request: Request<v1::QueryRequest>) -> Result<Response<v1::QueryResponse>, Status> {
        let peer = peer(&request);
        self.counted("query", || self.answer(&peer, request.into_inner()))
    }

    async fn subscribe(&self, request: Request<v1::SubscribeRequest>) -> Result<Response<Updates>, Status> {
        let peer = peer(&request);
        self.counted("subscribe", || {
            if !self.api.may_subscribe(&peer) {
                return Err(Status::resource_exhausted(format!("{peer}: {SUBSCRIBES_TOO_OFTEN}")));
            }
            let wish = Wish::try_from(request.into_inner()).map_err(|error| refused(&error))?;
            self.check_owner(&peer, wish.addresses.iter().copied())?;
            let held = self.api.shared.streams.take(peer.address).ok_or_else(|| {
                let why = "it has as many subscriptions as one peer may have: raise api.connections_per_peer where many hosts share an address";
                self.api.shared.refusals.refuse("grpc", Reason::Streams, peer.address, why);
                Status::resource_exhausted(format!("{peer}: {why}"))
            })?;
            let published = &self.api.shared.published;
            let subscription = published.subscribe_host(&wish, peer.identity(), Some(peer.client()));
            let subscription = subscription.map_err(|error| no_place(&error))?;
            let pause = wish.agent.as_ref().and_then(|agent| agent.pause);
            self.api.shared.reports.on_subscription(&peer.client(), &wish.host_name, pause, published.now());
            let addresses = wish.addresses.len();
            tracing::info!(host_name = %wish.host_name, addresses, peer = peer.to_string(), "subscribed");
            let visit = Visit { host_name: wish.host_name, peer, began: Instant::now(), stopped: false };
            Ok(updates(self.api.clone(), subscription, held, visit))
        })
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let began = Instant::now();
        let peer = peer(&request);
        let taken = match self.reported(&peer, request.into_inner()) {
            // It goes on where the client does not wait for it: a batch is taken once, and then as a whole.
            Ok((report, others)) => tokio::spawn(take(self.api.clone(), peer.client(), report, others))
                .await
                .map_err(|error| Status::internal(format!("the report was not taken: {error}"))),
            Err(refused) => Err(refused),
        };
        self.count("report", began, taken)
    }
}

/// Takes a report of a client, of which N connections were others'.
async fn take(api: Api, client: Client, report: Report, others: u32) -> v1::ReportResponse {
    let mut receipt = api.take_report(&client, &report).await;
    receipt.ignored += others;
    receipt.into()
}

impl Service {
    /// What a peer may report, and how many connections of it were others'.
    fn reported(&self, peer: &Peer, request: v1::ReportRequest) -> Result<(Report, u32), Status> {
        if !self.api.may_report(peer, request.connections.len().min(MAX_CONNECTIONS)) {
            return Err(Status::resource_exhausted(REPORTS_TOO_MUCH));
        }
        let mut report = Report::try_from(request).map_err(|error| refused(&error))?;
        let others = self.take_out_others(peer, &mut report)?;
        Ok((report, others))
    }

    /// Refuses a peer that is not authorised for an address.
    fn check_owner(&self, peer: &Peer, addresses: impl IntoIterator<Item = IpAddr>) -> Result<(), Status> {
        let owners = self.api.shared.access.owners();
        let other = addresses.into_iter().find(|address| !owners.may(peer, *address));
        other.map_or(Ok(()), |other| {
            let why = format!("{other} is not an address of {peer}: {}", owners.way_out());
            self.api.shared.refusals.refuse("grpc", Reason::OtherAddress, peer.address, &why);
            Err(Status::permission_denied(why))
        })
    }

    /// Takes connections of other hosts out of a report, and gives how many. A host's containers may have addresses that are
    /// not authorised; a report of nothing else is refused.
    fn take_out_others(&self, peer: &Peer, report: &mut Report) -> Result<u32, Status> {
        let owners = self.api.shared.access.owners();
        let all = report.connections.len();
        let hosts: Vec<IpAddr> = report.connections.iter().map(|connection| connection.host.ip()).collect();
        report.connections.retain(|connection| owners.may(peer, connection.host.ip()));
        let others = all - report.connections.len();
        if others > 0 {
            let refused = self.check_owner(peer, hosts);
            if report.connections.is_empty() {
                refused?;
            }
        }
        Ok(u32::try_from(others).unwrap_or(u32::MAX))
    }

    fn answer(&self, peer: &Peer, request: v1::QueryRequest) -> Result<v1::QueryResponse, Status> {
        self.api.charge(Expected::Agents, peer, request.questions.len() / QUESTIONS);
        let query = Query::try_from(request).map_err(|error| refused(&error))?;
        let published = &self.api.shared.published;
        let mode = query.mode.unwrap_or(self.api.shared.config.mode);
        let mut answers = Vec::with_capacity(query.questions.len());
        for (index, question) in query.questions.iter().enumerate() {
            advice::check(query.initial_window, question)
                .map_err(|absurd| Status::invalid_argument(format!("questions[{index}]: {absurd}")))?;
            answers.push(advice::answer(published, mode, query.initial_window, question));
        }
        Ok(answers_to_wire(&answers, published.now()))
    }

    fn counted<T>(
        &self,
        endpoint: &'static str,
        handle: impl FnOnce() -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let began = Instant::now();
        self.count(endpoint, began, handle())
    }

    fn count<T>(
        &self,
        endpoint: &'static str,
        began: Instant,
        handled: Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let code = handled.as_ref().err().map_or(Code::Ok, Status::code);
        self.api.shared.measures.answered("grpc", endpoint, code_name(code), began.elapsed());
        handled.map(Response::new)
    }
}

/// Who asks. A request that came by no connection came from nowhere.
fn peer<T>(request: &Request<T>) -> Peer {
    request.extensions().get().cloned().unwrap_or_else(|| Peer::at(SocketAddr::from(([0, 0, 0, 0], 0))))
}

/// The stream of one subscriber; dropped when it goes.
fn updates(api: Api, subscription: Subscription, held: Held, visit: Visit) -> Updates {
    let updates = unfold((subscription, held, visit), move |(mut subscription, held, mut visit)| {
        let published = api.shared.published.clone();
        async move {
            let Some(update) = subscription.next().await else {
                visit.stop();
                return None;
            };
            Some((Ok(update.to_wire(published.now())), (subscription, held, visit)))
        }
    });
    let end = once(async { Err(Status::unavailable("the gateway stops: advice ends with its lifetime")) });
    Box::pin(futures::StreamExt::chain(updates, end))
}

/// A subscription from its beginning; says in the log when it ends, for how long it was and why.
struct Visit {
    host_name: HostName,
    peer: Peer,
    began: Instant,
    /// It ended with the gateway.
    stopped: bool,
}

impl Visit {
    /// It ends with the gateway.
    const fn stop(&mut self) {
        self.stopped = true;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let why = match self.peer.mark.why_ended() {
            _ if self.stopped => "the gateway stops",
            Some(why) => why,
            None => "it ended the stream",
        };
        let (host_name, peer) = (&self.host_name, self.peer.to_string());
        tracing::info!(%host_name, peer, after_s = self.began.elapsed().as_secs(), "unsubscribed: {why}");
    }
}

fn refused(error: &WireError) -> Status {
    let message = error.to_string();
    match error {
        WireError::Version(_) => Status::failed_precondition(message),
        _ => Status::invalid_argument(message),
    }
}

fn no_place(error: &SubscribeError) -> Status {
    let message = error.to_string();
    match error {
        SubscribeError::NoAddress | SubscribeError::TooManyAddresses { .. } => Status::invalid_argument(message),
        SubscribeError::Full(_) | SubscribeError::TooManyHosts(_) | SubscribeError::AddressTaken { .. } => {
            Status::resource_exhausted(message)
        }
        SubscribeError::Closed => Status::unavailable(message),
    }
}

/// The code's name where this service gives it, for a bounded label.
const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::InvalidArgument => "invalid_argument",
        Code::FailedPrecondition => "failed_precondition",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::Unavailable => "unavailable",
        _ => "other",
    }
}
