//! The interface description block: link type, snap length and clock.

use spand_proto::units::Timestamp;

use crate::LinkType;
use crate::file::pcap::ByteOrder;

const OPTION_END: u16 = 0;
pub(super) const OPTION_TSRESOL: u16 = 9;
pub(super) const OPTION_TSOFFSET: u16 = 14;

/// What packets of one interface have in common.
pub(super) struct Interface {
    /// `None` where the block was too short to say.
    pub(super) link_type: Option<LinkType>,
    /// Most bytes captured of a packet; `None` is no limit.
    pub(super) snap_len: Option<u32>,
    pub(super) clock: Clock,
}

impl Interface {
    /// Reads a block's body: link type, two reserved bytes, snap length, options.
    pub(super) fn parse(order: ByteOrder, body: &[u8]) -> Self {
        let mut resolution = None;
        let mut offset_s = 0;
        let mut options = body.get(8..).unwrap_or_default();
        while let Some((code, value, rest)) = next_option(order, options) {
            match code {
                OPTION_TSRESOL => resolution = value.first().copied(),
                OPTION_TSOFFSET => offset_s = order.i64(value, 0).unwrap_or(0),
                _ => {}
            }
            options = rest;
        }
        Self {
            link_type: order.u16(body, 0).map(LinkType::from_wire),
            snap_len: order.u32(body, 4).filter(|&snap_len| snap_len != 0),
            clock: Clock::new(resolution, offset_s),
        }
    }
}

/// Code and value of the first option, and the options after it, which start at a multiple of four bytes.
fn next_option(order: ByteOrder, options: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let code = order.u16(options, 0).filter(|&code| code != OPTION_END)?;
    let length = usize::from(order.u16(options, 2)?);
    let value = options.get(4..)?.get(..length)?;
    let rest = options.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
    Some((code, value, rest))
}

// The clock of an interface: ticks of a stated length since a stated second.

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
