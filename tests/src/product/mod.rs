//! The product's own programs, run as a user would run them, inside the lab's namespaces: their configuration, their start
//! and stop, what they answer and what they set.

mod advice;
mod asking;
mod daemon;
pub mod interrupt;
mod measured;
mod running;
mod setup;
pub mod standing_in;

pub use advice::granted;
pub use asking::{Api, Asking, Waits};
pub use daemon::{Agent, Daemon, Ended, Gateway};
pub use measured::MeasuredGateway;
pub use running::{Product, print_addresses, stop_agent};
pub use setup::{AgentSetup, ApplyMethod, GatewaySetup, Mode, Sharing, StartVariant};

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A program of the product: as given, or in this one's folder.
pub fn program(given: Option<&Path>, name: &str) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let own = std::env::current_exe().context("cannot find this program's path")?;
    Ok(own.parent().context("this program is in no folder")?.join(name))
}
