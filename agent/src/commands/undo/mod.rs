//! `undo`: shows what the agent has changed on this host, and undoes it, with or without a running agent.
//!
//! Everything is asked where it can be known: the running agent over its control socket, the kernel for routes with the agent's
//! signature and for programs of agents. The ledger records which of these routes are the agent's own.

mod look;
mod take_back;

use spand_proto::operator::Failure;

use crate::args::Undo;
use crate::config::Place;

pub(crate) fn undo(place: &Place, how: &Undo) -> Result<(), Failure> {
    if how.run { take_back::take_back(place, how.format) } else { look::look(place, how.format) }
}
