//! What a thread logs, to be looked at.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};

/// What each thread logged. One subscriber for all: one for each thread would miss lines whose place another thread
/// passed first.
static LINES: Mutex<Option<HashMap<ThreadId, Vec<u8>>>> = Mutex::new(None);
static STARTED: Once = Once::new();

/// What was logged on a thread, and so by the tasks of a runtime that has no other.
#[derive(Clone, Copy, Debug)]
pub struct Log(ThreadId);

impl Log {
    /// What this thread logs from now on.
    pub fn of_this_thread() -> Self {
        STARTED.call_once(|| {
            let started = tracing_subscriber::fmt().with_ansi(false).with_writer(|| ToThread).try_init();
            // Where a test has one of its own, nothing is found here, and it fails.
            drop(started);
        });
        Self(thread::current().id())
    }

    /// Lines that hold `words`.
    pub fn lines(self, words: &str) -> Vec<String> {
        let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let own = lines.as_ref().and_then(|all| all.get(&self.0)).map_or(&[][..], Vec::as_slice);
        let text = String::from_utf8_lossy(own);
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

struct ToThread;

impl Write for ToThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let own = lines.get_or_insert_default().entry(thread::current().id()).or_default();
        own.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
