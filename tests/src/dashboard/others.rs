//! The gateways that the one that is looked at shares with.

use std::f64::consts::TAU;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use spand_cells::{GatewayId, TapId};
use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_core::types::{ConnectionId, Flow, Flows, LimitCounts, RttSum, SampleReason, SenderId, WindowSample};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use spand_share::exchange::{LinkState, MirrorLag, SiteStream, StreamFault, StreamState, Topic};
use spand_share::format::Member;
use spand_share::{Incompatible, MemberView, ShareStatus, ShareView};

/// The group of the gateway that is looked at, and of the one that sees the same packets.
const GROUP: u16 = 7;
/// How often a gateway sends who it is, as in the daemon.
const EVERY: Duration = Duration::from_secs(5);

fn before(now: Instant, seconds: u64) -> Instant {
    now.checked_sub(Duration::from_secs(seconds)).unwrap_or(now)
}

/// Two that see other packets, and one of the own mirror group.
pub(super) fn view() -> ShareView {
    let now = Instant::now();
    let of = |gateway: u16, name: &str, tap| Member {
        gateway: GatewayId(gateway),
        tap,
        instance: gateway.into(),
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
        bucket: Micros::from_secs(10),
        buckets: 30,
        rule: RuleKind::Robust,
        prefixes: 0,
        clock: Timestamp(0),
        digests: Vec::new(),
        address: Some(format!("https://{name}.example.net:7443")),
    };
    let known = |member: Member, clock_ahead_us| {
        let heard = before(now, (u64::from(member.gateway.0) * 2) % EVERY.as_secs());
        MemberView { member, heard, clock_ahead_us, incompatible: None }
    };
    ShareView {
        link: LinkState::Up,
        since: Some(before(now, 900)),
        first_up: Some(before(now, 900)),
        up_until: None,
        own: Some(of(1, "edge-a", TapId::of_group(GROUP))),
        cluster: "main".to_owned(),
        site: "main".to_owned(),
        members: vec![
            known(of(2, "edge-b", TapId::of_gateway(GatewayId(2))), 1_250),
            known(of(3, "edge-c", TapId::of_group(GROUP)), -3_400),
            known(of(4, "edge-d", TapId::of_gateway(GatewayId(4))), -210),
        ],
        cells_received: [(GatewayId(2), 5_120), (GatewayId(3), 4_870), (GatewayId(4), 1_030)].into(),
        lag: [(Topic::Closed, Micros(450_000)), (Topic::Open, Micros(120_000))].into(),
        lag_since: [].into(),
        streams: Arc::new(Mutex::new(streams())),
    }
}

/// The stream of the site, and the copies of two others, of which nobody answers for one.
fn streams() -> Vec<SiteStream> {
    let lag = MirrorLag { messages: 3, heard: Some(Duration::from_millis(400)) };
    let found = [
        ("main", Ok(StreamState { current: 3, replicas: 3, copy: None })),
        ("b", Ok(StreamState { current: 3, replicas: 3, copy: Some(lag) })),
        ("c", Err(StreamFault::NoAnswer)),
    ];
    found.into_iter().map(|(site, found)| SiteStream { site: site.to_owned(), found }).collect()
}

/// Messages of the others come: of each who it is, and cells where they count.
pub(super) fn hear(share: &ShareStatus) {
    share.change(|view| {
        for known in &mut view.members {
            if known.heard.elapsed() >= EVERY {
                known.heard += EVERY;
            }
            if known.incompatible.is_none() && view.link == LinkState::Up {
                *view.cells_received.entry(known.member.gateway).or_default() += 1;
                share.measures().cells_taken.inc();
            }
        }
    });
}

/// Connections of two of them that are seen here too: a few of one, and with `duplicate` most of the other.
pub(super) fn compare(share: &ShareStatus, duplicate: bool) {
    share.measures().compared(GatewayId(2), [900, 9]);
    share.measures().compared(GatewayId(4), [900, if duplicate { 870 } else { 2 }]);
}

/// Lets something be wrong with two: other buckets, and a wrong clock.
pub(super) fn fail(view: &mut ShareView) {
    for known in &mut view.members {
        match known.member.gateway {
            GatewayId(3) => {
                (known.clock_ahead_us, known.incompatible) = (-3_400_000, Some(Incompatible::BucketLength));
            }
            GatewayId(4) => known.clock_ahead_us = 2_600_000,
            _ => {}
        }
    }
}

