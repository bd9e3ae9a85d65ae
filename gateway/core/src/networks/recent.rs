//! Samples on their way to the dashboard: kept only if they are taken, and only a few at a time.

use std::collections::VecDeque;

use crate::types::WindowSample;

/// Samples that wait at most: a caller that takes them ten times a second sees 40,000 a second. At the limit the oldest is dropped,
/// counted.
const WAITING: usize = 4_096;

/// Samples that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    awake: bool,
    waiting: VecDeque<WindowSample>,
    /// Those dropped before they were taken.
    pub(crate) dropped: u64,
}

impl Recent {
    pub(super) fn note(&mut self, sample: &WindowSample) {
        if !self.awake {
            return;
        }
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(*sample);
    }

    /// Those that came since the last call; the first call only starts the account.
    pub(super) fn take(&mut self) -> Vec<WindowSample> {
        self.awake = true;
        self.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use spand_proto::units::{Bytes, Timestamp, Window};

    use super::*;
    use crate::types::{ConnectionId, SampleReason};

    #[test]
    fn a_bounded_number_waits_and_none_if_they_are_not_taken() {
        let sample = |n| WindowSample {
            at: Timestamp(n),
            network: "192.0.2.0/24".parse().unwrap(),
            remote: [192, 0, 2, 1].into(),
            connection: ConnectionId(n),
            window: Window::from_bytes(1.0).unwrap(),
            mss: Bytes(1_448),
            reason: SampleReason::Loss,
            reduced_before: false,
            transfer: Bytes(0),
            advised: false,
            rtt_min: None,
            rtt: None,
        };
        let mut recent = Recent::default();
        recent.note(&sample(0));
        assert_eq!((recent.take().len(), recent.dropped), (0, 0));
        (0..4_100).for_each(|n| recent.note(&sample(n)));
        let taken = recent.take();
        assert_eq!((taken.len(), taken[0].at, recent.dropped), (4_096, Timestamp(4), 4));
        assert_eq!(recent.take(), []);
    }
}
