//! A bottleneck as arithmetic: a rate, the drop-tail queue before it, marks, and the traffic that shares it.

use std::collections::VecDeque;

use spand_proto::units::BytesPerSecond;

use super::config::{Hop, Queue};
use super::cross::CrossTraffic;
use super::link::{Drop, Packet, nanoseconds};

/// A packet that got through.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Passed {
    /// When it is at the next bottleneck or the other side.
    pub(super) at_ns: u64,
    /// The queue was long enough for a mark.
    pub(super) marked: bool,
}

/// The state of one bottleneck. It must be offered packets in order of time.
#[derive(Debug)]
pub(super) struct Bottleneck {
    config: Hop,
    cross: Option<CrossTraffic>,
    /// Departure and size of every packet waiting or in service.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
    free_at_ns: u64,
    first_ns: Option<u64>,
}

impl Bottleneck {
    pub(super) fn new(config: Hop, seed: u64) -> Self {
        let cross = config.cross.map(|cross| CrossTraffic::new(cross, seed));
        Self { config, cross, waiting: VecDeque::new(), waiting_bytes: 0, free_at_ns: 0, first_ns: None }
    }

    /// Offers a packet at `now_ns`; before it come the packets of others.
    pub(super) fn pass(&mut self, now_ns: u64, packet: Packet) -> Result<Passed, Drop> {
        let length = self.config.cross.map_or(0, |cross| cross.packet_bytes);
        while let Some(at_ns) = self.cross.as_mut().and_then(|cross| cross.next_until(now_ns)) {
            // What becomes of it concerns nobody here.
            self.enqueue(at_ns, length).ok();
        }
        let found = self.waiting_at(now_ns);
        let departure_ns = self.enqueue(now_ns, packet.length)?;
        let marked = packet.ecn && self.config.mark_above.is_some_and(|above| found >= above as usize);
        Ok(Passed { at_ns: departure_ns.saturating_add(self.delay_at_ns(now_ns)), marked })
    }

    /// Time since its first packet.
    fn since_ns(&mut self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(*self.first_ns.get_or_insert(now_ns))
    }

    /// Its delay for a packet that comes now.
    fn delay_at_ns(&mut self, now_ns: u64) -> u64 {
        let since_ns = self.since_ns(now_ns);
        let changed = self.config.delay_change.filter(|change| nanoseconds(change.after) <= since_ns);
        nanoseconds(changed.map_or(self.config.delay, |change| change.delay))
    }

    /// Changes its rate from now on.
    pub(super) const fn set_rate(&mut self, rate: BytesPerSecond) {
        self.config.rate = Some(rate);
    }

    /// Packets waiting or in service.
    fn waiting_at(&mut self, now_ns: u64) -> usize {
        while let Some(&(departure_ns, bytes)) = self.waiting.front()
            && departure_ns <= now_ns
        {
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(bytes);
        }
        self.waiting.len()
    }

    /// Its rate for a packet that comes now.
    fn rate_at(&mut self, now_ns: u64) -> Option<BytesPerSecond> {
        let since_ns = self.since_ns(now_ns);
        let changes = self.config.changes.iter().flatten();
        let changed = changes.take_while(|change| nanoseconds(change.after) <= since_ns).last();
        changed.map(|change| change.rate).or(self.config.rate)
    }

    fn enqueue(&mut self, now_ns: u64, length: u32) -> Result<u64, Drop> {
        let Some(rate) = self.rate_at(now_ns) else { return Ok(now_ns) };
        let waiting = self.waiting_at(now_ns);
        let room = match self.config.queue {
            Queue::Packets(limit) => waiting < limit as usize,
            Queue::Bytes(limit) => self.waiting_bytes + u64::from(length) <= limit,
            // The emulator does not start with it.
            Queue::FqCodel => false,
        };
        if !room {
            return Err(Drop::Tail);
        }
        let service_ns = u64::from(length).saturating_mul(1_000_000_000) / rate.0.max(1);
        let departure_ns = self.free_at_ns.max(now_ns).saturating_add(service_ns);
        self.free_at_ns = departure_ns;
        self.waiting.push_back((departure_ns, length));
        self.waiting_bytes += u64::from(length);
        Ok(departure_ns)
    }
}
