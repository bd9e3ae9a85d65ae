//! What this thread logs, to be looked at.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

/// What was logged.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Takes what is logged on this thread from now on, until the second value is dropped.
    pub fn of_this_thread() -> (Self, impl Drop) {
        let log = Self::default();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        (log, tracing_subscriber::util::SubscriberInitExt::set_default(lines))
    }

    /// Lines that hold `words`.
    pub fn lines(&self, words: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

impl Write for &Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}
