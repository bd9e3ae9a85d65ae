//! The pcapng format: sections of blocks (draft-ietf-opsawg-pcapng).
//!
//! Packets come from enhanced, simple and the obsolete packet blocks; interface descriptions have their link type and
//! clock; everything else is stepped over unread.

mod interface;

use super::input::{Input, WINDOW_BYTES};
use super::pcap::ByteOrder;
use super::{Fault, MAX_PACKET_BYTES, Record};
use crate::SourceStats;
use interface::Interface;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Block type and length before, length again after the body.
const BLOCK_OVERHEAD_BYTES: u32 = 12;
/// Largest block stepped over, as in libpcap; a larger length is damage.
const MAX_BLOCK_BYTES: u32 = 16 << 20;
/// Most interfaces kept for one section.
const MAX_INTERFACES: usize = 65_536;
/// An interface description is read this far for its clock; what follows are names and comments.
const MAX_DESCRIPTION_BYTES: u32 = 65_536;

/// Reads blocks, from the first section header on.
pub(super) struct PcapngBlocks {
    order: ByteOrder,
    /// Of the current section.
    interfaces: Vec<Interface>,
    /// Interfaces of the sections before.
    earlier_interfaces: u32,
}

/// The block at the front of the input.
#[derive(Clone, Copy)]
struct Block {
    kind: u32,
    total: u32,
}

/// Where a packet lies in its block.
struct Place {
    local_interface: u32,
    ticks: Option<u64>,
    captured: u32,
    wire: u32,
    data_at: usize,
}

impl Block {
    fn check_trailer(self, trailer: u32) -> Result<(), Fault> {
        let Self { kind, total } = self;
        if trailer == total {
            return Ok(());
        }
        Err(Fault::Damaged(format!("a block of type {kind} gives its length as {total} bytes and then as {trailer}")))
    }
}

impl PcapngBlocks {
    /// Whether a file that starts so is pcapng.
    pub(super) fn recognises(start: &[u8]) -> bool {
        start.starts_with(&SECTION_HEADER.to_be_bytes())
    }

    /// Reads the first section header and steps past it.
    pub(super) fn open(input: &mut Input) -> Result<Self, Fault> {
        let mut blocks = Self { order: ByteOrder::Little, interfaces: Vec::new(), earlier_interfaces: 0 };
        if let Some(block) = blocks.block(input)? {
            blocks.step_over(input, block)?;
        }
        Ok(blocks)
    }

    /// Finds the next packet's block, left at the front of `input`. False: the file has ended.
    ///
    /// A block without a time leaves the one in `record`, of the packet before.
    pub(super) fn next(
        &mut self,
        input: &mut Input,
        record: &mut Record,
        stats: &mut SourceStats,
    ) -> Result<bool, Fault> {
        while let Some(block) = self.block(input)? {
            match block.kind {
                ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET => {
                    if self.packet(input, block, record)? {
                        stats.untimed += u64::from(record.untimed);
                        return Ok(true);
                    }
                    stats.unreadable += 1;
                }
                INTERFACE_DESCRIPTION => self.describe(input, block)?,
                _ => {}
            }
            self.step_over(input, block)?;
        }
        Ok(false)
    }

    /// Type and length of the next block. A section header takes effect here, since its length is already in the byte
    /// order that it announces.
    fn block(&mut self, input: &mut Input) -> Result<Option<Block>, Fault> {
        input.begin_record();
        let mut window = input.peek(BLOCK_OVERHEAD_BYTES as usize)?;
        if window.is_empty() {
            return Ok(None);
        }
        if window.len() < BLOCK_OVERHEAD_BYTES as usize {
            let missing = u64::from(BLOCK_OVERHEAD_BYTES) - window.len() as u64;
            return Err(Fault::Truncated { what: "block", missing });
        }
        let is_section = Self::recognises(window);
        if is_section {
            window = input.peek(16)?;
            self.begin_section(window)?;
        }
        let header = self.order.u32(window, 0).zip(self.order.u32(window, 4));
        let Some((kind, total)) = header else { return Ok(None) };
        let least = if is_section { 28 } else { BLOCK_OVERHEAD_BYTES };
        if total < least || total > MAX_BLOCK_BYTES || total % 4 != 0 {
            return Err(Fault::Damaged(format!("a block of type {kind} claims a length of {total} bytes")));
        }
        Ok(Some(Block { kind, total }))
    }

