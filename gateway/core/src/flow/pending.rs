//! A sender's round trips since they were last flushed to its network: small, since every followed sender has one.

use spand_proto::units::Micros;

use crate::flow::maybe::MaybeMicros;
use crate::types::{LimitCounts, Limiter, RttSum};

/// Round-trip times, and round trips by what limited them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingStats {
    sum_us: u64,
    count: u32,
    min: MaybeMicros,
    /// Not flushed: the newest of all.
    newest: MaybeMicros,
    window: u16,
    receiver: u16,
    application: u16,
    delivered: u32,
}

impl PendingStats {
    /// A round-trip time: `measured` on the wire, `taken` for the mean.
    pub(crate) fn add(&mut self, measured: Micros, taken: Micros) {
        self.newest = MaybeMicros::some(measured);
        self.count = self.count.saturating_add(1);
        self.sum_us = self.sum_us.saturating_add(taken.0);
        self.min = MaybeMicros::some(self.min.get().map_or(measured, |min| min.min(measured)));
    }

    /// Bytes that an acknowledgement says have arrived.
    pub(crate) fn deliver(&mut self, bytes: u64) {
        self.delivered = self.delivered.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// All of these bytes.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.into()
    }

    /// What is there since the last flush; the newest round-trip time stays.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { newest: self.newest, ..Self::default() })
    }

    /// The newest round-trip time, as measured.
    pub(crate) fn newest(&self) -> Option<Micros> {
        self.newest.get()
    }

    /// A round trip that this limited.
    pub(crate) fn count(&mut self, limiter: Limiter) {
        let count = match limiter {
            Limiter::Unknown => return,
            Limiter::Window => &mut self.window,
            Limiter::Receiver => &mut self.receiver,
            Limiter::Application => &mut self.application,
        };
        *count = count.saturating_add(1);
    }

    /// The round-trip times.
    pub(crate) fn rtts(&self) -> RttSum {
        RttSum { count: self.count.into(), sum: Micros(self.sum_us), min: self.min.get() }
    }

    /// What limited them.
    pub(crate) fn limits(&self) -> LimitCounts {
        LimitCounts { window: self.window.into(), receiver: self.receiver.into(), application: self.application.into() }
    }
}
