//! One direction of a path as arithmetic: when would this packet come out, or is it dropped? No clock, no packets.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use spand_proto::units::BytesPerSecond;

use super::config::LinkConfig;
use super::hop::Bottleneck;
use super::impairments::{Episodes, Impairments, Policer};

/// The one packet of [`Impairments::single`] is at least so long: data, no acknowledgement.
const SINGLE_LEAST_BYTES: u32 = 1_000;

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drop {
    /// The queue before a bottleneck was full, or the policer's bucket empty.
    Tail,
    /// A random loss, single or in a burst.
    Random,
    /// It came during an outage.
    Outage,
    /// It is longer than this many bytes, which is all that the path carries now.
    TooBig(u32),
}

/// What the arithmetic needs to know of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packet {
    /// IP bytes.
    pub length: u32,
    /// Its sender understands marks (ECT or CE).
    pub ecn: bool,
    /// A TCP segment with PSH.
    pub push: bool,
}

/// How a packet arrives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Arrival {
    /// When.
    pub due_ns: u64,
    /// With a congestion mark.
    pub marked: bool,
    /// Twice.
    pub duplicated: bool,
    /// After packets that were sent later.
    pub overtaken: bool,
}

/// One die for each purpose: switching one impairment on moves no other.
#[derive(Debug)]
struct Dice {
    loss: SmallRng,
    burst: SmallRng,
    tail: SmallRng,
    jitter: SmallRng,
    reorder: SmallRng,
    duplicate: SmallRng,
}

/// The state of one direction. Times are nanoseconds of any clock that never runs backwards.
#[derive(Debug)]
pub struct Link {
    impairments: Impairments,
    hops: Vec<Bottleneck>,
    dice: Dice,
    /// The chain of [`super::impairments::Burst`] is in its bad state.
    bad: bool,
    first_ns: Option<u64>,
    /// The one packet of [`Impairments::single`] is lost.
    singled: bool,
    /// Latest arrival in order: jitter overtakes nobody.
    last_due_ns: u64,
    /// When the policer's bucket is full again.
    full_at_ns: u64,
}

impl Link {
    /// An empty one with its own dice.
    pub fn new(config: &LinkConfig, seed: u64) -> Self {
        let die = |purpose: u64| SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose);
        let dice =
            Dice { loss: die(1), burst: die(2), tail: die(3), jitter: die(4), reorder: die(5), duplicate: die(6) };
        let hops = (100..).zip(config.hops()).map(|(n, hop)| Bottleneck::new(hop, seed ^ (n << 32))).collect();
        Self {
            impairments: config.impairments,
            hops,
            dice,
            bad: false,
            first_ns: None,
            singled: false,
            last_due_ns: 0,
            full_at_ns: 0,
        }
    }

    /// Offers a packet at `now_ns`. Returns when and how it arrives.
    pub fn offer(&mut self, now_ns: u64, packet: Packet) -> Result<Arrival, Drop> {
        let since_first_ns = now_ns.saturating_sub(*self.first_ns.get_or_insert(now_ns));
        if self.impairments.outage.is_some_and(|outage| left_of(outage, since_first_ns).is_some()) {
            return Err(Drop::Outage);
        }
        let mtu = self.impairments.mtu_drop.filter(|mtu| nanoseconds(mtu.after) <= since_first_ns);
        if let Some(mtu) = mtu.filter(|mtu| packet.length > mtu.bytes) {
            return Err(Drop::TooBig(mtu.bytes));
        }
        let single = self.impairments.single.is_some_and(|at| nanoseconds(at) <= since_first_ns);
        if single && !self.singled && packet.length >= SINGLE_LEAST_BYTES {
            self.singled = true;
            return Err(Drop::Random);
        }
        if self.loses(packet) {
            return Err(Drop::Random);
        }
        if self.impairments.policer.is_some_and(|policer| !self.conforms(policer, now_ns, packet.length)) {
            return Err(Drop::Tail);
        }
        let stall_ns = self.impairments.stall.and_then(|stall| left_of(stall, since_first_ns)).unwrap_or(0);
        let mut at_ns = now_ns.saturating_add(stall_ns);
        let mut marked = false;
        for hop in &mut self.hops {
            let passed = hop.pass(at_ns, packet)?;
            at_ns = passed.at_ns;
            marked |= passed.marked;
        }
        Ok(Arrival { marked, ..self.arrive(at_ns) })
    }

    /// Changes the rate of its last bottleneck from now on.
    pub fn set_rate(&mut self, rate: BytesPerSecond) {
        if let Some(last) = self.hops.last_mut() {
            last.set_rate(rate);
        }
    }

    /// Takes a packet's tokens, where there are as many: the bucket is full again as much later as they take to come back.
    fn conforms(&mut self, policer: Policer, now_ns: u64, length: u32) -> bool {
        let time_of = |bytes: u64| bytes.saturating_mul(1_000_000_000) / policer.rate.0.max(1);
        let full_at_ns = self.full_at_ns.max(now_ns).saturating_add(time_of(length.into()));
        let conforms = full_at_ns - now_ns <= time_of(policer.burst_bytes);
        if conforms {
            self.full_at_ns = full_at_ns;
        }
        conforms
    }

    fn loses(&mut self, packet: Packet) -> bool {
        let Impairments { loss, burst, tail_loss, .. } = self.impairments;
        if let Some(burst) = burst {
            let turn = if self.bad { burst.end } else { burst.begin };
            self.bad ^= self.dice.burst.random::<f64>() < turn;
            if self.bad && self.dice.burst.random::<f64>() < burst.loss {
                return true;
            }
        }
        self.dice.loss.random::<f64>() < loss || (packet.push && self.dice.tail.random::<f64>() < tail_loss)
    }

    fn arrive(&mut self, at_ns: u64) -> Arrival {
        let Impairments { jitter, bunched, reorder, duplicate, .. } = self.impairments;
        let jitter_ns = nanoseconds(jitter.mul_f64(self.dice.jitter.random::<f64>()));
        let stretch_ns = nanoseconds(bunched).max(1);
        let delivered_ns = at_ns.saturating_add(jitter_ns).div_ceil(stretch_ns).saturating_mul(stretch_ns);
        let in_order_ns = delivered_ns.max(self.last_due_ns);
        let late = reorder.filter(|reorder| self.dice.reorder.random::<f64>() < reorder.chance);
        let duplicated = self.dice.duplicate.random::<f64>() < duplicate;
        if late.is_none() {
            self.last_due_ns = in_order_ns;
        }
        let due_ns = in_order_ns.saturating_add(late.map_or(0, |late| nanoseconds(late.by)));
        Arrival { due_ns, duplicated, overtaken: late.is_some(), marked: false }
    }
}

/// Nanoseconds until the end of the stretch that `since_first_ns` falls into.
fn left_of(episodes: Episodes, since_first_ns: u64) -> Option<u64> {
    let after_ns = since_first_ns.checked_sub(nanoseconds(episodes.first))?;
    let into_ns = after_ns % nanoseconds(episodes.every).max(1);
    nanoseconds(episodes.lasting).checked_sub(into_ns).filter(|left| *left > 0)
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
