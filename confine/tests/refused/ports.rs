//! TCP ports: Landlock, and the filter of system calls where Landlock does not look.

use std::io::IoSlice;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrIn, connect, listen, sendmsg, sendto, socket,
};
use spand_confine::Plan;

use super::files::done;
use super::stage::Stage;
use super::{Attempt, Group, every_capability};

pub(crate) const GROUP: Group = Group { name: "ports", plan, attempts: ATTEMPTS };

fn plan(stage: &Stage) -> Plan {
    Plan { keep: every_capability(), connect: vec![stage.port], ..Plan::default() }
}

/// By Landlock.
const NO: Option<Errno> = Some(Errno::EACCES);
/// By the filter of system calls, since Landlock does not look there.
const FILTERED: Option<Errno> = Some(Errno::EPERM);

const ATTEMPTS: &[Attempt] = &[
    Attempt { name: "connect", refused: None, work: |stage, _| tcp(stage.port) },
    Attempt { name: "connect elsewhere", refused: NO, work: |stage, _| tcp(stage.other) },
    Attempt {
        name: "connect elsewhere by IPv6",
        refused: NO,
        work: |stage, _| done(TcpStream::connect((Ipv6Addr::LOCALHOST, stage.other))).map(drop),
    },
    Attempt {
        name: "connect elsewhere with the first data",
        refused: FILTERED,
        work: |stage, _| by_sendto(stage.other),
    },
    Attempt {
        name: "connect elsewhere with the first parts",
        refused: FILTERED,
        work: |stage, _| by_sendmsg(stage.other),
    },
    Attempt {
        name: "connect elsewhere by several paths",
        refused: FILTERED,
        work: |stage, _| {
            let socket = socket_of(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)?;
            connect(socket.as_raw_fd(), &address(stage.other))
        },
    },
    Attempt {
        name: "a socket of the kernel's ciphers",
        refused: FILTERED,
        work: |_, _| socket_of(libc::AF_ALG, libc::SOCK_SEQPACKET, 0).map(drop),
    },
    Attempt {
        name: "take a port",
        refused: NO,
        work: |_, _| done(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).map(drop),
    },
    Attempt { name: "listen without having taken a port", refused: FILTERED, work: |_, _| listen_anywhere() },
    // Landlock has no rule for datagrams.
    Attempt {
        name: "datagrams",
        refused: None,
        work: |stage, _| {
            let socket = done(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))?;
            done(socket.send_to(b"x", (Ipv4Addr::LOCALHOST, stage.other))).map(drop)
        },
    },
];

/// As the agent does, which makes its control socket after everything else.
pub(crate) const LISTENING: Group = Group {
    name: "listening",
    plan: |stage| Plan { listens: true, write: vec![stage.path("write")], ..plan(stage) },
    attempts: &[
        Attempt {
            name: "make a socket in a folder",
            refused: None,
            work: |stage, sandbox| {
                done(UnixListener::bind(stage.path("write/socket")))?;
                sandbox.listen_no_more();
                Ok(())
            },
        },
        Attempt {
            name: "make another socket in a folder",
            refused: FILTERED,
            work: |stage, _| done(UnixListener::bind(stage.path("write/another"))).map(drop),
        },
        Attempt { name: "listen without having taken a port", refused: FILTERED, work: |_, _| listen_anywhere() },
    ],
};

fn tcp(port: u16) -> nix::Result<()> {
    done(TcpStream::connect((Ipv4Addr::LOCALHOST, port))).map(drop)
}

fn listen_anywhere() -> nix::Result<()> {
    listen(&tcp_socket()?, Backlog::MAXCONN)
}

fn tcp_socket() -> nix::Result<OwnedFd> {
    socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None)
}

fn socket_of(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> nix::Result<OwnedFd> {
    // SAFETY: makes a socket, whose owner is the one below.
    let socket = Errno::result(unsafe { libc::socket(family, kind, protocol) })?;
    // SAFETY: nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Connections that the first data open (tcp(7), `MSG_FASTOPEN`).
const FAST_OPEN: MsgFlags = MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);

fn by_sendto(port: u16) -> nix::Result<()> {
    sendto(tcp_socket()?.as_raw_fd(), b"x", &address(port), FAST_OPEN).map(drop)
}

fn by_sendmsg(port: u16) -> nix::Result<()> {
    let parts = [IoSlice::new(b"x")];
    sendmsg(tcp_socket()?.as_raw_fd(), &parts, &[], FAST_OPEN, Some(&address(port))).map(drop)
}

fn address(port: u16) -> SockaddrIn {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into()
}
