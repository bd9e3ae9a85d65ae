//! The server: answers requests on IPv4 and IPv6, every sending socket watched.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, sockopt};

use super::plan::{LINE_MAX_BYTES, Plan, Step};
use crate::lab::namespace::Namespace;
use crate::lab::truth::{FlowId, Poller};

/// Connections served at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 512;
/// Milliseconds after which a server without new connections looks whether it is to stop.
const LOOKS_FOR_THE_END: u8 = 10;
/// A peer that takes nothing for this long is closed.
const STALL_MAX: Duration = Duration::from_secs(60);

/// How a server's connections are set up.
#[derive(Clone, Debug, Default)]
pub struct Conduct {
    /// Congestion control of its connections from the first segment on; `None`: the host's own, and nothing is chosen, so
    /// that the host's policy may choose.
    pub congestion_control: Option<String>,
    /// Whether it states each transfer's size to the host's agent before the first byte.
    pub states_sizes: bool,
    /// Who looks at its sockets.
    pub poller: Option<Arc<Poller>>,
    /// Highest pacing rate of its connections in bytes per second. Where there is one the kernel paces every congestion control,
    /// as behind a qdisc `fq`; far above the path's rate it limits nothing.
    pub pace_most: Option<u64>,
    /// Leaves Nagle's algorithm on: a small segment waits until the one before it is acknowledged.
    pub nagle: bool,
}

/// The running server; it stops accepting when this is dropped.
#[derive(Debug)]
pub struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Server {
    /// Listens on `port` of every address in `namespace`, both families; `poller` watches each accepted socket.
    ///
    /// Connections begin under `congestion_control`, whatever the machine's default: a namespace's own default can only
    /// be one that the whole machine allows to everyone. Where nothing may be chosen for a socket, so that an agent may,
    /// [`Namespace::default_congestion_control`] and [`Self::start_with`] do it the other way.
    pub fn start(namespace: &Namespace, port: u16, congestion_control: &str, poller: &Arc<Poller>) -> Result<Self> {
        let congestion_control = Some(congestion_control.to_owned());
        let conduct = Conduct { congestion_control, poller: Some(Arc::clone(poller)), ..Conduct::default() };
        Self::start_with(namespace, port, &conduct)
    }

    /// The same with a conduct of one's own.
    pub fn start_with(namespace: &Namespace, port: u16, conduct: &Conduct) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let open = Arc::new(AtomicUsize::new(0));
        let mut threads = Vec::new();
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let listener = namespace.enter(|| listen(SocketAddr::new(any, port), conduct))?;
            let (stop, open, conduct) = (Arc::clone(&stop), Arc::clone(&open), conduct.clone());
            threads.push(
                thread::Builder::new()
                    .name("server".to_owned())
                    .spawn(move || accept_all(&listener, &stop, &open, &conduct))?,
            );
        }
        Ok(Self { stop, threads })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Ok(Err(error)) = thread.join() {
                eprintln!("the lab's server stopped early: {error:#}");
            }
        }
    }
}

fn listen(address: SocketAddr, conduct: &Conduct) -> Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    socket::setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        socket::setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    if let Some(name) = &conduct.congestion_control {
        set_congestion_control(&socket, name)?;
    }
    bind(&socket, address)?;
    socket::listen(&socket, Backlog::new(512)?).with_context(|| format!("cannot listen on {address}"))?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Tells the host's agent how long the next transfer is. Without an agent the kernel knows no such option, and everything
/// goes on as if nothing had been announced.
pub fn state_size(socket: &impl AsFd, bytes: u64) {
    const LEVEL: libc::c_int = 0x5350;
    const SIZE: libc::c_int = 1;
    use std::os::fd::AsRawFd as _;
    const LENGTH: libc::socklen_t = 8;
    // SAFETY: the kernel, or the agent's program in it, reads the eight bytes of a u64 that lives until the call returns.
    unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), LEVEL, SIZE, (&raw const bytes).cast(), LENGTH);
    }
}

