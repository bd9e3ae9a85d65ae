//! A client: connects from a given address, asks, reads the answer and times it.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage, sockopt};

use super::plan::Plan;
use super::server::bind;
use crate::ending::TooBusy;

/// An answer that makes no progress for this long has failed.
const STALL_MAX: Duration = Duration::from_secs(60);

/// A connection to the server. Make it inside the client's namespace; use it anywhere.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    handshake: Duration,
}

/// How one answer went, seen by the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// This end.
    pub local: SocketAddr,
    /// Time from the first SYN to the end of the handshake.
    pub handshake: Duration,
    /// Time from the request to the last byte of the answer.
    pub completion: Duration,
    /// Bytes of the answer.
    pub bytes: u64,
}

impl Client {
    /// Connects from `from` to `server`.
    pub fn connect(from: IpAddr, server: SocketAddr) -> Result<Self> {
        Self::connect_with(from, server, None)
    }

    /// The same with a fixed receive buffer in bytes, which bounds the window that this end offers.
    pub fn connect_with(from: IpAddr, server: SocketAddr, receive_buffer: Option<usize>) -> Result<Self> {
        let family = if server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        if let Some(bytes) = receive_buffer {
            // Before the handshake, which fixes the window scale.
            socket::setsockopt(&socket, sockopt::RcvBuf, &bytes).context("cannot set the receive buffer")?;
        }
        bind(&socket, SocketAddr::new(from, 0))?;
        let begin = Instant::now();
        socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(server))
            .with_context(|| format!("cannot connect from {from} to {server}"))?;
        let handshake = begin.elapsed();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(STALL_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, handshake })
    }

    /// Sends one request and reads all of its answer.
    pub fn ask(&mut self, plan: &Plan) -> Result<Transfer> {
        self.ask_watched(plan, |_, _| Ok(()))
    }

    /// The same while `watch` hears how long ago the request was and how many bytes of the answer have come; its error ends the wait.
    pub fn ask_watched(&mut self, plan: &Plan, mut watch: impl FnMut(Duration, u64) -> Result<()>) -> Result<Transfer> {
        let begin = Instant::now();
        self.stream.write_all(format!("{plan}\n").as_bytes())?;
        let mut buffer = vec![0; 256 * 1024];
        let mut bytes = 0_u64;
        while plan.bytes().is_none_or(|expected| bytes < expected) {
            let length = match self.stream.read(&mut buffer) {
                Ok(length) => length,
                // A read with a time limit is not resumed by the kernel after an interruption.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(TooBusy::new("the next byte of an answer", STALL_MAX).into());
                }
                Err(error) => return Err(error).context("the answer broke off"),
            };
            if length == 0 {
                break;
            }
            bytes += length as u64;
            watch(begin.elapsed(), bytes)?;
        }
        let completion = begin.elapsed();
        if let Some(expected) = plan.bytes() {
            ensure!(bytes == expected, "asked for {expected} bytes and got {bytes}");
        }
        Ok(Transfer { local: self.stream.local_addr()?, handshake: self.handshake, completion, bytes })
    }
}
