//! What the programs may still do once they run, thread by thread, and faults of the machine around a whole gateway or agent.
//!
//! A program of its own: started under the name of one of the product's programs it is that program. Each case has its own
//! network namespaces, and all run side by side. What is refused to a confined process is tried in `confine/tests/refused`.

mod agent;
mod faults;
mod gateway;
mod names;
mod off;
mod partition;
mod share;
mod stage;
mod stranger;
mod supervisor;

use std::process::ExitCode;

use spand_tests::product::standing_in::{Case, run_cases, stand_in};

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| {
        let cases = [
            gateway::CASES,
            agent::CASES,
            faults::CASES,
            partition::CASES,
            share::CASES,
            names::CASES,
            off::CASES,
            stranger::CASES,
            supervisor::CASES,
        ]
        .concat();
        run_cases("process", cases)
    })
}
