//! The listener of `[metrics]`: the numbers that `spand-agent metrics` prints, over HTTP.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use spand_proto::operator::{Exposition, Failure};
use tokio::sync::{Semaphore, mpsc};
use tracing::debug;

use crate::commands::metrics::exposition;
use crate::control::{Pending, Reply, status};

/// Connections at one time; more wait to be accepted.
const CONNECTIONS: usize = 8;
/// Time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Binds the address, while the program still may.
pub(super) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        Failure::Environment(format!(
            "cannot listen on {address} (metrics.listen): {error}; choose another address or port"
        ))
    })
}

/// Answers until it is dropped.
pub(super) async fn serve(listener: TcpListener, requests: mpsc::Sender<Pending>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: they come back.
                debug!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let requests = requests.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, &requests));
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
            let served = http.serve_connection(TokioIo::new(stream), service);
            let served = tokio::time::timeout(PATIENCE, served).await;
            debug!(?served, "a connection for metrics ended");
            drop(permit);
        });
    }
    Ok(())
}

async fn answer(request: Request<Incoming>, requests: &mpsc::Sender<Pending>) -> Result<Response<String>, Infallible> {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Exposition::accepted(accept);
    let (code, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match status(requests).await {
            Reply::Status(status) => match exposition(&status, format) {
                Ok(text) => (StatusCode::OK, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            },
            Reply::Error(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
            Reply::Explained(_) | Reply::Pause(_) => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        },
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "ask for /metrics\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "GET /metrics is all there is\n".to_owned()),
    };
    let kind = if code == StatusCode::OK { format.content_type() } else { "text/plain; charset=utf-8" };
    let mut response = Response::new(text);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    Ok(response)
}
