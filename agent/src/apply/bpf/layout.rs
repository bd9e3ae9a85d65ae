//! The shapes that agent and programs share, byte by byte: `bpf/tables.h` and `bpf/inputs.h` on this side.
//!
//! Written out by hand in the order of the C structures, which hold no padding; the loader compares every size with the
//! kernel's, so that a drift between the two is an error and never a wrong window.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use libbpf_rs::OpenMapMut;
use nix::libc::{AF_INET, AF_INET6};
use spand_proto::network::Network;
use spand_proto::resume::Phase;
use spand_proto::start::{Fraction, PacingRule, RttBounds, Shape, StartPolicy, TransferSize};
use spand_proto::units::Micros;

use crate::apply::Inputs;

/// "Not set" of a limit: `NO_LIMIT`.
const NONE: u32 = u32::MAX;

/// `struct policy`.
pub(super) const POLICY_BYTES: usize = 40;
/// `struct settings`.
pub(super) const SETTINGS_BYTES: usize = POLICY_BYTES + 32 + 4 * NAME_BYTES + 16;
/// `TCP_CA_NAME_MAX`, the closing zero included.
pub(super) const NAME_BYTES: usize = 16;
/// Where the name stands in the programs' `struct tcp_congestion_ops`: after eleven functions.
pub(super) const NAME_AT: usize = 11 * 8;
/// `struct network`.
pub(super) const NETWORK_BYTES: usize = 104;
/// `struct prefix`.
pub(super) const PREFIX_BYTES: usize = 24;
/// `struct service`.
pub(super) const SERVICE_BYTES: usize = 20;
/// `struct budget`.
pub(super) const BUDGET_BYTES: usize = 64;
/// `struct event`.
pub(super) const EVENT_BYTES: usize = 96;

/// Appends numbers in the machine's order.
#[derive(Default)]
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn bytes(mut self, value: &[u8]) -> Self {
        self.0.extend(value);
        self
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Gives a congestion control its name, before it is loaded.
pub(super) fn set_name(congestion_control: &mut OpenMapMut<'_>, name: &[u8; NAME_BYTES]) {
    if let Some(value) = congestion_control.initial_value_mut().and_then(|value| value.get_mut(NAME_AT..)) {
        value.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    }
}

/// `struct policy`.
pub(super) fn policy(policy: &StartPolicy, unknown: TransferSize) -> Vec<u8> {
    let bytes = match unknown {
        TransferSize::Known(bytes) | TransferSize::Usual(bytes) => bytes.0,
        TransferSize::Unknown => 0,
    };
    let (low, high) = policy.rtt_bounds.map_or((NONE, NONE), RttBounds::millionths);
    let (burst, of_share) = match policy.pacing {
        PacingRule::AfterBurst { burst } | PacingRule::TokenBucket { depth: burst } => (burst, false),
        PacingRule::ShareAfterBurst { burst } => (burst, true),
    };
    let flags = [of_share, policy.fills_pipe, policy.threshold_needs_loss, policy.buffered, policy.crowd];
    let flags = (0..).zip(flags).map(|(bit, on)| u32::from(on) << bit).sum();
    Encoder::default()
        .u64(bytes)
        .u32(policy.fraction.map_or(NONE, Fraction::millionths))
        .u32(policy.cap.map_or(NONE, |cap| cap.0))
        .u32(policy.floor.map_or(NONE, |floor| floor.lowest.0))
        .u32(low)
        .u32(high)
        .u32(burst.0)
        .u32(u32::from(policy.budgeted))
        .u32(flags)
        .done()
}

/// Settings for all connections, other than the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) arm_seed: u64,
    pub(super) ticks_per_s: u64,
    /// Part of the connections that is left alone, 0 to 1.
    pub(super) control_fraction: f64,
    /// `enum variant`.
    pub(super) variant: u32,
    pub(super) write_option: bool,
    pub(super) initial_timeout: bool,
    /// Names of the congestion controls on CUBIC, on Reno, for a start alone, and on BBR: none where BBR gets a window alone.
    pub(super) names: [[u8; NAME_BYTES]; 4],
    /// Pauses and their ends so far: odd while advice is paused.
    pub(super) pauses: u32,
    pub(super) check: bool,
    /// Cookie of the one network namespace whose sockets are looked at; `None` for all.
    pub(super) namespace: Option<u64>,
}

/// `struct settings`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of 2^32, checked to be 0 to 1")]
pub(super) fn settings(policy: &[u8], settings: &Settings) -> Vec<u8> {
    Encoder::default()
        .bytes(policy)
        .u64(settings.arm_seed)
        .u64(settings.ticks_per_s)
        .u32((settings.control_fraction * f64::from(u32::MAX)) as u32)
        .u32(settings.variant)
        .u32(u32::from(settings.write_option))
        .u32(u32::from(settings.initial_timeout))
        .bytes(settings.names.as_flattened())
        .u32(settings.pauses)
        .u32(u32::from(settings.check))
        .u64(settings.namespace.unwrap_or(0))
        .done()
}

/// A network's place in the table of budgets. Places are given again, eras are not: a connection that outlives its network knows
/// by it that the place is another's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) era: u32,
}

