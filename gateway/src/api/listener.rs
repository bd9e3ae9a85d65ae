//! A listener with a limit on its connections, that neither a failing accept nor a peer that proves nothing ends.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Api;
use super::access::Expected;
use super::connection::{Connection, Opening, Peer, Stream};
use super::holdings::{Held, Holdings};
use super::metrics::ApiLabel;
use super::refusals::Reason;
use crate::tls::Credentials;

/// Accepts connections up to a limit. Handshakes run beside each other, so that one peer that is slow holds up none.
#[derive(Debug)]
pub(super) struct Listener {
    tcp: TcpListener,
    free: Arc<Semaphore>,
    peers: Holdings,
    expected: Expected,
    label: ApiLabel,
    api: Api,
    tls: Option<watch::Receiver<Arc<Credentials>>>,
    handshakes: JoinSet<Option<Connection>>,
}

/// Pause after an accept that failed for want of descriptors or memory: others may be freed meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Listener {
    pub(super) fn new(tcp: TcpListener, limit: NonZeroUsize, expected: Expected, api: &Api) -> Self {
        let free = Arc::new(Semaphore::new(limit.get().min(Semaphore::MAX_PERMITS)));
        let label = ApiLabel { api: expected.name() };
        let tls = api.shared.access.tls_for(expected);
        let peers = Holdings::new(api.shared.config.connections_per_peer);
        Self { tcp, free, peers, expected, label, api: api.clone(), tls, handshakes: JoinSet::new() }
    }

    /// The next connection, proven where that is asked for. Cancelling this loses nothing.
    pub(super) async fn accept(&mut self) -> Connection {
        loop {
            tokio::select! {
                accepted = self.tcp.accept() => match accepted {
                    Ok((tcp, from)) => {
                        if let Some(connection) = self.begin(tcp, from) {
                            return connection;
                        }
                    }
                    Err(error) => self.failed(&error).await,
                },
                Some(done) = self.handshakes.join_next() => if let Ok(Some(connection)) = done {
                    return connection;
                },
            }
        }
    }

    /// The connection where nothing has to be proven; else its handshake begins.
    fn begin(&mut self, tcp: TcpStream, from: SocketAddr) -> Option<Connection> {
        let measures = &self.api.shared.measures;
        let Ok(place) = Arc::clone(&self.free).try_acquire_owned() else {
            measures.connections_refused.get_or_create(&self.label).inc();
            return None;
        };
        let Some(held) = self.peers.take(from.ip()) else {
            let why = "it has as many connections as api.connections_per_peer allows";
            self.api.shared.refusals.refuse(self.expected.name(), Reason::Connections, from.ip(), why);
            return None;
        };
        let place = (place, held);
        // A push is one small packet and must not wait for more data (RFC 896). A peer that is gone already shows
        // on its first read.
        drop(tcp.set_nodelay(true));
        measures.connections.get_or_create(&self.label).inc();
        let Some(tls) = &self.tls else {
            // Over TLS the handshake has its time; here the first bytes have. HTTP/1.1 sees to that itself.
            let opening = match self.expected {
                Expected::Agents => Some(Opening::within(self.api.shared.config.request_timeout)),
                Expected::People => None,
            };
            return Some(Connection::new(Stream::Plain(tcp), Peer::at(from), None, place).opening(opening));
        };
        let handshake = handshake(self.api.clone(), self.expected, tls.clone(), tcp, from, place);
        self.handshakes.spawn(handshake);
        None
    }

    async fn failed(&self, error: &io::Error) {
        let failures = self.api.shared.measures.accept_failures.get_or_create(&self.label).inc();
        // The first of a series, then one in a thousand: a full descriptor table fails twenty times a second.
        if failures.is_multiple_of(1_000) {
            tracing::warn!(api = self.label.api, %error, failures, "a connection could not be accepted");
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// A connection whose peer spoke TLS and proved what it has to.
async fn handshake(
    api: Api,
    expected: Expected,
    tls: watch::Receiver<Arc<Credentials>>,
    tcp: TcpStream,
    from: SocketAddr,
    place: (OwnedSemaphorePermit, Held),
) -> Option<Connection> {
    let credentials = Arc::clone(&tls.borrow());
    let config = match expected {
        Expected::Agents => credentials.agents(),
        Expected::People => Some(credentials.people()),
    };
    let refused = |reason, why: &str| {
        api.shared.refusals.refuse(expected.name(), reason, from.ip(), why);
        None
    };
    // Without an authority nobody can be proven: files that changed so are not taken.
    let Some(config) = config else { return refused(Reason::Tls, "there is no authority of agents") };
    let accepting = TlsAcceptor::from(Arc::clone(config)).accept(tcp);
    match tokio::time::timeout(api.shared.config.request_timeout, accepting).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            match (Peer::at(from).proven(shown), expected) {
                (Some((peer, ends_unix_s)), _) => {
                    let end = super::connection::end_of_trust(ends_unix_s, credentials.trust().clone(), tls);
                    Some(Connection::new(Stream::Tls(Box::new(stream)), peer, Some(end), place))
                }
                (None, Expected::People) => {
                    Some(Connection::new(Stream::Tls(Box::new(stream)), Peer::at(from), None, place))
                }
                (None, Expected::Agents) => refused(Reason::Certificate, "its certificate cannot be read"),
            }
        }
        Ok(Err(error)) => {
            let (reason, why) = Reason::of_handshake(&error);
            refused(reason, &why)
        }
        Err(_) => refused(Reason::Timeout, "it did not finish the TLS handshake in time"),
    }
}
