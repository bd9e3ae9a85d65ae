//! An allocator that knows how much is out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of the bytes that are out.
#[derive(Debug)]
pub struct Counting(AtomicUsize);

impl Counting {
    /// Nothing is out.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Bytes that are out.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

// SAFETY: every call is the system allocator's, with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.0.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}
