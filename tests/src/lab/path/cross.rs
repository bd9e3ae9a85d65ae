//! Cross traffic as arithmetic: when does which packet reach the bottleneck? ON/OFF sources, Pareto times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::impairments::Cross;

/// No time is longer than this many times its mean: a single draw shall not silence a source for a whole run.
const LONGEST_MEANS: f64 = 100.0;

/// The sources of one bottleneck.
#[derive(Debug)]
pub(super) struct CrossTraffic {
    config: Cross,
    dice: SmallRng,
    /// Next packet of each source: time and source. Empty before the first packet of the path.
    next: BinaryHeap<Reverse<(u64, u16)>>,
    /// Packets left of each source's time on.
    left: Vec<u32>,
}

impl CrossTraffic {
    pub(super) fn new(config: Cross, seed: u64) -> Self {
        let left = vec![0; usize::from(config.sources)];
        Self { config, dice: SmallRng::seed_from_u64(seed), next: BinaryHeap::new(), left }
    }

    /// The next packet at or before `now_ns`: when it came. Sources begin at random points of their time off, counted from
    /// the first call.
    pub(super) fn next_until(&mut self, now_ns: u64) -> Option<u64> {
        if self.next.is_empty() {
            for source in 0..self.config.sources {
                let begin_ns = now_ns + self.pause_ns();
                self.next.push(Reverse((begin_ns, source)));
            }
        }
        let &Reverse((at_ns, source)) = self.next.peek()?;
        if at_ns > now_ns {
            return None;
        }
        self.next.pop();
        let follows_ns = self.follows_ns(at_ns, source);
        self.next.push(Reverse((follows_ns, source)));
        Some(at_ns)
    }

    /// When the packet after that of `at_ns` comes.
    fn follows_ns(&mut self, at_ns: u64, source: u16) -> u64 {
        let gap_ns = u64::from(self.config.packet_bytes) * 1_000_000_000 / self.config.rate.0.max(1);
        let burst = self.config.on.as_secs_f64() * 1e9 / gap_ns.max(1) as f64;
        let index = usize::from(source);
        let left = self.left.get(index).copied().unwrap_or(0);
        if left > 1 {
            self.set_left(index, left - 1);
            return at_ns + gap_ns;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by LONGEST_MEANS")]
        let packets = self.pareto(burst).round().max(1.0) as u32;
        // The first burst begins with the packet just given.
        self.set_left(index, packets);
        at_ns + gap_ns + self.pause_ns()
    }

    fn set_left(&mut self, index: usize, packets: u32) {
        if let Some(left) = self.left.get_mut(index) {
            *left = packets;
        }
    }

    fn pause_ns(&mut self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by LONGEST_MEANS")]
        let pause = self.pareto(self.config.off.as_secs_f64() * 1e9) as u64;
        pause
    }

    fn pareto(&mut self, mean: f64) -> f64 {
        let shape = self.config.shape;
        let smallest = mean * (shape - 1.0) / shape;
        let uniform: f64 = 1.0 - self.dice.random::<f64>();
        (smallest / uniform.powf(1.0 / shape)).min(mean * LONGEST_MEANS)
    }
}

#[cfg(test)]
mod tests {
    use spand_proto::units::BytesPerSecond;

    use super::*;

    fn times(seed: u64) -> Vec<u64> {
        let mut traffic = CrossTraffic::new(Cross::paper(40, BytesPerSecond(1_500)), seed);
        let first = traffic.next_until(0);
        first.into_iter().chain(std::iter::from_fn(|| traffic.next_until(600_000_000_000))).collect()
    }

    #[test]
    fn sources_send_about_their_mean_rate_in_order_and_the_same_again() {
        let times = times(7);
        assert!(times.is_sorted());
        // 40 sources at 12 kbit/s, on a third of the time, for ten minutes: 57,143 packets on average.
        let expected = 40.0 * 1_500.0 / 210.0 / 3.0 * 600.0;
        let ratio = times.len() as f64 / expected;
        assert!((0.7..1.4).contains(&ratio), "{} packets, {expected:.0} on average", times.len());
        assert_eq!(times, self::times(7));
        assert_ne!(times, self::times(8));
    }
}