/// `struct network` of a network whose connections are started; `lost_ns`: its last loss by the programs' clock.
pub(super) fn network(inputs: &Inputs, expires_ns: u64, lost_ns: u64, place: Place) -> Vec<u8> {
    let rtt_us = inputs.rtt.map_or(0, micros);
    Encoder::default()
        .u64(inputs.share_half_bytes)
        .u64(inputs.pipe_half_bytes)
        .u64(inputs.threshold_bytes)
        .u64(expires_ns)
        .u32(rtt_us)
        .u32(inputs.cap.map_or(NONE, |cap| cap.0))
        .u32(u32::from(inputs.proven) | u32::from(inputs.backed) << 1 | u32::from(inputs.lossless) << 2)
        .u32(inputs.lease.map_or(NONE, |lease| lease.0))
        .u32(place.slot)
        .u32(0)
        .u32(place.era)
        .u32(shape(inputs.shape))
        .u64(inputs.opening_half_bytes)
        .u64(lost_ns)
        .u64(inputs.overflow_bytes)
        .u64(inputs.bdp_bytes)
        .u32(inputs.losses.map_or(0, |losses| micros(losses.interval)))
        .u32(inputs.losses.map_or(0, |losses| micros(losses.oldest_interval)))
        .done()
}

/// Microseconds as far as 32 bits go.
fn micros(time: Micros) -> u32 {
    u32::try_from(time.0).unwrap_or(u32::MAX)
}

/// `enum shape`.
pub(super) fn shape(shape: Shape) -> u32 {
    match shape {
        Shape::Paced => 0,
        Shape::Threshold => 1,
        Shape::Jump => 2,
        Shape::Measured => 3,
        Shape::OwnThreshold => 4,
        Shape::OwnPaced => 5,
        Shape::CarefulResume => 6,
    }
}

/// `struct network` of one that is left alone, for this reason.
pub(super) fn left_alone(refusal: u8, expires_ns: u64) -> Vec<u8> {
    let nothing = Encoder::default().u64(0).u64(0).u64(0).u64(expires_ns).u32(0).u32(NONE).u32(0).u32(NONE).u32(0);
    nothing.u32(u32::from(refusal)).bytes(&[0; NETWORK_BYTES - 56]).done()
}

/// `struct budget` of which nothing is granted yet.
pub(super) fn budget(era: u32) -> Vec<u8> {
    Encoder::default().bytes(&[0; BUDGET_BYTES - 4]).u32(era).done()
}

/// `struct prefix`.
pub(super) fn prefix(network: Network) -> Vec<u8> {
    let (family, address, bits) = match network.prefix() {
        IpNet::V4(net) => (AF_INET, net.network().to_ipv6_mapped().octets(), 96 + u32::from(net.prefix_len())),
        IpNet::V6(net) => (AF_INET6, net.network().octets(), u32::from(net.prefix_len())),
    };
    // The family is the first part of what is matched, and matched whole: no prefix of IPv6 covers IPv4, not `::/0` either.
    Encoder::default().u32(32 + bits).u32(family.cast_unsigned()).bytes(&address).done()
}

/// `struct service`.
pub(super) fn service(service: SocketAddr) -> Vec<u8> {
    let address = match service.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Encoder::default().bytes(&address.octets()).bytes(&service.port().to_ne_bytes()).bytes(&[0; 2]).done()
}

/// `struct event`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a C structure")]
pub(super) struct Event {
    /// More than half of a first flight was lost, and the connection goes on; else it ended.
    pub(super) first_flight_loss: bool,
    pub(super) busy_us: u64,
    pub(super) bytes: u64,
    pub(super) cwnd: u32,
    pub(super) mss: u32,
    pub(super) srtt_us: u32,
    pub(super) rtt_min_us: u32,
    pub(super) retransmitted: u32,
    pub(super) granted: u32,
    /// Segments of the first flight, where some were lost.
    pub(super) first_sent: u32,
    /// And those.
    pub(super) first_lost: u32,
    /// `enum arm`.
    pub(super) arm: u8,
    pub(super) refusal: u8,
    pub(super) lost_first: bool,
    pub(super) window_limited: bool,
    /// It met a pause.
    pub(super) paused: bool,
    /// `enum careful_phase`: the last one before normal congestion control.
    pub(super) careful_resume: Option<Phase>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

impl Event {
    /// Reads one; `None` where the length or the kind is another's.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != EVENT_BYTES {
            return None;
        }
        let u64_at = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let u16_at = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let flag_at = |at: usize| Some(*bytes.get(at)? != 0);
        let address_at = |at: usize| {
            let address: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
            Some(Ipv6Addr::from(address).to_canonical())
        };
        Some(Self {
            first_flight_loss: match u32_at(16)? {
                1 => false,
                2 => true,
                _ => return None,
            },
            busy_us: u64_at(0)?,
            bytes: u64_at(8)?,
            cwnd: u32_at(20)?,
            mss: u32_at(24)?,
            srtt_us: u32_at(28)?,
            rtt_min_us: u32_at(32)?,
            retransmitted: u32_at(36)?,
            granted: u32_at(40)?,
            first_sent: u32_at(44)?,
            first_lost: u32_at(48)?,
            arm: *bytes.get(56)?,
            refusal: *bytes.get(57)?,
            lost_first: flag_at(58)?,
            window_limited: flag_at(59)?,
            paused: flag_at(60)?,
            careful_resume: careful_phase(*bytes.get(61)?),
            local: SocketAddr::new(address_at(64)?, u16_at(52)?),
            remote: SocketAddr::new(address_at(80)?, u16_at(54)?),
        })
    }
}

/// `enum careful_phase`; `None` where Careful Resume was not in use.
const fn careful_phase(number: u8) -> Option<Phase> {
    match number {
        1 => Some(Phase::Reconnaissance),
        2 => Some(Phase::Unvalidated),
        3 => Some(Phase::Validating),
        4 => Some(Phase::SafeRetreat),
        _ => None,
    }
}
