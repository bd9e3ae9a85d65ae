//! Several capture files in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use spand_proto::units::Timestamp;

use crate::{CaptureFile, Next, PacketSource, Progress, SourceError, SourceStats};

/// Merges files by the times of their next packets; equal times come in the order of the files.
///
/// Each file keeps its own order: where time runs backwards inside one, its packets come when their turn does and the
/// merge is no more ordered than the file. Every file holds its buffer (1 MiB, as far as it is filled) and one open
/// descriptor; how many files is for the caller, who opened them, to bound.
#[derive(Debug)]
pub struct MergedSource {
    name: String,
    files: Vec<CaptureFile>,
    /// Times of the packets the files wait with, and which file.
    waiting: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// Files that must be advanced before the next packet is chosen: all of them at first, then the last one chosen.
    to_advance: Vec<usize>,
}

impl MergedSource {
    /// Merges `files`; a packet's `source` is the index into them.
    pub fn new(files: Vec<CaptureFile>) -> Self {
        let name = match files.as_slice() {
            [file] => file.name().to_owned(),
            files => format!("{} files", files.len()),
        };
        let to_advance = (0..files.len()).rev().collect();
        Self { name, waiting: BinaryHeap::with_capacity(files.len()), files, to_advance }
    }

    /// The files, in the order they were given, for their own names and counters.
    pub fn files(&self) -> &[CaptureFile] {
        &self.files
    }
}

impl PacketSource for MergedSource {
    fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
        while let Some(index) = self.to_advance.pop() {
            let Some(file) = self.files.get_mut(index) else { continue };
            if file.advance()?
                && let Some(packet) = file.current()
            {
                self.waiting.push(Reverse((packet.timestamp, index)));
            }
        }
        let Some(Reverse((_, index))) = self.waiting.pop() else { return Ok(Next::End) };
        self.to_advance.push(index);
        let Some(mut packet) = self.files.get(index).and_then(CaptureFile::current) else { return Ok(Next::End) };
        packet.source = u32::try_from(index).unwrap_or(u32::MAX);
        Ok(Next::Packet(packet))
    }

    /// The sum over the files; a packet that waits for its turn counts as delivered.
    fn stats(&self) -> SourceStats {
        self.files.iter().map(PacketSource::stats).fold(SourceStats::default(), |sum, file| SourceStats {
            packets: sum.packets + file.packets,
            bytes: sum.bytes + file.bytes,
            backwards: sum.backwards + file.backwards,
            untimed: sum.untimed + file.untimed,
            unreadable: sum.unreadable + file.unreadable,
            ..sum
        })
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> Option<Progress> {
        self.files.iter().map(PacketSource::progress).try_fold(
            Progress { done_bytes: 0, total_bytes: 0 },
            |sum, file| {
                let file = file?;
                Some(Progress {
                    done_bytes: sum.done_bytes + file.done_bytes,
                    total_bytes: sum.total_bytes + file.total_bytes,
                })
            },
        )
    }
}
