//! A file in memory, for readers that want a path.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A file that is rewritten for every case.
#[derive(Debug)]
pub struct Scratch(File);

impl Scratch {
    /// An empty one.
    pub fn new() -> Self {
        Self(memfd_create("fuzz", MFdFlags::empty()).expect("a file in memory").into())
    }

    /// The path of a file that holds `bytes` until the next call.
    pub fn holding(&mut self, bytes: &[u8]) -> PathBuf {
        self.0.set_len(0).expect("room for nothing");
        self.0.seek(SeekFrom::Start(0)).expect("its start");
        self.0.write_all(bytes).expect("room in memory");
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}
