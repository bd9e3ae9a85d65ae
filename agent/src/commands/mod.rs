//! What the commands print.
//!
//! Each prints one object with `--json`, in the shapes of [`crate::control`], and a few lines for people otherwise.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use spand_proto::operator::Failure;

mod explain;
mod metrics;
mod pause;
mod probe;
mod query;
mod status;
mod undo;

pub(crate) use explain::explain;
pub(crate) use metrics::metrics;
pub(crate) use pause::{pause, resume};
pub(crate) use probe::probe;
pub(crate) use query::query;
pub(crate) use status::status;
pub(crate) use undo::undo;

use crate::config::Config;
use crate::subscriber::Dialer;

pub(crate) fn check_config(path: &Path) -> Result<(), Failure> {
    let config = Config::load(path)?;
    Dialer::new(&config)?;
    let text = toml::to_string(&config)
        .map_err(|error| Failure::Environment(format!("cannot print the configuration: {error}")))?;
    print(&format!("# In force with {}.\n{text}", path.display()))
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::environment)?;
    print(&text)
}

/// Prints, and takes a reader that had enough (`| head`) for success.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Environment(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}
