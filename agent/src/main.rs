//! The program `spand-agent`. Everything it does is in the library.

use std::process::ExitCode;

use clap::Parser;
use spand_agent::cli::{self, Cli};
use spand_proto::operator::USAGE;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
            // If the message cannot be written either, the exit code remains.
            _ = error.print();
            return code;
        }
    };
    match cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}
