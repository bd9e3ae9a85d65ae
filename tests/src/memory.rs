//! An allocator that counts what each thread holds: set as the global one of a test program, it says what things really take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static ASKED: Cell<Asked> = const { Cell::new(Asked { bytes: 0, most_bytes: 0, pieces: 0 }) };
}

/// What this thread has asked for, as it asked: that is the same in every run, whatever the allocator makes of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// Bytes that it did not give back; below 0 where it gave back another thread's.
    pub bytes: i64,
    /// The most that these were, since [`Asked::begin`].
    pub most_bytes: i64,
    /// How often it asked for a piece, or for a larger one in its place.
    pub pieces: i64,
}

impl Asked {
    /// So far.
    pub fn so_far() -> Self {
        ASKED.get()
    }

    /// The same; the most is counted from here on.
    pub fn begin() -> Self {
        let now = ASKED.get();
        ASKED.set(Self { most_bytes: now.bytes, ..now });
        now
    }
}

fn ask(taken: usize, given: usize) {
    let [taken, given] = [taken, given].map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    _ = ASKED.try_with(|asked| {
        let Asked { bytes, most_bytes, pieces } = asked.get();
        let bytes = bytes + taken - given;
        asked.set(Asked { bytes, most_bytes: most_bytes.max(bytes), pieces: pieces + i64::from(taken > 0) });
    });
}

/// Bytes that this thread was handed and did not give back, by what `malloc` says that each piece takes.
pub fn held_bytes() -> u64 {
    HELD.with(|held| u64::try_from(held.get()).unwrap_or(0))
}

/// The head that `malloc` puts before each piece.
const HEAD_BYTES: i64 = 8;

fn count(piece: *mut u8, sign: i64) {
    if !piece.is_null() {
        // SAFETY: the system's allocator, which is `malloc`, has just handed the piece out, or gets it back after this.
        let usable = unsafe { libc::malloc_usable_size(piece.cast()) };
        let bytes = i64::try_from(usable).unwrap_or(i64::MAX) + HEAD_BYTES;
        // A thread that ends frees its last pieces without an account.
        _ = HELD.try_with(|held| held.set(held.get() + sign * bytes));
    }
}

// SAFETY: every call is handed on as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let piece = unsafe { System.alloc(layout) };
        ask(layout.size(), 0);
        count(piece, 1);
        piece
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        count(piece, -1);
        ask(0, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(piece, layout) }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(piece, -1);
        // SAFETY: as the caller promises.
        let moved = unsafe { System.realloc(piece, layout, size) };
        ask(size, layout.size());
        count(if moved.is_null() { piece } else { moved }, 1);
        moved
    }
}
