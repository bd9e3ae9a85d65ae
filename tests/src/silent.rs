//! A replay's output that goes nowhere: its report is all that a test looks at.

use std::io;

use spand_gateway::replay::{Sink, State};

/// Takes what a replay prints, and its progress, and shows neither.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Sink for Silent {
    fn state(&mut self, _: &State) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: spand_capture::Progress) {}
}
