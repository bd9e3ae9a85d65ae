//! What the programs may still do once they run, thread by thread, and faults of the machine around a whole gateway or agent.
//!
//! A program of its own: started under the name of one of the product's programs it is that program, and as `probe` it gives
//! up what it may do and then tries. Each case has its own network namespaces, and all run side by side.

mod agent;
mod faults;
mod gateway;
mod partition;
mod probe;
mod stage;

use std::process::ExitCode;

use spand_tests::product::standing_in::{Case, run_cases, stand_in};

fn main() -> ExitCode {
    stand_in(&[("probe", probe::run)]).unwrap_or_else(|| {
        let cases = [probe::CASES, gateway::CASES, agent::CASES, faults::CASES, partition::CASES].concat();
        run_cases("process", "the programs are started as root, which this is not", cases)
    })
}