    fn begin_section(&mut self, window: &[u8]) -> Result<(), Fault> {
        self.order = if ByteOrder::Little.u32(window, 8) == Some(BYTE_ORDER_MAGIC) {
            ByteOrder::Little
        } else if ByteOrder::Big.u32(window, 8) == Some(BYTE_ORDER_MAGIC) {
            ByteOrder::Big
        } else {
            return Err(Fault::Damaged("a section header without the byte-order mark".to_owned()));
        };
        let Some((major, minor)) = self.order.u16(window, 12).zip(self.order.u16(window, 14)) else {
            return Err(Fault::Truncated {
                what: "section header",
                missing: 16u64.saturating_sub(window.len() as u64),
            });
        };
        if major != 1 {
            return Err(Fault::Damaged(format!("a section of pcapng version {major}.{minor}; only 1.x is known")));
        }
        let seen = u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX);
        self.earlier_interfaces = self.earlier_interfaces.saturating_add(seen);
        self.interfaces.clear();
        Ok(())
    }

    /// Steps past a block, checking that its length is repeated at its end: otherwise the next one starts elsewhere.
    fn step_over(&self, input: &mut Input, block: Block) -> Result<(), Fault> {
        let body = u64::from(block.total - 4);
        let skipped = input.skip(body)?;
        let window = input.peek(4)?;
        let Some(trailer) = self.order.u32(window, 0) else {
            let missing = body - skipped + 4 - window.len() as u64;
            return Err(Fault::Truncated { what: "block", missing });
        };
        block.check_trailer(trailer)?;
        input.consume(4);
        Ok(())
    }

    fn describe(&mut self, input: &mut Input, block: Block) -> Result<(), Fault> {
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(Fault::Damaged(format!("more than {MAX_INTERFACES} interfaces in one section")));
        }
        let wanted = block.total.min(MAX_DESCRIPTION_BYTES) as usize;
        let window = input.peek(wanted)?;
        let body = window.get(8..wanted.saturating_sub(4).min(window.len())).unwrap_or_default();
        // One that is too short for a link type still has a number; its packets are then unreadable.
        self.interfaces.push(Interface::parse(self.order, body));
        Ok(())
    }

    /// Fills in the packet of `block`. False: the block is whole but nothing can be made of it.
    fn packet(&self, input: &mut Input, block: Block, record: &mut Record) -> Result<bool, Fault> {
        let total = block.total as usize;
        if total > WINDOW_BYTES {
            return Ok(false);
        }
        let window = input.peek(total)?;
        let Some(bytes) = window.get(..total) else {
            return Err(Fault::Truncated { what: "packet block", missing: (total - window.len()) as u64 });
        };
        if let Some(trailer) = self.order.u32(bytes, total - 4) {
            block.check_trailer(trailer)?;
        }
        Ok(self.locate(bytes, block).and_then(|place| self.fill(&place, total, record)).is_some())
    }

    fn locate(&self, bytes: &[u8], block: Block) -> Option<Place> {
        let u32_at = |at| self.order.u32(bytes, at);
        let ticks = || Some(u64::from(u32_at(12)?) << 32 | u64::from(u32_at(16)?));
        match block.kind {
            SIMPLE_PACKET => {
                let wire = u32_at(8)?;
                let room = block.total.checked_sub(16)?;
                let snap_len = self.interfaces.first()?.snap_len.unwrap_or(u32::MAX);
                Some(Place {
                    local_interface: 0,
                    ticks: None,
                    captured: wire.min(room).min(snap_len),
                    wire,
                    data_at: 12,
                })
            }
            kind => {
                let local_interface =
                    if kind == ENHANCED_PACKET { u32_at(8)? } else { u32::from(self.order.u16(bytes, 8)?) };
                Some(Place {
                    local_interface,
                    ticks: Some(ticks()?),
                    captured: u32_at(20)?,
                    wire: u32_at(24)?,
                    data_at: 28,
                })
            }
        }
    }

    fn fill(&self, place: &Place, total: usize, record: &mut Record) -> Option<()> {
        let interface = self.interfaces.get(usize::try_from(place.local_interface).ok()?)?;
        let link_type = interface.link_type?;
        let data_len = place.captured as usize;
        // Four bytes of trailer follow the packet.
        if place.captured > MAX_PACKET_BYTES || place.data_at + data_len + 4 > total {
            return None;
        }
        if let Some(ticks) = place.ticks {
            record.timestamp = interface.clock.timestamp(ticks);
        }
        record.untimed = place.ticks.is_none();
        record.link_type = link_type;
        record.wire_len = place.wire.max(place.captured);
        record.interface = self.earlier_interfaces.saturating_add(place.local_interface);
        record.data_at = place.data_at;
        record.data_len = data_len;
        record.total = total;
        Some(())
    }
}

#[cfg(test)]
mod tests;
