//! The apply method `bpf` against the real kernel: the real program, a gateway that sends what the test sets, and connections over
//! a loopback device with Ethernet's MTU. Each test has networks and names of its own, since names of congestion controls and the
//! cgroup are the whole machine's.

mod bbr;
mod families;
mod flights;
mod lifetime;
mod losses;
mod namespaces;
mod pause;
mod refusals;
mod starts;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use spand_proto::push::{EstimateUpdate, ServiceSize, UpdateEvent};
use spand_proto::report::{Arm, ConnectionReport, FirstFlightLoss};
use spand_proto::units::{Bytes, Micros, Segments};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::support::agent::{Agent, assert_has, text};
use crate::support::gateway::{Gateway, Stream, advised, estimate};
use crate::support::namespace::{PATIENCE, eventually, in_namespace, in_served_namespace, ip, try_ip};

/// Ethernet's 1500 bytes less headers and timestamps.
const SEGMENT: usize = 1_448;

/// Each agent's programs run for every socket of the machine and ignore sockets of other namespaces, so tests share this lock. A test that
/// counts sockets of other namespaces, or lists all programs in the kernel, takes it exclusively.
static MACHINE: RwLock<()> = RwLock::const_new(());

/// Careful mode with bounds that a loopback's round trip passes against an estimate of seconds.
const ANY_RTT: &str = "\n[policy]\nrtt_ratio_min = 0.0000001";

/// A test's hold of [`MACHINE`].
enum Held {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

/// Runs a test with a host of its own in a namespace of its own: see [`Host::new`].
fn on_host(number: u8, mode: &str, base: &str, bpf: &str, test: impl AsyncFnOnce(Host) + Send) {
    in_namespace(|| async { test(Host::new(number, mode, base, bpf).await).await });
}

/// The same in mode `paper` on CUBIC, with nothing else configured.
fn on_paper(number: u8, test: impl AsyncFnOnce(Host) + Send) {
    on_host(number, "paper", "cubic", "", test);
}

/// A host with a peer in another network, both on this loopback device.
struct Host {
    gateway: Gateway,
    agent: Agent,
    stream: Stream,
    /// The peer's network.
    network: String,
    server: SocketAddr,
    client: IpAddr,
    // Dropped last.
    _held: Held,
}

impl Host {
    /// An agent that has advice of 40 segments for the peer's network. `number` makes names and networks unique.
    async fn new(number: u8, mode: &str, base: &str, bpf: &str) -> Self {
        // A path without a delay holds more than its share: the check by the first acknowledgements would open every start.
        Self::with(number, mode, base, &format!("control_fraction = 0.0\ncheck = false\n{bpf}")).await
    }

    /// The same, with the whole section `[bpf]` but the name.
    async fn with(number: u8, mode: &str, base: &str, bpf: &str) -> Self {
        Self::held(Held::Shared { _guard: MACHINE.read().await }, number, mode, base, bpf).await
    }

    /// The same while no other agent's programs are in the kernel.
    async fn alone(number: u8, mode: &str, base: &str, bpf: &str) -> Self {
        Self::held(Held::Alone { _guard: MACHINE.write().await }, number, mode, base, bpf).await
    }

    async fn held(held: Held, number: u8, mode: &str, base: &str, bpf: &str) -> Self {
        // One segment a packet, so that single ones can be lost.
        ip("link set lo mtu 1500 gso_max_segs 1");
        let (server, client) = (format!("10.83.{number}.1"), format!("10.84.{number}.1"));
        add_addresses(&[&server, &client], base);
        let top = format!("mode = \"{mode}\"\napply = \"bpf\"");
        let sections = format!("[bpf]\nname = \"t{number}\"\n{bpf}");
        let network = format!("10.84.{number}.0/24");
        let (gateway, agent, stream) = advised(&top, &sections, &[estimate(&network, 40, 60)]).await;
        eventually("the network is known", || agent.counts("networks_added") == 1).await;
        let server = SocketAddr::new(server.parse().unwrap(), 8_000);
        Self { _held: held, gateway, agent, stream, network, server, client: client.parse().unwrap() }
    }

    /// The agent starts once more, with advice of N segments.
    async fn run_again(&mut self, share: u32) {
        self.agent.run();
        self.stream = self.gateway.snapshot(&[estimate(&self.network, share, 60)]).await;
    }

