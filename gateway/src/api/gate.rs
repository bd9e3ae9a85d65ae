//! The check before every gRPC call. A client that asks too often is refused before its request is read, and few requests of
//! each connection are read at a time. A request that works, or whose answer is under way, keeps its connection's place.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body as TonicBody;
use tonic::codegen::{BoxFuture, Bytes, Service, http};
use tonic::server::NamedService;

use super::access::Expected;
use super::connection::Peer;
use super::places::{Mark, Request};
use super::refusals::Reason;
use super::{Api, REFUSED, TOO_OFTEN};

/// What a message has before its bytes: whether they are compressed, and how many they are.
const MESSAGE_HEAD_BYTES: usize = 5;
/// Bytes of a call for which it counts as one request more: reading them may take as long as a short one takes in all.
const COUNTED_BYTES: usize = 8 << 10;

/// A service behind the gate.
#[derive(Clone)]
pub(super) struct Gate<S> {
    service: S,
    api: Api,
}

impl<S> Gate<S> {
    pub(super) const fn new(service: S, api: Api) -> Self {
        Self { service, api }
    }
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<TonicBody>> for Gate<S>
where
    S: Service<http::Request<TonicBody>, Response = http::Response<TonicBody>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = http::Response<TonicBody>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<TonicBody>) -> Self::Future {
        let nowhere = || Peer::at(SocketAddr::from(([0, 0, 0, 0], 0)));
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_else(nowhere);
        let api = self.api.clone();
        if !api.may_ask(Expected::Agents, &peer) {
            let endpoint = endpoint(request.uri().path());
            api.shared.measures.answered("grpc", endpoint, "resource_exhausted", Instant::now().elapsed());
            return Box::pin(async {
                sleep(REFUSED).await;
                Ok(Status::resource_exhausted(TOO_OFTEN).into_http())
            });
        }
        let mut service = self.service.clone();
        Box::pin(async move {
            let turn = peer.mark.bodies().acquire_owned().await.ok();
            let call = Arc::new(Call { mark: peer.mark.clone(), works: Mutex::new(None) });
            let most = api.shared.config.request_bytes.get() + MESSAGE_HEAD_BYTES;
            let also = Arc::clone(&call);
            let incoming = |body| Incoming { body, most, left: most, turn, call: also, api, peer };
            let request = request.map(|body| TonicBody::new(incoming(body)));
            let response = service.call(request).await?;
            Ok(response.map(|body| TonicBody::new(Outgoing::new(body, call))))
        })
    }
}

/// A call, until its answer has left.
struct Call {
    mark: Mark,
    works: Mutex<Option<Request>>,
}

/// What a request sends, no more than it may, until its end.
struct Incoming {
    body: TonicBody,
    /// Bytes that it may send, in all and still.
    most: usize,
    left: usize,
    /// While it is read.
    turn: Option<OwnedSemaphorePermit>,
    call: Arc<Call>,
    api: Api,
    peer: Peer,
}

impl Incoming {
    /// All of it came.
    fn end(&mut self) {
        if self.turn.take().is_some() {
            *self.call.works.lock() = Some(self.call.mark.request());
        }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let came = frame.data_ref().map_or(0, Bytes::len);
            let Some(left) = self.left.checked_sub(came) else {
                return Poll::Ready(Some(Err(Status::out_of_range("it sends more than 256 KiB"))));
            };
            self.left = left;
        }
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.api.charge(Expected::Agents, &self.peer, (self.most - self.left) / COUNTED_BYTES);
        if self.turn.is_some() {
            let why = "it began a request and did not send all of it, or more than 256 KiB";
            self.api.shared.refusals.refuse(Expected::Agents.name(), Reason::Body, self.peer.address, why);
        }
    }
}

/// A body that keeps something until it has left.
pub(super) struct Outgoing<B, K> {
    body: B,
    _until: K,
}

impl<B, K> Outgoing<B, K> {
    pub(super) const fn new(body: B, until: K) -> Self {
        Self { body, _until: until }
    }
}

impl<B: Body + Unpin, K: Unpin> Body for Outgoing<B, K> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The endpoint's name, for a bounded label.
fn endpoint(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("Query") => "query",
        Some("Subscribe") => "subscribe",
        Some("Report") => "report",
        _ => "other",
    }
}
