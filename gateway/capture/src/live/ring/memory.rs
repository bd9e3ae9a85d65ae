//! The ring's memory: which block is ours, and for how long.

#![expect(unsafe_code, reason = "the memory is mapped, and shared with the kernel")]

use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{TP_STATUS_KERNEL, TP_STATUS_USER, tpacket_block_desc, tpacket_hdr_v1};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Where a block says whose it is.
const STATUS_AT: usize = offset_of!(tpacket_block_desc, hdr) + offset_of!(tpacket_hdr_v1, block_status);

/// A mapped ring of blocks. The blocks are used in turn; at most one is held.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    /// The block that is held, or that will be taken next.
    turn: usize,
    held: bool,
}

// SAFETY: the mapping belongs to this value alone, and nothing of it is bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `socket`, which was set up with as many blocks of that size.
    pub(super) fn map(socket: BorrowedFd<'_>, block_bytes: NonZeroUsize, blocks: NonZeroUsize) -> Result<Self, Errno> {
        if block_bytes.get() < size_of::<tpacket_block_desc>() {
            return Err(Errno::EINVAL);
        }
        let length = block_bytes.checked_mul(blocks).ok_or(Errno::EOVERFLOW)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; no memory in use is replaced. The kernel refuses a
        // length that is not the ring's (`packet_mmap`).
        let base = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, socket, 0) }?;
        Ok(Self { base: base.cast(), block_bytes: block_bytes.get(), blocks: blocks.get(), turn: 0, held: false })
    }

    /// Takes the next block if the kernel has handed it over.
    pub(super) fn acquire(&mut self) -> bool {
        // Acquire: what the kernel wrote before it set the status is seen after it (`smp_wmb` in `prb_close_block`).
        self.held = self.held || self.status().load(Ordering::Acquire) & TP_STATUS_USER != 0;
        self.held
    }

    /// The block that is held.
    pub(super) fn held(&mut self) -> Option<&mut [u8]> {
        if !self.held {
            return None;
        }
        // SAFETY: block `turn` lies inside the mapping (`turn < blocks`, so the product is below the mapped length), which
        // lives as long as `self`. It was handed over to this process, so the kernel writes nothing there until
        // `release`, which cannot run while the slice is borrowed. Its bytes are initialised: the kernel zeroes the ring.
        Some(unsafe { slice::from_raw_parts_mut(self.block().as_ptr(), self.block_bytes) })
    }

    /// Gives the block that is held back to the kernel.
    pub(super) fn release(&mut self) {
        if !self.held {
            return;
        }
        self.held = false;
        // Release: everything read from the block was read before.
        self.status().store(TP_STATUS_KERNEL, Ordering::Release);
        self.turn = (self.turn + 1) % self.blocks;
    }

    fn block(&self) -> NonNull<u8> {
        // SAFETY: `turn < blocks`, so the offset stays inside the mapping.
        unsafe { self.base.add(self.turn * self.block_bytes) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: inside the block (`map` refuses smaller ones) and aligned (blocks are whole pages, the field's offset
        // is a multiple of four). Both sides only read and write it whole; a slice of the block is never alive here,
        // since it borrows `self` mutably.
        unsafe { AtomicU32::from_ptr(self.block().add(STATUS_AT).cast().as_ptr()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, of that length; no slice of it outlives `self`.
        let unmapped = unsafe { munmap(self.base.cast(), self.block_bytes * self.blocks) };
        debug_assert!(unmapped.is_ok(), "the ring could not be unmapped: {unmapped:?}");
    }
}
