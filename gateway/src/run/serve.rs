//! The listeners, the signals, and the end of the program.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use spand_proto::operator::Failure;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::capture::Captures;
use super::reload::Reload;
use super::socket::Socket;
use super::supervisor;
use crate::api::{Api, Listening};
use crate::config::{Config, Listen};
use crate::publisher::Published;
use crate::store::StoreWriter;

/// Requests that are being answered at a stop may take this long.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// The listeners, bound but not yet answering.
#[derive(Debug)]
pub(super) struct Ports {
    grpc: Option<TcpListener>,
    socket: Option<(UnixListener, Socket)>,
    http: TcpListener,
}

impl Ports {
    /// Binds all that are configured.
    pub(super) fn bind(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            grpc: config.api.grpc_listen.map(|listen| bind("api.grpc_listen", listen)).transpose()?,
            http: bind("api.http_listen", config.api.http_listen)?,
            socket: config.api.grpc_socket.as_deref().map(Socket::bind).transpose()?,
        })
    }
}

/// Threads that answer: as many as there are processors for this process. Determined before file access is dropped, since a limit of a
/// cgroup is one.
pub(super) fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The listeners and the threads that will answer.
#[derive(Debug)]
pub(super) struct Servers {
    runtime: Runtime,
    ports: Ports,
}

impl Servers {
    /// Starts the threads.
    pub(super) fn start(ports: Ports, workers: usize) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().worker_threads(workers).thread_name("api").enable_all().build();
        Ok(Self { runtime: runtime.map_err(|error| super::cannot_start_a_thread(&error))?, ports })
    }

    /// Answers until a signal comes (`Ok`), or something ends that should not.
    pub(super) fn run(
        self,
        api: Api,
        published: &Published,
        reload: Reload,
        captures: &Arc<Captures>,
        store: Option<&Arc<StoreWriter>>,
    ) -> Result<(), Failure> {
        let Self { runtime, ports } = self;
        let ended = runtime.block_on(serve(ports, api, published, reload, captures, store));
        runtime.shutdown_timeout(LAST_ANSWERS);
        ended
    }
}

async fn serve(
    Ports { grpc, socket, http }: Ports,
    api: Api,
    published: &Published,
    mut configuration: Reload,
    captures: &Arc<Captures>,
    store: Option<&Arc<StoreWriter>>,
) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(|error| failed("catch signals", &error))?;
    // The socket's file is removed when this ends.
    let (unix, socket) = socket.unzip();
    let unix =
        unix.map(tokio::net::UnixListener::from_std).transpose().map_err(|error| failed("serve gRPC", &error))?;
    let grpc = grpc.map(tokio::net::TcpListener::from_std).transpose().map_err(|error| failed("serve gRPC", &error))?;
    let http = tokio::net::TcpListener::from_std(http).map_err(|error| failed("serve HTTP", &error))?;
    if let Some(path) = socket.as_ref().map(Socket::path) {
        tracing::info!(socket = %path.display(), "answering gRPC");
    }
    for (protocol, listener) in grpc.iter().map(|grpc| ("gRPC", grpc)).chain([("HTTP", &http)]) {
        let address = listener.local_addr().map_err(|error| failed("read the address of a listener", &error))?;
        tracing::info!(%address, "answering {protocol}");
    }

    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(published.clone().run());
    let signs_of_life = tokio::spawn(supervisor::keep(published.clone(), Arc::clone(captures)));
    let grpc_api = api.clone();
    let grpc_stopped = stopped.clone();
    tasks.spawn(async move { grpc_api.serve_grpc(Listening { tcp: grpc, unix }, grpc_stopped).await });
    let http_api = api.clone();
    let (mut end, stopped_too) = (stopped.clone(), stopped.clone());
    tasks.spawn(async move { http_api.serve_http(http, stopped).await });

    if let Some(store) = store.map(Arc::downgrade) {
        let (api, mut over) = (api.clone(), stopped_too.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = api.keep_totals(store) => {}
                ended = over.wait_for(|end| *end) => drop(ended),
            }
        });
    }

    let reload = Arc::new(Notify::new());
    let (files, configured) = (Arc::clone(&reload), Arc::new(Notify::new()));
    let hung_up = Arc::clone(&configured);
    let mut over = stopped_too;
    // A thread of its own: a disk that does not answer holds up nobody.
    tasks.spawn(async move {
        loop {
            tokio::select! {
                () = hung_up.notified() => {}
                ended = over.wait_for(|end| *end) => return drop(ended),
            }
            let read = tokio::task::spawn_blocking(move || {
                configuration.reload();
                configuration
            });
            match read.await {
                Ok(given_back) => configuration = given_back,
                // It panicked, which its line says: what is in force stays so, and the gateway goes on.
                Err(_) => return drop(over.wait_for(|end| *end).await),
            }
        }
    });
    tasks.spawn(async move {
        tokio::select! {
            () = api.keep_access(&files) => {}
            ended = end.wait_for(|end| *end) => drop(ended),
        }
    });

    let readers = [reload.as_ref(), configured.as_ref()];
    let ended = tokio::select! {
        signal = signals.wait(&readers) => {
            tracing::info!(signal, "stopping");
            Ok(())
        }
        () = captures.thread_ended.notified() => Err("a thread of the gateway has ended"),
        _ = tasks.join_next() => Err("a server has ended"),
    };
    supervisor::stopping();
    signs_of_life.abort();
    published.close();
    stop.send_replace(true);
    let answered = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS, answered).await.is_err() {
        tracing::warn!("aborting requests still being answered");
    }
    ended.map_err(|what| Failure::Environment(format!("{what}; see the log lines above")))
}

fn bind(key: &str, Listen(address): Listen) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| Failure::Environment(cannot_listen(key, address, &error)))
}

fn cannot_listen(key: &str, address: SocketAddr, error: &io::Error) -> String {
    let way_out = match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: stop it or choose another port",
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has that address: choose one that is here",
        io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one",
        _ => "choose another address",
    };
    format!("cannot listen on {address} ({key}): {error}; {way_out}")
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::Environment(format!("cannot {what}: {error}"))
}

/// The signals that stop the gateway in order, or have it look at its files.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the end. SIGHUP is none: it has the files read again that can change in force.
    async fn wait(&mut self, reload: &[&Notify]) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hang_up.recv() => {
                    tracing::info!("SIGHUP: reading the configuration, the prefix list, the files of [tls] and admin.passwords");
                    for reload in reload {
                        reload.notify_one();
                    }
                }
            }
        }
    }
}
