//! Says on a terminal how far a long run is.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Says it, at most five times a second; where standard error is no terminal, nothing.
pub fn progress(what: &str) {
    thread_local!(static PRINTED: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) });
    let due = PRINTED.get().is_none_or(|at| at.elapsed() > Duration::from_millis(200));
    if due && stderr().is_terminal() {
        PRINTED.set(Some(Instant::now()));
        // Nobody is harmed where the terminal is gone.
        drop(write!(stderr(), "\r\x1b[K{what}"));
    }
}

/// Waits so long, and says meanwhile how much of it is left.
pub fn wait(what: &str, length: Duration) {
    let begun = Instant::now();
    while let Some(left) = length.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        progress(&format!("{what}: {} s to go", left.as_secs() + 1));
        std::thread::sleep(left.min(Duration::from_millis(200)));
    }
}