// Made-up networks: as many as wanted, each with a share and a round trip of its own that drift.

/// Made-up networks.
pub(super) struct Made {
    pub(super) table: NetworkTable,
    /// When the first of its samples was.
    pub(super) began: Timestamp,
    count: usize,
    /// Samples ever made.
    samples: u64,
    next: usize,
}

/// Steps into the past in which every network has samples, and the time between two.
const STEPS: u64 = 7;
const STEP: Micros = Micros::from_secs(40);

impl Made {
    /// `count` networks of the shared address space (RFC 6598), with samples of the last minutes.
    pub(super) fn new(count: usize, now: Timestamp) -> Result<Self> {
        let limit = NonZeroUsize::new(count.max(1)).context("no networks")?;
        let table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
        let mut made = Self { table, began: now.before(Micros(STEPS * STEP.0)), count, samples: 0, next: 0 };
        made.table.changed_records(0);
        made.table.take_samples();
        for step in (0..STEPS).rev() {
            let at = now.before(Micros(step * STEP.0 + 1));
            (0..count).for_each(|number| made.add(number, at));
        }
        Ok(made)
    }

    /// The next `count` networks get a sample.
    pub(super) fn drift(&mut self, count: usize, at: Timestamp) {
        for _ in 0..count.min(self.count) {
            self.add(self.next, at);
            self.next = (self.next + 1) % self.count;
        }
    }

    fn add(&mut self, number: usize, at: Timestamp) {
        let remote = address(number);
        let network = Network::of(remote);
        let own = number as f64;
        let wave = (at.as_secs_f64() / (60.0 + own % 97.0) * TAU + own).sin();
        let segments = (4.0 + (own * 0.618_034).fract().powi(3) * 400.0) * (1.0 + 0.15 * wave);
        let rtt = (4.0 + (own * 0.381_966).fract().powi(2) * 280.0) * (1.0 + 0.1 * wave) * 1_000.0;
        // One in twenty has too few samples for an estimate.
        let poor = number % 20 == 7;
        self.samples += 1;
        // The ratio's high bits: no network gets the same reason again and again.
        let reason = match (self.samples.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 5 {
            0 | 1 => SampleReason::Loss,
            2 | 3 => SampleReason::End,
            _ => SampleReason::EndAppLimited,
        };
        let reason = if poor { SampleReason::EndAppLimited } else { reason };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number below a second")]
        let rtt = Micros(rtt as u64);
        self.table.add(&WindowSample {
            at,
            network,
            remote,
            connection: ConnectionId(self.samples),
            window: Window::from_bytes(segments * 1_448.0).unwrap_or_default(),
            mss: Bytes(1_448),
            reason,
            reduced_before: false,
            transfer: Bytes(1_000_000),
            advised: false,
            rtt_min: Some(rtt),
            rtt: Some(rtt),
        });
        let limits = LimitCounts { window: 9, receiver: 0, application: 3 };
        self.table.add_rounds(network, at, remote, RttSum::of(rtt), limits);
        self.table.count_transfer(network, at);
        self.table.add_traffic(network, at, &traffic(segments, reason == SampleReason::Loss));
        if reason == SampleReason::Loss {
            self.table.add_loss(network, at, SenderId { connection: ConnectionId(self.samples), remote }, rtt);
        }
    }
}

/// What forty windows carry, a fiftieth of it twice where one was lost, and an eighth as much that comes back.
fn traffic(segments: f64, lost: bool) -> Flows {
    let flow = |packets: u64, lost: bool| {
        let repeated = if lost { packets / 50 } else { 0 };
        let [bytes, repeated_bytes] = [packets, repeated].map(|packets| packets * 1_448);
        Flow { packets, bytes, retransmitted_packets: repeated, retransmitted_bytes: repeated_bytes }
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of some hundreds")]
    let packets = segments as u64 * 40;
    Flows { outbound: flow(packets, lost), inbound: flow(packets / 8, false) }
}

/// An address of network `number`: one of the 16,384 of 100.64.0.0/10.
pub(super) fn address(number: usize) -> IpAddr {
    let number = u32::try_from(number % 16_384).unwrap_or_default();
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(100, 64, 0, 9).to_bits() + (number << 8)))
}
