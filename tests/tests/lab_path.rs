//! The emulated path over namespaces: do real packets meet the fate that the arithmetic decided? And the tap: does it
//! stand where it was put, and see what offloads make of a stream?
//!
//! Needs root. Without it the tests say so, and count themselves as skipped on standard error.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use spand_needs::{Need, needs};
use spand_proto::units::BytesPerSecond;
use spand_tests::lab::link::Offloads;
use spand_tests::lab::path::{Burst, Episodes, Hop, Impairments, LinkConfig, PathConfig, Queue, Reorder};
use spand_tests::lab::tap::Tap;
use spand_tests::lab::topology::{Access, MIRROR_DEVICE, NetworkPlan, Topology};
use spand_tests::lab::traffic::{Client, Plan, Server};
use spand_tests::lab::truth::{Poller, Record};
use spand_tests::lab::wire;

const PACKETS: u32 = 6_000;
const PAYLOAD_BYTES: usize = 500;
const PORT: u16 = 9_100;
/// ECT(0) and CE (RFC 3168).
const ECT: u8 = 0b10;
const CE: u8 = 0b11;

/// Everything at once: what arrives is what the counters say, packet by packet.
fn impaired() -> PathConfig {
    let impairments = Impairments {
        loss: 0.01,
        burst: Some(Burst { begin: 0.002, end: 0.3, loss: 1.0 }),
        outage: Some(Episodes {
            first: Duration::from_millis(700),
            every: Duration::from_secs(60),
            lasting: Duration::from_millis(40),
        }),
        jitter: Duration::from_millis(1),
        reorder: Some(Reorder { chance: 0.02, by: Duration::from_millis(8) }),
        duplicate: 0.01,
        ..Impairments::default()
    };
    let delay = Duration::from_millis(5);
    // A third less than is offered, so that the queue fills, marks and drops.
    let narrow = Hop { mark_above: Some(10), ..Hop::new(Some(BytesPerSecond(1_056_000)), Queue::Packets(40), delay) };
    let wide = Hop::new(Some(BytesPerSecond(5_000_000)), Queue::Bytes(50_000), delay);
    let down = LinkConfig { impairments, ..LinkConfig::new(wide).then([narrow]) };
    PathConfig { down, up: LinkConfig::new(Hop::new(None, Queue::Packets(1), delay)), seed: 5 }
}

#[test]
fn packets_meet_the_fate_that_was_decided() -> Result<()> {
    if !needs(Need::Root) {
        return Ok(());
    }
    for prefix in ["198.51.100.0/24", "2001:db8:1::/48"] {
        let plan = NetworkPlan { prefix: prefix.parse()?, clients: 1, path: impaired() };
        let lab = Topology::build(&[plan])?;
        let network = lab.networks.first().context("the lab has no network")?;
        let target = SocketAddr::new(*network.addresses.first().context("a network without a client")?, PORT);
        let receiver = network.namespace.enter(|| UdpSocket::bind(target).context("cannot bind"))?;
        receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
        setsockopt(&receiver, sockopt::RcvBuf, &(8 << 20))?;
        setsockopt_tos_wanted(&receiver, target.is_ipv4())?;
        let any: &str = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let sender = lab.server.enter(|| UdpSocket::bind(any).context("cannot bind"))?;
        set_ect(&sender, target.is_ipv4())?;
        let arriving = thread::spawn(move || receive(&receiver));
        let mut payload = [0; PAYLOAD_BYTES];
        for number in 0..PACKETS {
            payload[..4].copy_from_slice(&number.to_be_bytes());
            sender.send_to(&payload, target)?;
            thread::sleep(Duration::from_micros(250));
        }
        let arrived = arriving.join().map_err(|_| anyhow!("the receiver panicked"))??;
        let counters = &lab.emulator.counters().first().context("the lab has no path")?.down;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);

        assert_eq!(count(&counters.emulator_drops), 0, "packets the emulator had no room for");
        let lost = [&counters.tail_drops, &counters.random_drops, &counters.outage_drops].map(count);
        assert!(lost.iter().all(|lost| *lost > 5), "{prefix}: every kind of loss was set, came {lost:?}");
        let mut copies: BTreeMap<u32, u64> = BTreeMap::new();
        for (number, _) in &arrived {
            *copies.entry(*number).or_default() += 1;
        }
        // The IPv6 path also carries a few multicast reports.
        let others = count(&counters.delivered) - arrived.len() as u64;
        assert!(others < 20, "{prefix}: {others} packets of others");
        let missing = u64::from(PACKETS) - copies.len() as u64;
        assert!(missing <= lost.iter().sum() && missing + others >= lost.iter().sum(), "{prefix}: {missing} missing");
        let twice = copies.values().filter(|copies| **copies == 2).count() as u64;
        assert!(twice > 20 && twice.abs_diff(count(&counters.duplicates)) <= others, "{prefix}: {twice} twice");
        let marked = arrived.iter().filter(|(_, ecn)| *ecn == CE).count() as u64;
        assert!(marked > 500 && marked >= count(&counters.marked), "{prefix}: {marked} marked");
        assert!(arrived.iter().all(|(_, ecn)| *ecn == CE || *ecn == ECT), "{prefix}: a codepoint nobody sent");
        let mut highest = 0;
        let mut behind = 0;
        for (number, _) in &arrived {
            behind += u64::from(*number < highest);
            highest = highest.max(*number);
        }
        // A late packet of a train that was lost around it is late unseen.
        let overtaken = count(&counters.overtaken);
        assert!(behind > 30 && behind <= overtaken + twice, "{prefix}: {behind} behind, {overtaken} overtaken");
    }
    Ok(())
}