    /// A connection that the peer opens: the server's end and the peer's.
    fn accepted(&self) -> (TcpStream, TcpStream) {
        self.connection(&listen(self.server))
    }

    fn connection(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = bound(self.client);
        let client = connect(client, self.server);
        (listener.accept().unwrap().0, client)
    }

    /// Sends advice of `share` segments for the peer's network, after `change` has altered it.
    async fn changed(&mut self, share: u32, change: impl FnOnce(&mut EstimateUpdate)) {
        let before = self.counts("networks_changed");
        let mut update = estimate(&self.network, share, 60);
        change(&mut update);
        self.stream.send(UpdateEvent::Estimate(update)).await;
        eventually("the advice is known", || self.counts("networks_changed") > before).await;
    }

    /// A share of 100 segments, a mean round trip and a lease.
    async fn lease(&mut self, lease: u32, rtt_mean: Micros) {
        self.changed(100, |update| {
            update.lease = Some(Segments(lease));
            update.estimate.rtt_mean = Some(rtt_mean);
        })
        .await;
    }

    /// The next connections come from one more address.
    fn move_to(&mut self, client: &str) {
        add_addresses(&[client], "cubic");
        self.client = client.parse().unwrap();
    }

    /// Opens a connection whose server sends N segments, none of which arrives. Returns its ends, and the words of `ss` about it.
    fn unanswered(&self, segments: usize) -> (TcpStream, TcpStream, Vec<String>) {
        let (mut server, client) = self.accepted();
        send_into_the_void(&mut server, &client, segments);
        let words = ss_words(&server);
        (server, client, words)
    }

    /// The next connections are of IPv6, from the first of these.
    fn add_ipv6(&mut self, server: &str, clients: &[&str]) {
        add_addresses(&[server], "cubic");
        clients.iter().rev().for_each(|client| self.move_to(client));
        self.server.set_ip(server.parse().unwrap());
    }

    /// What `ss` shows of a connection of its own of which the server has sent N segments.
    fn sent(&self, segments: usize) -> Vec<String> {
        let (mut server, mut client) = self.accepted();
        transfer(&mut server, &mut client, segments * SEGMENT);
        ss_words(&server)
    }

    /// The threshold of a start that the present client gets. What it sends does not depend on the start.
    fn threshold(&self) -> Option<u64> {
        self.start().1
    }

    /// Its window and threshold.
    fn start(&self) -> (Option<u64>, Option<u64>) {
        let words = self.sent(3);
        (number(&words, "cwnd"), number(&words, "ssthresh"))
    }

    /// What transfers of the present client are granted that lose most of their first flights, one after another.
    async fn granted_to_losers(&mut self, transfers: usize) -> Vec<u32> {
        let mut granted = Vec::new();
        for _ in 0..transfers {
            let (server, mut client) = self.accepted();
            granted.push(self.loses(&server, &mut client).await.advised.unwrap().0);
        }
        granted
    }

    /// Of the lease of the present client's network, this is taken.
    #[track_caller]
    fn assert_leased(&self, taken: u32, lease: u32) {
        assert_has(&under_way(self), &[&format!("{taken} of the lease of {lease}")]);
    }

    /// Replaces the advice by these shares, for which a start of just as much follows.
    async fn advise(&mut self, shares: &[(&str, u32)]) {
        for (network, share) in shares {
            self.stream.advise(network, *share, 60).await;
        }
        // Counters will not do: a lifetime that is written again counts as a change, too.
        let known = |status: &serde_json::Value, (network, share): &(&str, u32)| {
            let all = status["in_force"].as_array();
            all.is_some_and(|all| all.iter().any(|one| one["prefix"] == *network && one["cwnd_segments"] == *share))
        };
        let agent = &self.agent;
        eventually("the advice is in force", || {
            let status = agent.status();
            shares.iter().all(|share| known(&status, share))
        })
        .await;
    }

    /// The report of a first flight to `client` that was lost for the most part, while the connection goes on.
    async fn reported_at_once(&mut self, client: &TcpStream) -> ConnectionReport {
        let client = client.local_addr().unwrap();
        loop {
            let report = self.gateway.reported().await;
            let open = |one: &&ConnectionReport| {
                let lost = one.first_flight.is_some_and(FirstFlightLoss::is_most);
                one.remote == client && one.duration.is_none() && one.first_flight_loss == Some(true) && lost
            };
            if let Some(connection) = report.connections.iter().find(open) {
                return *connection;
            }
        }
    }

