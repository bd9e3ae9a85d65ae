//! JSON, metrics and health over HTTP/1.1.
//!
//! Nothing here reads a request's body. Every error is a problem document (RFC 9457) with one sentence for people.

mod advice;
mod agents;
mod benefit;
mod dashboard;
mod documents;
mod events;
#[cfg(fuzzing)]
pub mod fuzzing;
mod guard;
mod health;
mod history;
mod live;
mod networks;
mod parameters;
mod problem;
mod services;
#[cfg_attr(not(feature = "share"), path = "not_shared.rs")]
mod share;
mod shared;
mod sort;
mod totals;
mod traffic;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::problem::Problem;
pub(crate) use self::sort::sorts;
use super::access::Expected;
use super::connection::{Connection, Peer};
use super::gate::Outgoing;
use super::listener::Listener;
use super::{Api, REFUSED, TOO_OFTEN, stopped};

/// Largest body that is read and thrown away, so that the connection can go on. A larger one is refused.
const MAX_BODY_BYTES: usize = 4 << 10;
/// Headers of every answer for browsers; the dashboard's files add the ones that they need.
const CAREFUL: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
/// Longest life of a connection; a client that reads slowly or keeps one open comes back.
const CONNECTION_AGE: Duration = Duration::from_secs(300);
/// Time between two looks at what the API itself refused.
const LOOK: Duration = Duration::from_secs(1);
/// Time for requests under way once the gateway stops.
const STOP_GRACE: Duration = Duration::from_secs(1);

pub(super) async fn serve(api: Api, mut listener: Listener, stop: watch::Receiver<bool>) {
    let router = router(api.clone());
    let mut connections = JoinSet::new();
    let stopped = stopped(stop);
    tokio::pin!(stopped);
    let mut looks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = &mut stopped => break,
            _ = looks.tick() => {
                api.note_limits();
                api.take_totals();
            }
            connection = listener.accept() => {
                connections.spawn(converse(connection, router.clone(), api.shared.config.request_timeout));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    // What takes longer is cut off when the set is dropped.
    let rest = async { while connections.join_next().await.is_some() {} };
    drop(tokio::time::timeout(STOP_GRACE, rest).await);
}

/// Answers one connection's requests.
async fn converse(connection: Connection, router: Router, head_timeout: Duration) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_headers(64);
    let peer = connection.peer().clone();
    let router = TowerToHyperService::new(router);
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.call(request)
    });
    let conversation = http.serve_connection(TokioIo::new(connection), answer);
    // An error is the client's: it disconnected, was too slow, or did not speak HTTP and got an error.
    drop(tokio::time::timeout(CONNECTION_AGE, conversation).await);
}

/// What answers, by path.
fn routes() -> [(&'static str, MethodRouter<Api>); 17] {
    [
        ("/v1/traffic", get(traffic::traffic)),
        ("/v1/totals", get(totals::totals)),
        ("/v1/share", get(share::share)),
        ("/v1/live", get(live::live)),
        ("/v1/networks", get(networks::list)),
        ("/v1/networks/{*prefix}", get(networks::one)),
        ("/v1/history/{*prefix}", get(history::history)),
        ("/v1/agents", get(agents::agents)),
        ("/v1/events", get(events::events)),
        ("/v1/services", get(services::list)),
        ("/v1/advice", get(advice::advice)),
        ("/v1/benefit", get(benefit::benefit)),
        ("/metrics", get(health::metrics)),
        ("/healthz", get(health::healthz)),
        ("/readyz", get(health::readyz)),
        ("/", get(dashboard::page)),
        ("/dashboard/{*file}", get(dashboard::file)),
    ]
}

/// The paths that are answered; `{*name}` stands for the rest of a path.
pub fn paths() -> [&'static str; 17] {
    routes().map(|(path, _)| path)
}

fn router(api: Api) -> Router {
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, answer)| router.route(path, answer))
        .fallback(no_such_page)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(api.clone(), around))
        .with_state(api)
}

/// Around every request: the body's limit, the time limit, and the count.
async fn around(State(api): State<Api>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let endpoint = endpoint(request.uri().path());
    let timeout = api.shared.config.request_timeout;
    let unknown = || Peer::at(SocketAddr::from(([0; 4], 0)));
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_else(unknown);
    // A request may not be held while a password is checked: its body is not for two threads.
    let (version, uri, headers) = (request.version(), request.uri().clone(), request.headers().clone());
    let answer = async {
        if !api.may_ask(Expected::People, &peer) {
            sleep(REFUSED).await;
            // A supervisor must hear that all is well also where another program of its machine asks without pause.
            if !guard::OPEN.contains(&uri.path()) {
                return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, TOO_OFTEN));
            }
        }
        if let Some(problem) = guard::ambiguous_host(version, &uri, &headers) {
            return Err(problem);
        }
        if let Some(refusal) = guard::refusal(&api, peer.address, uri.path(), &headers).await {
            return Ok(refusal);
        }
        let mut request = without_body(request).await?;
        let works = peer.mark.request();
        request.extensions_mut().insert(peer.clone());
        let answer: Response = next.run(request).await;
        Ok::<_, Problem>(answer.map(|body| Body::new(Outgoing::new(body, works))))
    };
    let mut response = match tokio::time::timeout(timeout, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => problem.into_response(),
        Err(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the answer took too long: ask for less").into_response()
        }
    };
    for (name, value) in CAREFUL {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    if matches!(response.status().as_u16(), 401 | 403 | 413 | 421 | 429) {
        // The rest of the body would be taken for the next request, and who is refused need not stay.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    api.shared.measures.answered("http", endpoint, response.status().as_str(), began.elapsed());
    response
}

/// Reads a small body away; refuses a large one, by its announced length where it has one.
async fn without_body(request: Request) -> Result<Request, Problem> {
    let too_large = || {
        let detail = format!("a body of more than {MAX_BODY_BYTES} bytes is not read: put everything in the address");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    let (parts, body) = request.into_parts();
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return Err(too_large());
    }
    to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| too_large())?;
    Ok(Request::from_parts(parts, Body::empty()))
}

async fn no_such_page() -> Result<Infallible, Problem> {
    let pages = "there is /, /v1/traffic, /v1/totals, /v1/share, /v1/networks, /v1/networks/PREFIX, /v1/history/PREFIX, /v1/services, \
                 /v1/advice, /v1/agents, /v1/events, /v1/benefit, /v1/live, /metrics, /healthz and /readyz";
    Err(Problem::new(StatusCode::NOT_FOUND, format!("nothing is here: {pages}")))
}

async fn no_such_method() -> Result<Infallible, Problem> {
    Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "nothing can be changed here: ask with GET"))
}

/// The endpoint's name, for a bounded label.
fn endpoint(path: &str) -> &'static str {
    match path {
        "/v1/networks" => "networks",
        "/" => "dashboard",
        "/v1/traffic" => "traffic",
        "/v1/totals" => "totals",
        "/v1/share" => "share",
        "/v1/live" => "live",
        "/v1/agents" => "agents",
        "/v1/events" => "events",
        "/v1/services" => "services",
        "/v1/advice" => "advice",
        "/v1/benefit" => "benefit",
        "/metrics" => "metrics",
        "/healthz" => "healthz",
        "/readyz" => "readyz",
        _ if path.starts_with("/v1/networks/") => "network",
        _ if path.starts_with("/v1/history/") => "history",
        _ if path.starts_with("/dashboard/") => "dashboard",
        _ => "other",
    }
}
