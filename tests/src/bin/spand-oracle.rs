//! Answers the questions of a simulated network with the project's own code: the child of the scripts in `tests/papers`.

use std::io::{self, BufReader};

use anyhow::{Context, Result};

fn main() -> Result<()> {
    spand_tests::oracle::serve(BufReader::new(io::stdin().lock()), io::stdout().lock())
        .context("the conversation with the simulator broke off")
}