    /// A transfer of 60 segments of whose first flight three quarters are lost, and the report of that.
    async fn loses(&mut self, server: &TcpStream, client: &mut TcpStream) -> ConnectionReport {
        lose_pages(client, &[1, 2, 3]);
        let writer = write_60_segments(server);
        let report = self.reported_at_once(client).await;
        read_60_segments(client, writer);
        report
    }

    /// The same of whose first flight a quarter is lost, until a timeout strikes.
    async fn loses_some(&self, server: &TcpStream, client: &mut TcpStream) {
        let before = self.counts("first_flight_loss");
        lose_pages(client, &[1]);
        let writer = write_60_segments(server);
        eventually("a loss", || self.counts("first_flight_loss") > before).await;
        eventually("a timeout", || ss_words(server).iter().any(|word| word.starts_with("backoff:"))).await;
        read_60_segments(client, writer);
    }

    /// The next connections that the agent reports. It does so every ten seconds: a test waits for all at once.
    async fn reported(&mut self, count: usize) -> Vec<ConnectionReport> {
        let mut reports = Vec::new();
        while reports.len() < count {
            reports.extend(self.gateway.reported().await.connections);
        }
        reports
    }

    /// Changes the agent's configuration while it runs.
    async fn reload(&self, what: &str, with: &str) {
        let before = text(&self.agent.config());
        assert!(before.contains(what), "{before}");
        let after = before.replace(what, with);
        std::fs::write(self.agent.config(), &after).unwrap();
        self.agent.reload(&after).await;
    }

