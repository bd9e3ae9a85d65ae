//! Answers the questions of a simulated network with the project's own code: the child of the scripts in `tests/papers`.

use std::io::{self, BufReader};
use std::process::ExitCode;

use anyhow::{Context, Result};
use spand_tests::ending::exit_code;

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    spand_tests::oracle::serve(BufReader::new(io::stdin().lock()), io::stdout().lock())
        .context("the conversation with the simulator broke off")
}
