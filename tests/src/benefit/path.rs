//! The paths on which transfers are timed, and the wire's own bound on each.

use std::time::Duration;

use spand_proto::units::BytesPerSecond;

use crate::lab::path::{Cross, Hop, LinkConfig, PathConfig, Policer, Queue};

/// IP and TCP headers with timestamps.
const HEADER_BYTES: u64 = 52;
/// Most that a Linux receiver offers before data came: half of its first buffer (`tcp_rmem`), 128 KiB.
const OFFERED_FIRST_BYTES: u64 = 65_536;
/// Delay of the access link, of which the one-way delay is a part.
const ACCESS_DELAY: Duration = Duration::from_millis(1);
/// Packets before the access link: it shall drop none.
const ACCESS_QUEUE: u32 = 10_000;

/// Sources of cross traffic at each bottleneck.
const CROSS_SOURCES: u16 = 40;

/// One path from servers to clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Way {
    /// Rate of the bottleneck in kbit/s of IP bytes.
    pub kbit: u64,
    /// One-way delay, the same back.
    pub one_way_ms: u64,
    /// Packets that the bottleneck's queue holds, drop-tail.
    pub queue_packets: u32,
    /// Bottlenecks in a row, all the same; they share the delay.
    pub bottlenecks: u8,
    /// Rate, in kbit/s while it sends, of each source of the cross traffic that shares a bottleneck and then leaves.
    pub cross_kbit: Option<u64>,
    /// Rate of a link before the bottleneck, in kbit/s.
    pub access_kbit: Option<u64>,
    /// Payload of a full segment with timestamps.
    pub mss: u64,
    /// What else it does to packets.
    pub rough: Option<Rough>,
}

/// What real paths do besides queueing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rough {
    /// More delay each way, uniform up to this part of the one-way delay in percent, order kept.
    Jitter(u32),
    /// What arrives within this many milliseconds is delivered together, both ways, as wireless links do.
    Bunched(u32),
    /// A token bucket of the bottleneck's rate and this many packets in place of its queue.
    Policed(u32),
    /// Random loss towards the clients, in thousandths.
    Lossy(u32),
    /// `fq_codel` in place of the queue, which kernel paths alone have.
    FqCodel,
}

impl Way {
    /// A path of the reference measurements: segments of 1,000 bytes, 10 packets of queue, an access link of 10 Mbit/s.
    pub const fn reference(kbit: u64, one_way_ms: u64) -> Self {
        let (queue_packets, access_kbit, mss) = (10, Some(10_000), 1_000);
        Self { kbit, one_way_ms, queue_packets, bottlenecks: 1, cross_kbit: None, access_kbit, mss, rough: None }
    }

    /// A path with a queue of one bandwidth-delay product and usual segments.
    pub fn deep(mbit: u32, rtt_ms: u32) -> Self {
        // Full packets of 1,500 bytes.
        let queue_packets = mbit * 1_000 * rtt_ms / 8 / 1_500;
        let (kbit, one_way_ms) = (u64::from(mbit) * 1_000, u64::from(rtt_ms / 2));
        Self::new(kbit, one_way_ms, queue_packets)
    }

    /// A path with usual segments.
    pub const fn new(kbit: u64, one_way_ms: u64, queue_packets: u32) -> Self {
        let (bottlenecks, cross_kbit, access_kbit, mss, rough) = (1, None, None, 1_448, None);
        Self { kbit, one_way_ms, queue_packets, bottlenecks, cross_kbit, access_kbit, mss, rough }
    }

    /// For the emulator.
    pub fn config(&self, seed: u64) -> PathConfig {
        let rate = |kbit: u64| Some(BytesPerSecond(kbit * 125));
        let delay = Duration::from_millis(self.one_way_ms);
        let queue = Queue::Packets(self.queue_packets);
        let access = self.access_kbit.map(|access| Hop::new(rate(access), Queue::Packets(ACCESS_QUEUE), ACCESS_DELAY));
        let behind = delay.saturating_sub(access.map_or(Duration::ZERO, |access| access.delay));
        let cross = self.cross_kbit.map(|kbit| Cross::paper(CROSS_SOURCES, BytesPerSecond(kbit * 125)));
        let each = behind / u32::from(self.bottlenecks.max(1));
        let bottleneck = Hop { cross, ..Hop::new(rate(self.kbit), queue, each) };
        let all = usize::from(self.bottlenecks);
        let down = match access {
            None => LinkConfig::new(bottleneck).then(std::iter::repeat_n(bottleneck, all.saturating_sub(1))),
            Some(access) => LinkConfig::new(access).then(std::iter::repeat_n(bottleneck, all)),
        };
        let mut path = PathConfig { down, up: LinkConfig::new(Hop::new(None, queue, delay)), seed };
        match self.rough {
            None => {}
            Some(Rough::Jitter(percent)) => {
                let jitter = delay * percent / 100;
                (path.down.impairments.jitter, path.up.impairments.jitter) = (jitter, jitter);
            }
            Some(Rough::Bunched(ms)) => {
                let bunched = Duration::from_millis(ms.into());
                (path.down.impairments.bunched, path.up.impairments.bunched) = (bunched, bunched);
            }
            Some(Rough::Policed(packets)) => {
                path.down.hop.rate = None;
                let burst_bytes = u64::from(packets) * self.mtu();
                path.down.impairments.policer = Some(Policer { rate: BytesPerSecond(self.kbit * 125), burst_bytes });
            }
            Some(Rough::FqCodel) => path.down.hop.queue = Queue::FqCodel,
            Some(Rough::Lossy(thousandths)) => path.down.impairments.loss = f64::from(thousandths) / 1e3,
        }
        path
    }

