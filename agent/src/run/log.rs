//! Where log lines go.

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};
use crate::exit::Failure;

/// Starts to log to standard error.
pub(super) fn start(log: &Log) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&log.filter)
        .map_err(|error| Failure::Usage(format!("log.filter `{}`: {error}", log.filter)))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::Environment(format!("cannot start the log: {error}")))
}
