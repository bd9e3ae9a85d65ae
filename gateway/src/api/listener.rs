//! A listener with a limit on its connections, that a failing accept does not end.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

use super::metrics::{ApiLabel, ApiMeasures};

/// Accepts connections up to a limit.
#[derive(Debug)]
pub(super) struct Listener {
    tcp: TcpListener,
    free: Arc<Semaphore>,
    label: ApiLabel,
    measures: ApiMeasures,
}

/// A connection; dropping it frees its place.
#[derive(Debug)]
pub(super) struct Connection {
    tcp: TcpStream,
    _place: OwnedSemaphorePermit,
}

/// Pause after an accept that failed for want of descriptors or memory: others may be freed meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Listener {
    pub(super) fn new(tcp: TcpListener, limit: NonZeroUsize, api: &'static str, measures: &ApiMeasures) -> Self {
        let free = Arc::new(Semaphore::new(limit.get().min(Semaphore::MAX_PERMITS)));
        Self { tcp, free, label: ApiLabel { api }, measures: measures.clone() }
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> Connection {
        loop {
            let tcp = match self.tcp.accept().await {
                Ok((tcp, _)) => tcp,
                Err(error) => {
                    self.failed(&error).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&self.free).try_acquire_owned() else {
                self.measures.connections_refused.get_or_create(&self.label).inc();
                continue;
            };
            // A push is one small packet and must not wait for more data (RFC 896). A peer that is gone already shows
            // on its first read.
            drop(tcp.set_nodelay(true));
            self.measures.connections.get_or_create(&self.label).inc();
            return Connection { tcp, _place: place };
        }
    }

    async fn failed(&self, error: &io::Error) {
        let failures = self.measures.accept_failures.get_or_create(&self.label).inc();
        // The first of a series, then one in a thousand: a full descriptor table fails twenty times a second.
        if failures.is_multiple_of(1_000) {
            tracing::warn!(api = self.label.api, %error, failures, "a connection could not be accepted");
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

impl Connected for Connection {
    type ConnectInfo = Option<SocketAddr>;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.tcp.peer_addr().ok()
    }
}
