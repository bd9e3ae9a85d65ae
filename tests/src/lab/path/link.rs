//! One direction of a path as arithmetic: when would this packet come out, or is it dropped? No clock, no packets.

use std::collections::VecDeque;

use super::config::{LinkConfig, Queue};

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Drop {
    /// The queue before the bottleneck was full.
    Tail,
    /// A random loss.
    Random,
}

/// The state of one direction. Times are nanoseconds of any clock that never runs backwards.
#[derive(Debug)]
pub(super) struct Link {
    config: LinkConfig,
    /// Departure and size of every packet waiting or in service.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
    free_at_ns: u64,
    delay_ns: u64,
}

impl Link {
    pub(super) fn new(config: LinkConfig) -> Self {
        let delay_ns = u64::try_from(config.delay.as_nanos()).unwrap_or(u64::MAX);
        Self { config, waiting: VecDeque::new(), waiting_bytes: 0, free_at_ns: 0, delay_ns }
    }

    /// Offers a packet of `length` IP bytes at `now_ns`; `dice` is uniform in 0 to 1. Returns when it arrives.
    pub(super) fn offer(&mut self, now_ns: u64, length: u32, dice: f64) -> Result<u64, Drop> {
        if dice < self.config.loss {
            return Err(Drop::Random);
        }
        let Some(rate) = self.config.rate else { return Ok(now_ns.saturating_add(self.delay_ns)) };
        while let Some(&(departure_ns, bytes)) = self.waiting.front()
            && departure_ns <= now_ns
        {
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(bytes);
        }
        let room = match self.config.queue {
            Queue::Packets(limit) => self.waiting.len() < limit as usize,
            Queue::Bytes(limit) => self.waiting_bytes + u64::from(length) <= limit,
        };
        if !room {
            return Err(Drop::Tail);
        }
        let service_ns = u64::from(length).saturating_mul(1_000_000_000) / rate.0.max(1);
        let departure_ns = self.free_at_ns.max(now_ns).saturating_add(service_ns);
        self.free_at_ns = departure_ns;
        self.waiting.push_back((departure_ns, length));
        self.waiting_bytes += u64::from(length);
        Ok(departure_ns.saturating_add(self.delay_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spand_proto::units::BytesPerSecond;

    use super::*;

    fn link(queue: Queue) -> Link {
        let rate = Some(BytesPerSecond(1_000_000));
        Link::new(LinkConfig { rate, queue, delay: Duration::from_millis(50), loss: 0.1 })
    }

    #[test]
    fn packets_leave_at_the_rate_and_arrive_after_the_delay() {
        let mut link = link(Queue::Packets(3));
        assert_eq!(link.offer(0, 1_000, 1.0), Ok(51_000_000));
        assert_eq!(link.offer(0, 1_000, 1.0), Ok(52_000_000));
        assert_eq!(link.offer(500_000, 500, 1.0), Ok(52_500_000));
        // An idle bottleneck starts afresh.
        assert_eq!(link.offer(9_000_000, 1_000, 1.0), Ok(60_000_000));
    }

    #[test]
    fn the_packet_in_service_counts_against_the_queue() {
        let mut link = link(Queue::Packets(2));
        assert!(link.offer(0, 1_000, 1.0).is_ok());
        assert!(link.offer(0, 1_000, 1.0).is_ok());
        assert_eq!(link.offer(999_999, 1_000, 1.0), Err(Drop::Tail));
        assert!(link.offer(1_000_000, 1_000, 1.0).is_ok());
    }

    #[test]
    fn a_queue_in_bytes_counts_bytes() {
        let mut link = link(Queue::Bytes(2_000));
        assert!(link.offer(0, 1_500, 1.0).is_ok());
        assert_eq!(link.offer(0, 501, 1.0), Err(Drop::Tail));
        assert!(link.offer(0, 500, 1.0).is_ok());
    }

    #[test]
    fn a_random_loss_takes_no_room() {
        let mut link = link(Queue::Packets(1));
        assert_eq!(link.offer(0, 1_000, 0.05), Err(Drop::Random));
        assert!(link.offer(0, 1_000, 0.2).is_ok());
    }
}
