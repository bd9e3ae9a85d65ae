//! A connection: plain or TLS, with who is at its other end, until that no longer holds.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use rustls::pki_types::CertificateDer;
use spand_proto::tls::{Certificate, Names};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use super::Api;
use super::access::Expected;
use super::places::{Mark, Place};
use super::refusals::Reason;
use crate::buckets::key;
use crate::publisher::Client;
use crate::tls::{Credentials, Trust};

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Where it connected from; an IPv4 address is one, however the socket shows it.
    pub(super) address: IpAddr,
    /// Whether it came by the Unix socket, whose mode let it in.
    pub(super) by_socket: bool,
    /// Whom its certificate names, where it proved one.
    pub(super) names: Option<Arc<Names>>,
    /// The place of its connection.
    pub(super) mark: Mark,
}

impl Peer {
    /// A peer that proved nothing.
    pub(super) fn at(from: SocketAddr) -> Self {
        Self { address: from.ip().to_canonical(), by_socket: false, names: None, mark: Mark::default() }
    }

    /// A program of this machine that came by the Unix socket. Limits count it as loopback.
    pub(super) fn by_socket() -> Self {
        Self { by_socket: true, ..Self::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))) }
    }

    /// The first name of its certificate, for people. Others may have it, too.
    pub(super) fn name(&self) -> Option<String> {
        self.names.as_ref()?.first()
    }

    /// Whom its certificate names: a host's renewed one names the same, another host's does not.
    pub(super) fn identity(&self) -> Option<String> {
        self.names.as_ref()?.identity()
    }

    /// What it is counted as, however many connections it has.
    pub(super) fn client(&self) -> Client {
        self.identity().map_or_else(|| Client::Address(key(self.address)), Client::Certificate)
    }

    /// The same with the names of the certificate that it proved, and when that ends; `None` where there is none that can
    /// be read.
    pub(super) fn proven(self, shown: &[CertificateDer<'_>]) -> Option<(Self, i64)> {
        let certificate = Certificate::read(shown.first()?)?;
        Some((Self { names: Some(Arc::new(certificate.names)), ..self }, certificate.not_after_unix_s))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} at {}", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// What carries the bytes: TCP, TLS over TCP, or a Unix socket.
pub(super) trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Stream for S {}

/// A connection; dropping it frees its place.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    peer: Peer,
    /// Ends when the peer's proof no longer holds.
    end: Option<BoxFuture<'static, ()>>,
    /// Bytes that have to come in time.
    opening: Option<Opening>,
    /// By when the peer has to read something, where it does not.
    unread: Option<Pin<Box<Sleep>>>,
    place: Place,
    api: Api,
    expected: Expected,
}

/// The preface of HTTP/2 (RFC 9113 section 3.4), which a client sends at once: who does not has no business here.
#[derive(Debug)]
struct Opening {
    missing: usize,
    until: Pin<Box<Sleep>>,
}

impl Connection {
    pub(super) fn new(
        (api, expected): (&Api, Expected),
        stream: impl Stream + 'static,
        peer: Peer,
        end: Option<BoxFuture<'static, ()>>,
        place: Place,
    ) -> Self {
        let peer = Peer { mark: place.mark(), ..peer };
        // HTTP/1.1 sees to its own heads.
        let opening = (expected == Expected::Agents)
            .then(|| Opening { missing: 24, until: Box::pin(sleep(api.shared.config.request_timeout)) });
        let stream = Box::new(stream);
        Self { stream, peer, end, opening, unread: None, place, api: api.clone(), expected }
    }

