//! Ctrl-C and SIGTERM: noticed, so that everything is taken down in order.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static CAME: AtomicBool = AtomicBool::new(false);

/// From now on both signals only leave a note.
pub fn install() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }.context("cannot catch signals")?;
    }
    Ok(())
}

/// Whether one came.
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

extern "C" fn note(_signal: libc::c_int) {
    CAME.store(true, Ordering::Relaxed);
}