fn set_congestion_control(socket: &impl AsFd, name: &str) -> Result<()> {
    socket::setsockopt(socket, sockopt::TcpCongestion, &std::ffi::OsString::from(name))
        .with_context(|| format!("this kernel has no congestion control {name}"))
}

fn set_pace_most(socket: &impl AsFd, bytes_per_second: u64) -> Result<()> {
    use std::os::fd::AsRawFd as _;
    const LENGTH: libc::socklen_t = 8;
    // SAFETY: the kernel reads the eight bytes of a u64 that lives until the call returns.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            LENGTH,
        )
    };
    Errno::result(answer).context("cannot set a highest pacing rate")?;
    Ok(())
}

/// Binds a socket; shared with the client, which chooses its own address.
pub(super) fn bind(socket: &OwnedFd, address: SocketAddr) -> Result<()> {
    use std::os::fd::AsRawFd as _;
    socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(address)).with_context(|| format!("cannot bind {address}"))
}

fn accept_all(listener: &TcpListener, stop: &AtomicBool, open: &Arc<AtomicUsize>, conduct: &Conduct) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let (stream, remote) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Not at intervals: what a connection waited for the next would be part of its times.
                poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], LOOKS_FOR_THE_END)
                    .or_else(|error| if error == Errno::EINTR { Ok(0) } else { Err(error) })?;
                continue;
            }
            Err(error) => return Err(error).context("cannot accept"),
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            eprintln!("the lab's server has {CONNECTIONS_MAX} connections and closes that of {remote}");
            continue;
        }
        let (open, conduct) = (Arc::clone(open), conduct.clone());
        thread::Builder::new().name("sender".to_owned()).spawn(move || {
            if let Err(error) = serve(&stream, remote, &conduct) {
                eprintln!("serving {remote} failed: {error:#}");
            }
            open.fetch_sub(1, Ordering::Relaxed);
        })?;
    }
    Ok(())
}

fn serve(stream: &TcpStream, remote: SocketAddr, conduct: &Conduct) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(!conduct.nagle)?;
    if let Some(bytes_per_second) = conduct.pace_most {
        set_pace_most(&stream, bytes_per_second)?;
    }
    stream.set_read_timeout(Some(STALL_MAX))?;
    stream.set_write_timeout(Some(STALL_MAX))?;
    let flow = FlowId { local: stream.local_addr()?, remote };
    let _watch = conduct.poller.as_ref().map(|poller| poller.watch(stream.as_fd(), flow)).transpose()?;
    let mut requests = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    loop {
        line.clear();
        match requests.by_ref().take(LINE_MAX_BYTES).read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => answer(stream, &line.parse()?, conduct)?,
            // A client that aborts resets; that is its affair.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error).context("no request came"),
        }
    }
}

fn answer(mut stream: &TcpStream, plan: &Plan, conduct: &Conduct) -> Result<()> {
    // Only where it differs: setting it starts the control's memory afresh.
    if plan.congestion_control != Plan::AS_THE_HOST
        && socket::getsockopt(&stream, sockopt::TcpCongestion)? != *plan.congestion_control
    {
        set_congestion_control(&stream, &plan.congestion_control)?;
    }
    let chunk_bytes = usize::try_from(plan.write_bytes)?;
    let chunk = vec![b'x'; chunk_bytes];
    for step in &plan.steps {
        match *step {
            Step::Send(bytes) => {
                if conduct.states_sizes {
                    state_size(stream, bytes);
                }
                let mut left = bytes;
                while left > 0 {
                    let length = usize::try_from(left).unwrap_or(chunk_bytes).min(chunk_bytes);
                    let Some(part) = chunk.get(..length) else { bail!("a chunk is {chunk_bytes} bytes") };
                    stream.write_all(part)?;
                    left -= length as u64;
                }
            }
            Step::Pause(time) => thread::sleep(time),
            Step::Stream(time) => {
                let end = Instant::now() + time;
                while Instant::now() < end {
                    stream.write_all(&chunk)?;
                }
            }
        }
    }
    if plan.bytes().is_none() {
        // Only the end of the stream tells the client that a timed answer is complete.
        stream.shutdown(std::net::Shutdown::Write)?;
    }
    Ok(())
}