    /// Why the connection has to end now, where it has. Both directions ask: while one waits the other may not be looked at.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            self.end = None;
            return Some(self.abort("its certificate holds no more"));
        }
        let displaced = self.place.poll_displaced(cx).is_ready();
        displaced.then(|| self.abort("another got its place"))
    }

    fn abort(&self, why: &'static str) -> io::Error {
        self.peer.mark.ended(why);
        io::Error::new(io::ErrorKind::ConnectionAborted, why)
    }

    /// Ends a connection whose peer takes nothing of what it asked for.
    fn written<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.unread.take().is_some() {
                self.peer.mark.unread(false);
            }
            return written;
        }
        let timeout = self.api.shared.config.request_timeout;
        if self.unread.is_none() {
            self.peer.mark.unread(true);
        }
        let until = self.unread.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if until.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.refuse(Reason::Unread, "it does not read what it asked for")
    }

    fn refuse<T>(&self, reason: Reason, why: &'static str) -> Poll<io::Result<T>> {
        self.peer.mark.ended(why);
        self.api.shared.refusals.refuse(self.expected.name(), reason, self.peer.address, why);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }

    /// Who is at the other end.
    pub(super) const fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// Longest time between two looks at the wall clock, by which certificates end: it may be stepped, timers are not.
const LOOK: Duration = Duration::from_secs(10);

/// Ends when a certificate does, or when others than `trust` prove agents: what was revoked must not stay connected.
pub(super) fn end_of_trust(
    ends_unix_s: i64,
    trust: Trust,
    mut tls: watch::Receiver<Arc<Credentials>>,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        tokio::select! {
            () = end_of_certificate(ends_unix_s, wall_clock) => {}
            changed = tls.wait_for(|tls| *tls.trust() != trust) => drop(changed),
        }
    })
}

/// Time since 1970-01-01 00:00 UTC.
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Ends when `wall_clock` is past the certificate's end.
async fn end_of_certificate(ends_unix_s: i64, wall_clock: impl Fn() -> Duration) {
    // It holds through its last second.
    let end = Duration::from_secs(u64::try_from(ends_unix_s).unwrap_or_default().saturating_add(1));
    loop {
        let left = end.saturating_sub(wall_clock());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK)).await;
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        if self.opening.as_mut().is_some_and(|opening| opening.until.as_mut().poll(cx).is_ready()) {
            self.opening = None;
            return self.refuse(Reason::Timeout, "it did not begin to speak HTTP/2 in time");
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let came = buf.filled().len() - before;
        match &read {
            Poll::Ready(Ok(())) if came == 0 && buf.remaining() > 0 => self.peer.mark.ended("it closed the connection"),
            Poll::Ready(Err(_)) => self.peer.mark.ended("its connection broke off"),
            _ => {}
        }
        self.opening = self.opening.take().filter(|opening| opening.missing > came).map(|opening| {
            let missing = opening.missing - came;
            Opening { missing, ..opening }
        });
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let written = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(cx, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Any other end has set its reason before.
        self.peer.mark.ended("it answered no ping, or not as HTTP/2 has it");
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.peer.clone()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("stream", &self.stream).field("peer", &self.peer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::Instant;

    use super::*;

    /// How long a connection lasts by the timers' clock whose certificate holds for an hour, where the wall clock is stepped by
    /// this many seconds a minute after its start.
    async fn lasts(step_s: i64) -> Duration {
        let (began, stepped) = (Instant::now(), Arc::new(AtomicU64::new(1_000_000)));
        let also = Arc::clone(&stepped);
        let clock = move || began.elapsed() + Duration::from_secs(also.load(Ordering::Relaxed));
        let step = async {
            sleep(Duration::from_secs(60)).await;
            stepped.store(1_000_000_u64.saturating_add_signed(step_s), Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = end_of_certificate(1_000_000 + 3_599, clock) => began.elapsed(),
            () = step => unreachable!("it never ends"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_ends_by_the_wall_clock_however_it_is_stepped() {
        let (about, minute) = (Duration::from_millis(2), Duration::from_secs(60));
        assert!(lasts(0).await.abs_diff(60 * minute) <= about);
        assert!(lasts(7_200).await <= minute + LOOK + about, "stepped beyond its end");
        assert!(lasts(-600).await.abs_diff(70 * minute) <= about, "stepped back: it holds for longer");
    }
}
