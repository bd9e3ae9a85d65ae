//! Traffic at the taps of several gateways: a generated trace, played at its own pace until it is stopped.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::socket::{MsgFlags, send};

use super::gateway::port;
use crate::lab::namespace::Namespace;
use crate::lab::port::packet_port;
use crate::trace::frame::encode;
use crate::trace::packet::Tuple;
use crate::trace::{TraceConfig, generate};

/// At which gateways' taps a connection is seen: indices.
pub type Place = fn(&Tuple, usize) -> Range<usize>;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    /// Connections open at a time.
    pub connections: u32,
    /// Networks of the clients.
    pub networks: u32,
    /// Share of data segments that is lost.
    pub loss: f64,
    /// Where a connection is seen.
    pub place: Place,
    /// Another one gives other connections to the same networks.
    pub seed: u64,
}

/// Traffic that is under way.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Counts>>,
}

/// What was played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets sent.
    pub packets: u64,
    /// The latest that one left after its time.
    pub latest: Duration,
}

/// All connections of a network are seen at one tap.
pub fn by_network(tuple: &Tuple, gateways: usize) -> Range<usize> {
    one(usize::try_from(number(tuple.client.0)).unwrap_or_default(), gateways)
}

/// Connections of every network are seen at all taps, each at one of them.
pub fn by_connection(tuple: &Tuple, gateways: usize) -> Range<usize> {
    one(usize::from(tuple.client.1) + usize::from(tuple.client.0.octets()[3]), gateways)
}

/// Every packet is seen at all taps.
pub fn everywhere(_: &Tuple, gateways: usize) -> Range<usize> {
    0..gateways
}

fn one(number: usize, gateways: usize) -> Range<usize> {
    let place = number % gateways.max(1);
    place..place + 1
}

/// The number of a client's network, as traces count them.
pub fn number(client: Ipv4Addr) -> u32 {
    (client.to_bits() >> 8) & 0xf_ffff
}

impl Traffic {
    /// Plays to the taps of these gateways of a namespace.
    ///
    /// # Errors
    /// Where a tap takes no frames.
    pub fn start(namespace: &Namespace, gateways: Vec<u16>, played: Played) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = namespace.spawn("traffic", move || {
            let ports: Vec<OwnedFd> =
                gateways.iter().map(|number| packet_port(&port(*number))).collect::<Result<_>>()?;
            play(&ports, &played, &stopped)
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it.
    ///
    /// # Errors
    /// Where frames were not taken.
    pub fn stop(self) -> Result<Counts> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the traffic panicked"))?
    }
}

fn play(ports: &[OwnedFd], played: &Played, stop: &AtomicBool) -> Result<Counts> {
    let Played { connections, networks, loss, place, seed } = *played;
    let config = TraceConfig { packets: u64::MAX, connections, loss, networks, snap_len: 1_514, seed };
    let (begun, mut frame, mut counts, mut failed) = (Instant::now(), Vec::new(), Counts::default(), Ok(()));
    generate(&config, |at_ns, tuple, packet| {
        let due = begun + Duration::from_nanos(at_ns);
        // A shorter sleep than this costs more than it waits.
        if let Some(early) =
            due.checked_duration_since(Instant::now()).filter(|early| *early > Duration::from_millis(1))
        {
            thread::sleep(early);
        }
        counts.latest = counts.latest.max(due.elapsed());
        counts.packets += 1;
        let length =
            encode(&mut frame, u16::try_from(counts.packets & 0xffff).unwrap_or_default(), at_ns, tuple, packet);
        frame.resize(length, 0);
        for port in ports.get(place(tuple, ports.len())).unwrap_or_default() {
            failed = send(port.as_raw_fd(), &frame, MsgFlags::empty()).map(drop).context("a tap takes no frame");
            if failed.is_err() {
                return false;
            }
        }
        failed.is_ok() && !stop.load(Ordering::Relaxed)
    });
    failed.map(|()| counts)
}