    fn counts(&self, name: &str) -> u64 {
        self.agent.counts(name)
    }
}

/// Adds addresses to the loopback device where they are missing, with a congestion control where one is given.
fn add_addresses(addresses: &[&str], base: &str) {
    for address in addresses.iter().filter(|address| !ip("addr show dev lo").contains(&format!(" {address}/"))) {
        let is_ipv6 = address.contains(':');
        ip(&format!("addr add {address}/{}", if is_ipv6 { "128 dev lo nodad" } else { "32 dev lo" }));
        // The kernel adds its own IPv6 route a moment after the address.
        while is_ipv6 && try_ip(&format!("-6 route del local {address} dev lo table local")).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A namespace may only have a default that the whole machine allows everyone; a route may name any.
        if !base.is_empty() {
            let family = if is_ipv6 { "-6" } else { "-4" };
            ip(&format!("{family} route replace local {address} dev lo table local congctl {base}"));
        }
    }
}

/// Listens, and tries again while the address is in use: a child that another test forks holds a copy of a closed listener until it
/// executes its program.
fn listen(at: SocketAddr) -> TcpListener {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(at) {
            Ok(listener) => return listener,
            Err(error) => assert!(error.kind() == ErrorKind::AddrInUse && Instant::now() < until, "{at}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends `bytes` and waits until the other end has read them, and this one has heard so.
fn transfer(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    let data = vec![7; bytes];
    let mut read = vec![0; bytes];
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&data).unwrap());
        to.read_exact(&mut read).unwrap();
    });
    let until = Instant::now() + PATIENCE;
    while ss_words(from)[2] != "0" {
        assert!(Instant::now() < until, "not acknowledged: {:?}", ss_words(from));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn write_60_segments(server: &TcpStream) -> JoinHandle<std::io::Result<()>> {
    let mut from = server.try_clone().unwrap();
    std::thread::spawn(move || from.write_all(&vec![7; 60 * SEGMENT]))
}

/// Nothing is lost any more, and all of it arrives.
fn read_60_segments(client: &mut TcpStream, writer: JoinHandle<std::io::Result<()>>) {
    socket2::SockRef::from(&*client).detach_filter().unwrap();
    client.read_exact(&mut vec![0; 60 * SEGMENT]).unwrap();
    writer.join().unwrap().unwrap();
}

/// Has the reading end lose what this program of classic BPF returns 0 for, where its kernel would take it: what a queue of this host
/// drops, TCP takes for not sent.
fn lose(reader: &impl AsFd, program: &[(u32, u8, u8, u32)]) {
    let instruction =
        |&(code, jt, jf, k): &(u32, _, _, _)| socket2::SockFilter::new(u16::try_from(code).unwrap(), jt, jf, k);
    let filter: Vec<_> = program.iter().map(instruction).collect();
    socket2::SockRef::from(reader).attach_filter(&filter).unwrap();
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// What begins in these of every four pages of sequence numbers, 4 KiB each, is lost each time that it is sent.
fn lose_pages(reader: &TcpStream, pages: &[u32]) {
    // A TCP socket's filter sees the TCP header first.
    let mut program = vec![(LOAD, 0, 0, 4), (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 3 * 4_096)];
    for page in pages {
        program.extend([(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, page * 4_096), (RETURN, 0, 0, 0)]);
    }
    program.push((RETURN, 0, 0, u32::MAX));
    lose(reader, &program);
}

/// All that comes in from here on is lost.
fn lose_all(reader: &impl AsFd) {
    lose(reader, &[(RETURN, 0, 0, 0)]);
}

/// Sends N segments of which nothing arrives, and nothing waits for room.
fn send_into_the_void(server: &mut TcpStream, client: &TcpStream, segments: usize) {
    socket2::SockRef::from(&*server).set_send_buffer_size(1 << 20).unwrap();
    lose_all(client);
    server.write_all(&vec![7; segments * SEGMENT]).unwrap();
}

/// A connection that is reset: nothing of it was acknowledged.
fn reset(server: TcpStream) {
    socket2::SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
}

/// The agent's text about the peer's budget.
fn under_way(host: &Host) -> String {
    host.agent.json(&["explain", "--json", &host.client.to_string()]).to_string()
}

/// The words of `ss`'s line for the server's end.
fn ss_words(socket: &TcpStream) -> Vec<String> {
    let (local, peer) = (socket.local_addr().unwrap(), socket.peer_addr().unwrap());
    ss(&["src", &local.to_string(), "dst", &peer.to_string()])
}

fn ss(filter: &[&str]) -> Vec<String> {
    let output = Command::new("ss").arg("-tinH").args(filter).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// A number that `ss` gives after `name:`.
fn number(words: &[String], name: &str) -> Option<u64> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
}

fn bound(address: IpAddr) -> socket2::Socket {
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(SocketAddr::new(address, 0)), socket2::Type::STREAM, None);
    let socket = socket.unwrap();
    socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
    socket
}

fn connect(socket: socket2::Socket, to: SocketAddr) -> TcpStream {
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// States the size of the next transfer; the error number where that is refused.
fn state_size(socket: &impl AsRawFd, bytes: u64) -> Result<(), i32> {
    option(socket, 1, &bytes.to_ne_bytes())
}

const SO_MAX_PACING_RATE: i32 = 47;

/// Limits what a socket sends, in bytes per second.
fn limit_rate(socket: &impl AsRawFd, rate: u32) {
    assert_eq!(set_option(socket, libc::SOL_SOCKET, SO_MAX_PACING_RATE, &rate.to_ne_bytes()), Ok(()));
}

/// That limit.
fn rate_limit(socket: &impl AsRawFd) -> u32 {
    u32::from_ne_bytes(get_option(socket, libc::SOL_SOCKET, SO_MAX_PACING_RATE))
}

/// `tcpi_snd_cwnd` of what `getsockopt(TCP_INFO)` gives.
fn snd_cwnd(socket: &TcpStream) -> u32 {
    let info: [u8; 84] = get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO);
    u32::from_ne_bytes(*info.last_chunk().unwrap())
}

fn get_option<const N: usize>(socket: &impl AsRawFd, level: i32, name: i32) -> [u8; N] {
    let (mut value, mut length) = ([0; N], libc::socklen_t::try_from(N).unwrap());
    let (at, room) = ((&raw mut value).cast(), &raw mut length);
    // SAFETY: value and length live as long as the call, and the length is that of the value.
    assert_eq!(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at, room) }, 0);
    value
}

/// Sets an option of ours.
fn option(socket: &impl AsRawFd, name: i32, value: &[u8]) -> Result<(), i32> {
    set_option(socket, 0x5350, name, value)
}

fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: &[u8]) -> Result<(), i32> {
    let length = libc::socklen_t::try_from(value.len()).unwrap();
    // SAFETY: the value lives as long as the call and its length is correct.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}
