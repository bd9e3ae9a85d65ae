//! The interface description block: link type, snap length and clock.

use super::clock::Clock;
use crate::LinkType;
use crate::file::byte_order::ByteOrder;

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
