//! A window onto the bytes of a capture: look ahead, then step past, without copying records out.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Progress;

/// Bytes of a file held at a time. It bounds the largest record that can be looked at whole: a packet of
/// [`MAX_PACKET_BYTES`](super::MAX_PACKET_BYTES) with its headers and options fits twice.
pub(super) const WINDOW_BYTES: usize = 1 << 20;

/// Bytes read at a time, unless a record needs more: few enough to stay in a processor's cache.
const READ_BYTES: usize = 1 << 16;

/// The front of a byte stream.
pub(super) struct Input {
    reader: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Position in the stream of `buffer[start]`.
    offset: u64,
    record_at: u64,
}

impl Input {
    pub(super) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self { reader, buffer: vec![0; WINDOW_BYTES].into_boxed_slice(), start: 0, end: 0, offset: 0, record_at: 0 }
    }

    /// Notes that a record begins here.
    #[inline]
    pub(super) fn begin_record(&mut self) {
        self.record_at = self.offset;
    }

    /// Position in the stream where the record began that was read last.
    pub(super) fn record_at(&self) -> u64 {
        self.record_at
    }

    /// Position in the stream up to which bytes were had.
    pub(super) fn read_to(&self) -> u64 {
        self.offset + self.window().len() as u64
    }

    /// What is held and not consumed.
    #[inline]
    pub(super) fn window(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// At least the next `wanted` bytes; fewer only where the stream ends before, or beyond [`WINDOW_BYTES`].
    ///
    /// An error means that the stream broke within them; what was had before is still in the window.
    #[inline]
    pub(super) fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.end - self.start < wanted {
            self.fill(wanted)?;
        }
        Ok(self.window())
    }

    #[cold]
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted {
            let to = self.buffer.len().min(wanted.max(self.end.saturating_add(READ_BYTES)));
            let Some(room) = self.buffer.get_mut(self.end..to).filter(|room| !room.is_empty()) else { break };
            match self.reader.read(room) {
                Ok(0) => break,
                Ok(n) => self.end = (self.end + n).min(self.buffer.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Steps past `n` bytes of the window, or all of it where it holds fewer.
    #[inline]
    pub(super) fn consume(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    /// Steps past `n` bytes, reading on as needed without holding them. Returns how many there were.
    pub(super) fn skip(&mut self, n: u64) -> io::Result<u64> {
        let mut left = n;
        while left > 0 {
            let held = self.peek(1)?.len();
            if held == 0 {
                break;
            }
            let step = usize::try_from(left).map_or(held, |left| left.min(held));
            self.consume(step);
            left -= step as u64;
        }
        Ok(n - left)
    }
}

/// Counts what is read from the disk, below any decompression.
#[derive(Clone, Default)]
pub(super) struct Meter {
    done_bytes: Arc<AtomicU64>,
    total_bytes: Option<u64>,
}

impl Meter {
    pub(super) fn new(total_bytes: Option<u64>) -> Self {
        Self { done_bytes: Arc::default(), total_bytes }
    }

    /// The reader, counted.
    pub(super) fn count<R: Read>(&self, reader: R) -> Metered<R> {
        Metered { reader, done_bytes: Arc::clone(&self.done_bytes) }
    }

    /// How far, where the size is known.
    pub(super) fn progress(&self) -> Option<Progress> {
        let total_bytes = self.total_bytes?;
        Some(Progress { done_bytes: self.done_bytes.load(Ordering::Relaxed), total_bytes })
    }
}

/// A reader whose bytes a [`Meter`] counts.
pub(super) struct Metered<R> {
    reader: R,
    done_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.done_bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
