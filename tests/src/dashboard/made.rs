//! Made-up networks: as many as wanted, each with a share and a round trip of its own that drift.

use std::f64::consts::TAU;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;

use anyhow::{Context, Result};
use spand_core::config::WindowConfig;
use spand_core::flow::sample::{ConnectionId, Phase, SampleReason, WindowSample};
use spand_core::window::bucket::{LimitCounts, RttSum};
use spand_core::window::live::SenderId;
use spand_core::window::table::NetworkTable;
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};

/// Made-up networks.
pub(super) struct Made {
    pub(super) table: NetworkTable,
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
        let mut made = Self { table, count, samples: 0, next: 0 };
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
            sawtooth: None,
            phase: Phase::CongestionAvoidance,
            transfer: Bytes(1_000_000),
            advised: false,
            rtt_min: Some(rtt),
            rtt: Some(rtt),
        });
        let limits = LimitCounts { window: 9, receiver: 0, application: 3 };
        self.table.add_rounds(network, at, remote, RttSum::of(rtt), limits);
        if reason == SampleReason::Loss {
            self.table.add_loss(network, at, SenderId { connection: ConnectionId(self.samples), remote }, rtt);
        }
    }
}

/// An address of network `number`: one of the 16,384 of 100.64.0.0/10.
pub(super) fn address(number: usize) -> IpAddr {
    let number = u32::try_from(number % 16_384).unwrap_or_default();
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(100, 64, 0, 9).to_bits() + (number << 8)))
}
