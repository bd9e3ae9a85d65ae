//! An allocator that counts what each thread holds: set as the global one of a test program, it says what things really take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};

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

// What a process uses: for benchmarks that tell it.

/// What a process holds in memory: by its number, or `self`.
///
/// # Errors
/// Where `/proc` does not say.
pub fn resident_bytes(process: &str) -> anyhow::Result<u64> {
    const PAGE_BYTES: u64 = 4_096;
    let path = format!("/proc/{process}/statm");
    let statm = fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))?;
    let pages = statm.split(' ').nth(1).with_context(|| format!("{path} has no second number"))?;
    Ok(pages.parse::<u64>()? * PAGE_BYTES)
}

/// Processor time of this thread.
///
/// # Errors
/// Where the kernel does not say.
pub fn thread_time() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Processor time of a process's threads by name, those of one name together: of the process by its number, or `self`.
///
/// # Errors
/// Where `/proc` does not say.
pub fn threads_time(process: &str) -> anyhow::Result<BTreeMap<String, Duration>> {
    let mut times = BTreeMap::<String, Duration>::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let folder = thread?.path();
        // One that ended meanwhile has no files.
        let read = |file| fs::read_to_string(folder.join(file)).ok();
        let Some((name, spent)) = read("comm").zip(read("schedstat")) else { continue };
        let nanos: u64 = spent.split(' ').next().context("no time in schedstat")?.parse()?;
        *times.entry(name.trim_end().to_owned()).or_default() += Duration::from_nanos(nanos);
    }
    Ok(times)
}

/// Processor time of all children that were waited for, and the most memory that one of them held.
///
/// # Errors
/// Where the kernel does not say.
pub fn children() -> anyhow::Result<(Duration, u64)> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = duration(usage.user_time())? + duration(usage.system_time())?;
    Ok((time, u64::try_from(usage.max_rss())? * 1_024))
}

fn duration(time: TimeVal) -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(u64::try_from(time.tv_sec())?) + Duration::from_micros(u64::try_from(time.tv_usec())?))
}
