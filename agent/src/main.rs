//! The program `spand-agent`. Everything it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    spand_agent::cli::main()
}
