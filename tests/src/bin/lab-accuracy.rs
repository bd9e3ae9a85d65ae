//! Measures the path emulator: how late packets are at a set delay, and what rate comes out for a set one.
//!
//! Plain UDP from the server to a client, stamped by the sender just before it is sent and by the receiver's kernel.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use spand_tests::ending::{arguments, exit_code};
use spand_tests::lab::namespace::Namespace;
use spand_tests::lab::path::{Hop, LinkConfig, PathConfig, Queue, parse_rate};
use spand_tests::lab::topology::{NetworkPlan, Topology};

/// Delay each way in the delay measurements.
const DELAY: Duration = Duration::from_millis(50);
/// UDP payload, so that the IP packet has 1500 bytes.
const PAYLOAD_BYTES: usize = 1_472;
const PORT: u16 = 9_000;

#[derive(Debug, Parser)]
#[command(about = "Measures delay and rate of the lab's path emulator (needs root)")]
struct Arguments {
    /// Seconds per measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Labs that measure the same at the same time; the row is that of the worst
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    lanes: u8,
}

/// One packet's stamps, nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    sent_ns: u64,
    received_ns: u64,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    let arguments: Arguments = arguments();
    let time = Duration::from_secs(arguments.seconds);
    println!("One-way delay, {DELAY:?} set: lateness in microseconds\n");
    println!(
        "| packets/s | sent | lost | mean | p50 | p99 | p99.9 | max |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for per_second in [200, 1_000, 5_000] {
        let path = PathConfig { down: link(None), up: link(None), seed: 1 };
        let lanes = side_by_side(arguments.lanes, || measure(&path, per_second, time))?;
        let late =
            |(_, arrivals): &(u64, Vec<Arrival>)| late_us(arrivals, DELAY).iter().sum::<f64>() / arrivals.len() as f64;
        let worst = lanes.into_iter().max_by(|a, b| late(a).total_cmp(&late(b)));
        let (sent, arrivals) = worst.context("no lane measured")?;
        delay_row(&per_second.to_string(), sent, &arrivals, DELAY)?;
    }
    let (sent, arrivals) = without_path(1_000, time)?;
    delay_row("1000, no path", sent, &arrivals, Duration::ZERO)?;

    println!("\nRate, offered a third more\n\n| set | came out (Mbit/s) | off |\n| --- | --- | --- |");
    for text in ["1.6mbit", "10mbit", "50mbit", "100mbit", "200mbit"] {
        let rate = parse_rate(text)?;
        let path = PathConfig { down: link(Some(rate)), up: link(None), seed: 1 };
        let packets_per_second = rate.0 as f64 / 1_500.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some ten thousand")]
        let per_second = (packets_per_second * 4.0 / 3.0) as u64;
        let lanes = side_by_side(arguments.lanes, || came_out(&measure(&path, per_second, time)?.1))?;
        let off = |came_out: &f64| (came_out / rate.0 as f64 - 1.0).abs();
        let worst = lanes.into_iter().max_by(|a, b| off(a).total_cmp(&off(b)));
        let came_out = worst.context("no lane measured")?;
        println!("| {text} | {:.4} | {:+.2} % |", came_out * 8.0 / 1e6, (came_out / rate.0 as f64 - 1.0) * 100.0);
    }
    Ok(())
}

/// Does the same in several labs at once.
fn side_by_side<T: Send>(lanes: u8, work: impl Fn() -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..lanes).map(|_| scope.spawn(&work)).collect();
        workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a lane panicked"))?).collect()
    })
}

/// Bytes per second between the first and the last arrival.
fn came_out(arrivals: &[Arrival]) -> Result<f64> {
    let (first, last) = arrivals.first().zip(arrivals.last()).context("nothing arrived")?;
    let seconds = (last.received_ns - first.received_ns) as f64 / 1e9;
    Ok((arrivals.len() - 1) as f64 * 1_500.0 / seconds)
}

fn link(rate: Option<spand_proto::units::BytesPerSecond>) -> LinkConfig {
    // Long enough that a sender which the machine kept waiting does not leave the bottleneck idle.
    LinkConfig::new(Hop::new(rate, Queue::Packets(1_000), DELAY))
}