/// A stream at a tap 5 ms from its sender, with offloads on: the tap sees acknowledgements 10 ms earlier than the sender
/// can answer them, and packets of several segments.
#[test]
fn the_tap_stands_away_and_sees_offloaded_packets() -> Result<()> {
    if !needs(Need::Root) {
        return Ok(());
    }
    let distance = Duration::from_millis(5);
    for (access, large) in [
        (Access { tap_distance: distance, offloads: Offloads::Off }, false),
        (Access { tap_distance: Duration::ZERO, offloads: Offloads::On }, true),
    ] {
        let path = PathConfig::bottleneck(BytesPerSecond(1_250_000), Duration::from_millis(10), Queue::Packets(100));
        let lab =
            Topology::build_with(&[NetworkPlan { prefix: "198.51.100.0/24".parse()?, clients: 1, path }], access)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("capture.pcap");
        let poller = Arc::new(Poller::start(Record::default())?);
        let tap = Tap::start(&lab.gateway, MIRROR_DEVICE, &file)?;
        let server = Server::start(&lab.server, lab.port, "cubic", &poller)?;
        let network = lab.networks.first().context("the lab has no network")?;
        let from = *network.addresses.first().context("a network without a client")?;
        let target = lab.server_address(network.plan.prefix);
        let ask = move || Client::connect(from, target)?.ask(&Plan::transfer("cubic", 500_000));
        let transfer = network.namespace.spawn("client", ask)?.join().map_err(|_| anyhow!("the client panicked"))??;
        thread::sleep(Duration::from_millis(300));
        drop(server);
        tap.finish()?;
        let segments = wire::read(&file)?;
        let largest = segments.iter().map(|segment| segment.payload_len).max().unwrap_or(0);
        assert_eq!(largest > 1_448, large, "{access:?}: the largest packet at the tap has {largest} bytes");
        let rtt = Duration::from_millis(20) + access.tap_distance * 2;
        assert!(transfer.handshake >= rtt, "{access:?}: a handshake of {:?}", transfer.handshake);
        // From the client's SYN at the tap to the server's answer there: the way to the server and back.
        let at = |from_server: bool| {
            let syn = segments.iter().find(|s| {
                s.flags.has(spand_core::wire::segment::Flags::SYN) && (s.source.port == lab.port) == from_server
            });
            syn.map(|segment| segment.at.0).context("no SYN at the tap")
        };
        let turn = Duration::from_nanos(at(true)? - at(false)?);
        let way = access.tap_distance * 2;
        assert!(turn >= way && turn < way + Duration::from_millis(5), "{access:?}: the server answered after {turn:?}");
    }
    Ok(())
}

fn set_ect(socket: &UdpSocket, v4: bool) -> Result<()> {
    if v4 {
        setsockopt(socket, sockopt::Ipv4Tos, &i32::from(ECT)).context("cannot set ECT")
    } else {
        setsockopt(socket, sockopt::Ipv6TClass, &i32::from(ECT)).context("cannot set ECT")
    }
}

fn setsockopt_tos_wanted(socket: &UdpSocket, v4: bool) -> Result<()> {
    if v4 {
        setsockopt(socket, sockopt::IpRecvTos, &true).context("cannot ask for marks")
    } else {
        setsockopt(socket, sockopt::Ipv6RecvTClass, &true).context("cannot ask for marks")
    }
}

/// Numbers and ECN bits of what arrives, until nothing does for the socket's time-out.
fn receive(socket: &UdpSocket) -> Result<Vec<(u32, u8)>> {
    let mut arrived = Vec::new();
    let mut buffer = [0_u8; 2_048];
    let mut space = nix::cmsg_space!(i32);
    loop {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let message =
            match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()) {
                Ok(message) => message,
                Err(Errno::EAGAIN) if arrived.is_empty() => continue,
                Err(Errno::EAGAIN) => return Ok(arrived),
                Err(error) => return Err(error).context("cannot receive"),
            };
        let tos = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
            ControlMessageOwned::Ipv6TClass(class) => u8::try_from(class).ok(),
            _ => None,
        });
        let tos = tos.context("the kernel gave no marks")?;
        let number = buffer.first_chunk::<4>().copied().context("a short packet")?;
        arrived.push((u32::from_be_bytes(number), tos & CE));
    }
}