    /// Largest IP packet of its clients' link.
    pub const fn mtu(&self) -> u64 {
        self.mss + HEADER_BYTES
    }

    /// Round trip of an empty path, transmission left out.
    pub const fn rtt(&self) -> Duration {
        Duration::from_millis(2 * self.one_way_ms)
    }

    /// What no sender can be faster than: all packets through the narrowest link, and a round trip.
    pub fn bound_ms(&self, bytes: u64) -> f64 {
        self.transmission_ms(bytes) + self.rtt().as_secs_f64() * 1e3
    }

    /// The same where the receiver's window is that of a Linux host that has got nothing yet. What it does not offer leaves
    /// with the first acknowledgement at the earliest, a round trip and a packet after the start, and is acknowledged a
    /// round trip after its last byte left. From then on the window is taken as unlimited, although it only grows with what
    /// arrives: for transfers of many flights on long paths no receiver allows this bound.
    pub fn bound_with_receiver_ms(&self, bytes: u64) -> f64 {
        let first = OFFERED_FIRST_BYTES / self.mss * self.mss;
        let path = self.bound_ms(bytes);
        match bytes.checked_sub(first) {
            None | Some(0) => path,
            Some(rest) => path.max(self.bound_ms(self.mss) + self.bound_ms(rest)),
        }
    }

    /// Time that all packets of a transfer take through the narrowest link.
    pub fn transmission_ms(&self, bytes: u64) -> f64 {
        let narrowest = self.access_kbit.unwrap_or(self.kbit).min(self.kbit);
        let on_the_wire = bytes + bytes.div_ceil(self.mss) * HEADER_BYTES;
        (on_the_wire * 8) as f64 / narrowest as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_transmission_and_a_round_trip() {
        let s1 = Way::reference(1_600, 52);
        // Thirty packets of 1,052 bytes at 200 bytes a millisecond.
        assert!((s1.bound_ms(30_000) - (157.8 + 104.0)).abs() < 1e-9, "{}", s1.bound_ms(30_000));
        // The access link is the narrower one.
        let s3 = Way::reference(45_000, 202);
        assert!((s3.bound_ms(1_000) - (0.8416 + 404.0)).abs() < 1e-9, "{}", s3.bound_ms(1_000));
    }

    #[test]
    fn a_receiver_holds_back_what_is_beyond_its_first_window() {
        let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-9, "{value}");
        let wide = Way::deep(100, 100);
        near(wide.bound_with_receiver_ms(45 * 1_448), wide.bound_ms(45 * 1_448));
        // One more: two round trips, a packet of 1,500 bytes before the acknowledgement, and the packet that it lets go.
        near(wide.bound_with_receiver_ms(46 * 1_448), 2.0 * (100.0 + 0.12));
        // The link is busy for longer than a round trip: the acknowledgement is there before the window is used up.
        let narrow = Way::reference(1_600, 52);
        near(narrow.bound_with_receiver_ms(100_000), narrow.bound_ms(100_000));
    }

    #[test]
    fn bottlenecks_share_the_delay_behind_the_access_link() {
        let way = Way { bottlenecks: 5, cross_kbit: Some(48), ..Way::reference(1_600, 51) };
        let down = way.config(1).down;
        let hops: Vec<Hop> = down.hops().collect();
        assert_eq!((hops.len(), hops[0].cross, down.delay()), (6, None, Duration::from_millis(51)));
        let cross = Cross::paper(40, BytesPerSecond(6_000));
        let is_bottleneck = |hop: &Hop| hop.cross == Some(cross) && hop.delay == Duration::from_millis(10);
        assert!(hops[1..].iter().all(is_bottleneck), "{hops:?}");
    }

    #[test]
    fn a_deep_queue_holds_what_the_path_does() {
        assert_eq!(Way::deep(20, 60).queue_packets, 100);
        assert_eq!(Way::deep(20, 60).config(1).base_rtt(), Duration::from_millis(60));
        assert_eq!(Way::reference(1_600, 52).config(1).base_rtt(), Duration::from_millis(104));
    }
}
