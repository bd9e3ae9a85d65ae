//! Where log lines go.

use std::io::stderr;

use spand_proto::operator::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

/// Starts to log to standard error. A second start in one process changes nothing.
pub(super) fn start(log: &Log) {
    // The filter was checked with the configuration.
    let filter = EnvFilter::builder().parse_lossy(&log.filter);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_target(false);
    let started = match log.format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    drop(started);
}
