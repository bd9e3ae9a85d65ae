//! How the programs of this crate end: 0, or one sentence on standard error and an exit code that says whose fault it was.

use std::error::Error;
use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::process::{ExitCode, Termination, exit};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use spand_proto::operator::{ENVIRONMENT, USAGE};

/// Exit code where the machine was too busy for what was asked (`EX_TEMPFAIL` of sysexits.h).
pub const TOO_BUSY: u8 = 75;
/// The end of every `--help`.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 it failed, and a sentence says why; 64 the command line is wrong; 75 this \
                          machine was too busy: try again when it is not";

/// A wait that ran out on something that was alive and slow: it says nothing of what was to be shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TooBusy {
    what: String,
    within: Duration,
}

impl TooBusy {
    /// `what` is a noun: it did not happen within this time.
    pub fn new(what: impl Into<String>, within: Duration) -> Self {
        Self { what: what.into(), within }
    }
}

impl fmt::Display for TooBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine was too busy: {} did not happen within {} s", self.what, self.within.as_secs())
    }
}

impl Error for TooBusy {}

/// The command line; a wrong one ends the process.
pub fn arguments<A: Parser>() -> A {
    let matches = A::command().after_help(EXIT_CODES).try_get_matches();
    matches.and_then(|mut matches| A::from_arg_matches_mut(&mut matches)).unwrap_or_else(|error| {
        // Where the message cannot be written either, the code still says it.
        _ = error.print();
        exit(if error.use_stderr() { USAGE.into() } else { 0 })
    })
}

/// The end of `main`: says why something failed, in one sentence with its causes.
pub fn exit_code(outcome: Result<impl Termination>) -> ExitCode {
    match outcome {
        Ok(done) => done.report(),
        Err(error) => {
            if let Some(busy) = error.downcast_ref::<TooBusy>() {
                eprintln!("{busy}");
                return ExitCode::from(TOO_BUSY);
            }
            eprintln!("error: {error:#}");
            ExitCode::from(ENVIRONMENT)
        }
    }
}

// Says on a terminal how far a long run is.

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

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn a_wait_that_ran_out_has_an_exit_code_of_its_own_under_whatever_was_being_done() {
        let busy = TooBusy::new("the gateway's start", Duration::from_secs(10));
        let sentence = "this machine was too busy: the gateway's start did not happen within 10 s";
        assert_eq!(busy.to_string(), sentence);
        let outcome = Err::<(), _>(busy).context("cannot show anything");
        assert_eq!(exit_code(outcome), ExitCode::from(75));
        assert_eq!(exit_code(Err::<(), _>(anyhow!("another fault"))), ExitCode::from(1));
        assert_eq!(exit_code(Ok(ExitCode::from(3))), ExitCode::from(3));
    }
}
