//! The program `spand-gateway`. Everything it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    spand_gateway::cli::main()
}
