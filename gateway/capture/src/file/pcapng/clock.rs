//! The clock of an interface: ticks of a stated length since a stated second.

use spand_proto::units::Timestamp;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Turns ticks into nanoseconds since 1970.
pub(super) struct Clock {
    tick: Tick,
    /// Seconds to add (`if_tsoffset`).
    offset_s: i64,
}

#[derive(Clone, Copy)]
enum Tick {
    /// A tick is this many nanoseconds.
    Nanos(u64),
    /// This many ticks are a nanosecond.
    PerNano(u64),
    /// A tick is this negative power of two of a second.
    BinaryFraction(u8),
}

impl Clock {
    /// From `if_tsresol` (a negative power of ten, or of two where the top bit is set; a millionth where it is absent)
    /// and `if_tsoffset` in seconds.
    pub(super) fn new(resolution: Option<u8>, offset_s: i64) -> Self {
        let resolution = resolution.unwrap_or(6);
        let exponent = resolution & 0x7f;
        let tick = if resolution & 0x80 != 0 {
            Tick::BinaryFraction(exponent)
        } else if exponent <= 9 {
            Tick::Nanos(10u64.pow(u32::from(9 - exponent)))
        } else {
            // A tick too short for 64 bits to count makes every time zero.
            Tick::PerNano(10u64.checked_pow(u32::from(exponent - 9)).unwrap_or(u64::MAX))
        };
        Self { tick, offset_s }
    }

    /// The moment of a packet; what lies before 1970 or after 2554 is moved to that end.
    pub(super) fn timestamp(&self, ticks: u64) -> Timestamp {
        let nanos = match self.tick {
            Tick::Nanos(nanos) => ticks.saturating_mul(nanos),
            Tick::PerNano(ticks_per_nano) => ticks / ticks_per_nano,
            // Below 2^94, so the product fits; the shift is at most 127.
            Tick::BinaryFraction(exponent) => {
                u64::try_from((u128::from(ticks) * u128::from(NANOS_PER_SECOND)) >> exponent).unwrap_or(u64::MAX)
            }
        };
        let offset = self.offset_s.unsigned_abs().saturating_mul(NANOS_PER_SECOND);
        Timestamp(if self.offset_s < 0 { nanos.saturating_sub(offset) } else { nanos.saturating_add(offset) })
    }
}
