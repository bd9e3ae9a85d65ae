//! Starts from the SYN on a mirror port to the message at a subscribed host, each timed by the clock of this process.

pub mod subscriber;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Both ends of a push: when each SYN was sent and when its message came, nanoseconds since the start; 0 is not yet.
#[derive(Debug)]
pub struct Ledger {
    started: Instant,
    sent: Vec<AtomicU64>,
    received: Vec<AtomicU64>,
}

/// Which end of a push.
#[derive(Clone, Copy, Debug)]
enum End {
    Sent,
    Received,
}

impl Ledger {
    /// For `count` SYNs.
    pub fn new(count: usize) -> Self {
        let moments = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { started: Instant::now(), sent: moments(), received: moments() }
    }

    /// SYNs that it has room for.
    pub const fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether it has room for none.
    pub const fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    fn note(&self, end: End, number: usize) {
        let moments = match end {
            End::Sent => &self.sent,
            End::Received => &self.received,
        };
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        if let Some(moment) = moments.get(number) {
            // The first message counts.
            _ = moment.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Delays of what was sent and arrived, sorted, and how many never did; of those SYNs that `is_asked` names by when they were sent.
    pub fn delays(&self, is_asked: impl Fn(Instant) -> bool) -> (Vec<Duration>, usize) {
        let pairs = self.sent.iter().zip(&self.received);
        let pairs = pairs.map(|(sent, received)| (sent.load(Ordering::Relaxed), received.load(Ordering::Relaxed)));
        let (mut delays, mut missing) = (Vec::new(), 0);
        for (sent, received) in pairs.filter(|&(sent, _)| sent > 0) {
            if !is_asked(self.started + Duration::from_nanos(sent)) {
                continue;
            }
            if received == 0 {
                missing += 1;
            } else {
                delays.push(Duration::from_nanos(received.saturating_sub(sent)));
            }
        }
        delays.sort_unstable();
        (delays, missing)
    }
}

/// The value that N per mille of these, sorted, do not exceed.
pub fn at_per_mille(sorted: &[Duration], per_mille: usize) -> Duration {
    let place = (sorted.len() * per_mille / 1_000).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}

/// The inside host of subscriber `index`.
pub fn host(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, u8::try_from(index % 250).unwrap_or(0) + 1)
}

/// The destination of SYN `number`: networks in turn, and in each another address, so that the address tells the number.
pub fn remote(number: usize, networks: usize) -> Ipv4Addr {
    let (network, turn) = (number % networks, number / networks);
    let [_, _, high, low] = u32::try_from(network).unwrap_or(0).to_be_bytes();
    Ipv4Addr::new(80, high, low, u8::try_from(turn + 1).unwrap_or(u8::MAX))
}

/// The number of the SYN that went to `remote`.
fn number_of(remote: Ipv4Addr, networks: usize) -> usize {
    let [_, high, low, turn] = remote.octets();
    usize::from(turn.saturating_sub(1)) * networks + (usize::from(high) << 8) + usize::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_tells_the_number_of_its_syn() {
        for number in [0, 1, 299, 300, 76_199] {
            assert_eq!(number_of(remote(number, 300), 300), number);
        }
    }

    #[test]
    fn delays_are_of_what_was_asked_for_and_what_never_came_is_counted() {
        let ledger = Ledger::new(3);
        for number in 0..3 {
            ledger.note(End::Sent, number);
        }
        ledger.note(End::Received, 1);
        let (delays, missing) = ledger.delays(|_| true);
        assert_eq!((delays.len(), missing), (1, 2));
        assert_eq!(ledger.delays(|_| false), (Vec::new(), 0));
    }
}
