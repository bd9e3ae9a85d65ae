//! `undo`: shows what the agent has changed on this host, and undoes it, with or without a running agent.
//!
//! Everything is asked where it can be known: the running agent over its control socket, the kernel for routes with the agent's
//! signature and for programs of agents. The ledger records which of these routes are the agent's own.

mod look;
mod take_back;

use std::path::Path;

use spand_proto::operator::Failure;

use crate::args::Undo;
use crate::config::{Config, DEFAULT_PATH};

pub(crate) fn undo(config: &Config, path: &Path, how: Undo) -> Result<(), Failure> {
    if how.run { take_back::take_back(config, path, how.format) } else { look::look(config, path, how.format) }
}

/// A command of this program with this configuration, to be pasted.
fn command(path: &Path, command: &str) -> String {
    if path == Path::new(DEFAULT_PATH) {
        return format!("spand-agent {command}");
    }
    let path = path.display().to_string().replace('\'', "'\\''");
    format!("spand-agent --config '{path}' {command}")
}
