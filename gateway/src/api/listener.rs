//! A listener with a limit on its connections, that neither a failing accept nor a peer that proves nothing ends.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio_rustls::TlsAcceptor;

use super::Api;
use super::access::Expected;
use super::connection::{Connection, Peer};
use super::metrics::ApiLabel;
use super::places::{NoPlace, Place, Places, RESERVED};
use super::refusals::Reason;
use crate::tls::Credentials;

/// Where connections come in.
#[derive(Debug, Default)]
pub struct Listening {
    /// By TCP.
    pub tcp: Option<TcpListener>,
    /// By a Unix socket, whose mode says who may connect: no TLS there.
    pub unix: Option<UnixListener>,
}

impl From<TcpListener> for Listening {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp: Some(tcp), unix: None }
    }
}

impl Listening {
    /// The next connection, and who is at its other end.
    async fn accept(&self) -> io::Result<Accepted> {
        tokio::select! {
            tcp = one(self.tcp.as_ref().map(TcpListener::accept)) => tcp.map(|(tcp, from)| Accepted::Tcp(tcp, from)),
            unix = one(self.unix.as_ref().map(UnixListener::accept)) => unix.map(|(unix, _)| Accepted::Unix(unix)),
        }
    }
}

/// A connection that came in.
enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// Never ends where there is nothing to wait for.
async fn one<T>(accepting: Option<impl Future<Output = T>>) -> T {
    match accepting {
        Some(accepting) => accepting.await,
        None => std::future::pending().await,
    }
}

/// Accepts connections up to a limit. Handshakes run beside each other, so that one peer that is slow holds up none.
#[derive(Debug)]
pub(super) struct Listener {
    listening: Listening,
    places: Places,
    expected: Expected,
    label: ApiLabel,
    api: Api,
    tls: Option<watch::Receiver<Arc<Credentials>>>,
    handshakes: JoinSet<Option<Connection>>,
}

/// Pause after an accept that failed for want of descriptors or memory: others may be freed meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Listener {
    pub(super) fn new(listening: Listening, limit: NonZeroUsize, expected: Expected, api: &Api) -> Self {
        let places = Places::new(limit, api.shared.config.connections_per_peer, RESERVED);
        let label = ApiLabel { api: expected.name() };
        let tls = api.shared.access.tls_for(expected);
        Self { listening, places, expected, label, api: api.clone(), tls, handshakes: JoinSet::new() }
    }

    /// The next connection, proven where that is asked for. Cancelling this loses nothing.
    pub(super) async fn accept(&mut self) -> Connection {
        loop {
            // Others run between any two: a hundred that come at once would keep a thread for milliseconds.
            yield_now().await;
            tokio::select! {
                accepted = self.listening.accept() => match accepted {
                    Ok(accepted) => {
                        if let Some(connection) = self.begin(accepted) {
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
    fn begin(&mut self, accepted: Accepted) -> Option<Connection> {
        let measures = &self.api.shared.measures;
        let peer = match &accepted {
            Accepted::Tcp(_, from) => Peer::at(*from),
            Accepted::Unix(_) => Peer::by_socket(),
        };
        let place = match self.places.take(peer.address) {
            Ok((place, displaced)) => {
                let count = measures.connections_displaced.get_or_create(&self.label);
                count.inc_by(u64::from(displaced));
                place
            }
            Err(NoPlace::AtAll) => {
                measures.connections_refused.get_or_create(&self.label).inc();
                return None;
            }
            Err(NoPlace::OfPeer) => {
                let why = "it has as many connections as api.connections_per_peer allows";
                self.api.shared.refusals.refuse(self.expected.name(), Reason::Connections, peer.address, why);
                return None;
            }
        };
        measures.connections.get_or_create(&self.label).inc();
        let tcp = match accepted {
            Accepted::Tcp(tcp, _) => tcp,
            Accepted::Unix(unix) => return Some(Connection::new((&self.api, self.expected), unix, peer, None, place)),
        };
        // A push is one small packet and must not wait for more data (RFC 896). A peer that is gone already shows
        // on its first read.
        drop(tcp.set_nodelay(true));
        let Some(tls) = &self.tls else {
            return Some(Connection::new((&self.api, self.expected), tcp, peer, None, place));
        };
        let handshake = handshake(self.api.clone(), self.expected, tls.clone(), tcp, peer, place);
        self.handshakes.spawn(handshake);
        None
    }

    async fn failed(&self, error: &io::Error) {
        let failures = self.api.shared.measures.accept_failures.get_or_create(&self.label).inc();
        // The first of a series, then one in a thousand: a full descriptor table fails twenty times a second.
        if failures.is_multiple_of(1_000) {
            tracing::warn!(api = self.label.api, %error, failures, "cannot accept a connection");
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
    peer: Peer,
    mut place: Place,
) -> Option<Connection> {
    let credentials = Arc::clone(&tls.borrow());
    let config = match expected {
        Expected::Agents => credentials.agents(),
        Expected::People => Some(credentials.people()),
    };
    let refused = |reason, why: &str| {
        api.shared.refusals.refuse(expected.name(), reason, peer.address, why);
        None
    };
    // Without an authority nobody can be proven: files that changed so are not taken.
    let Some(config) = config else { return refused(Reason::Tls, "there is no authority of agents") };
    let accepting = TlsAcceptor::from(Arc::clone(config)).accept(tcp);
    let accepting = tokio::time::timeout(api.shared.config.request_timeout, accepting);
    let accepted = tokio::select! {
        accepted = accepting => accepted,
        () = place.displaced() => return None,
    };
    match accepted {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
            match (peer.clone().proven(shown), expected) {
                (Some((peer, ends_unix_s)), _) => {
                    let end = super::connection::end_of_trust(ends_unix_s, credentials.trust().clone(), tls);
                    Some(Connection::new((&api, expected), stream, peer, Some(end), place))
                }
                (None, Expected::People) => Some(Connection::new((&api, expected), stream, peer.clone(), None, place)),
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
