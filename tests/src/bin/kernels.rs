//! The product on the kernels that people run, each in a guest without KVM (`make kernels`).
//!
//! Started under the name of one of the product's programs it is that program, so that a guest holds one file for all.

use std::process::ExitCode;

use spand_tests::ending::{arguments, exit_code};
use spand_tests::kernels::run;
use spand_tests::product::standing_in::stand_in;

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| exit_code(run(arguments())))
}