fn measure(path: &PathConfig, per_second: u64, time: Duration) -> Result<(u64, Vec<Arrival>)> {
    let plan = NetworkPlan { prefix: "198.51.100.0/24".parse()?, clients: 1, path: *path };
    let lab = Topology::build(&[plan])?;
    let network = lab.networks.first().context("the lab has no network")?;
    let to = *network.addresses.first().context("a network without a client")?;
    if !lab.emulator.is_real_time() {
        println!("(without SCHED_FIFO)");
    }
    send_and_receive(&lab.server, &network.namespace, to, per_second, time)
}

/// The same over the server's veth alone: what the measurement itself costs.
fn without_path(per_second: u64, time: Duration) -> Result<(u64, Vec<Arrival>)> {
    let lab = Topology::build(&[])?;
    send_and_receive(&lab.server, &lab.edge, IpAddr::from([192, 0, 2, 1]), per_second, time)
}

fn send_and_receive(
    from: &Namespace,
    at: &Namespace,
    to: IpAddr,
    per_second: u64,
    time: Duration,
) -> Result<(u64, Vec<Arrival>)> {
    let target = SocketAddr::new(to, PORT);
    let receiver = at.enter(|| UdpSocket::bind(target).context("cannot bind the receiver"))?;
    setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
    setsockopt(&receiver, sockopt::RcvBuf, &(8 << 20))?;
    receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
    let sender = from.enter(|| UdpSocket::bind(("0.0.0.0", 0)).context("cannot bind the sender"))?;
    let arriving = thread::spawn(move || receive(&receiver));
    // The first packet of a route is slower than all others.
    thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    let mut payload = [0_u8; PAYLOAD_BYTES];
    let mut sent = 0;
    while begin.elapsed() < time {
        let due = begin + Duration::from_secs_f64(sent as f64 / per_second as f64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        for (to, from) in payload.iter_mut().zip(now_ns()?.to_be_bytes()) {
            *to = from;
        }
        sender.send_to(&payload, target)?;
        sent += 1;
    }
    Ok((sent, arriving.join().map_err(|_| anyhow!("the receiver panicked"))??))
}

/// Receives until nothing comes for the socket's time-out.
fn receive(socket: &UdpSocket) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    let mut buffer = [0_u8; 2_048];
    let mut space = nix::cmsg_space!(TimeSpec);
    loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let message =
            match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()) {
                Ok(message) => message,
                Err(Errno::EAGAIN) if arrivals.is_empty() => continue,
                Err(Errno::EAGAIN) => return Ok(arrivals),
                Err(error) => return Err(error).context("cannot receive"),
            };
        let received_ns = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(nanoseconds(time)),
            _ => None,
        });
        let received_ns = received_ns.context("the kernel gave no time stamp")?;
        let stamp = buffer.first_chunk::<8>().copied().context("a short packet")?;
        arrivals.push(Arrival { sent_ns: u64::from_be_bytes(stamp), received_ns });
    }
}

fn late_us(arrivals: &[Arrival], set: Duration) -> Vec<f64> {
    // Whole nanoseconds since 1970 do not fit a float.
    let way_us = |a: &Arrival| (a.received_ns.cast_signed() - a.sent_ns.cast_signed()) as f64 / 1e3;
    arrivals.iter().map(|arrival| way_us(arrival) - set.as_secs_f64() * 1e6).collect()
}

fn delay_row(name: &str, sent: u64, arrivals: &[Arrival], set: Duration) -> Result<()> {
    let mut late_us = late_us(arrivals, set);
    ensure!(!late_us.is_empty(), "nothing arrived");
    late_us.sort_by(f64::total_cmp);
    let mean = late_us.iter().sum::<f64>() / late_us.len() as f64;
    let at = |per_mille: usize| late_us.get((late_us.len() - 1) * per_mille / 1_000).copied().unwrap_or(f64::NAN);
    let lost = sent - arrivals.len() as u64;
    println!(
        "| {name} | {sent} | {lost} | {mean:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
        at(500),
        at(990),
        at(999),
        at(1_000)
    );
    Ok(())
}

fn now_ns() -> Result<u64> {
    Ok(nanoseconds(clock_gettime(ClockId::CLOCK_REALTIME)?))
}

fn nanoseconds(time: TimeSpec) -> u64 {
    u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}
