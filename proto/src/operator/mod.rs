//! What both programs owe the person who runs them: exit codes, one sentence per failure, and faults of a configuration
//! that name file, line and key.
//!
//! Does not: read files, print, log or end a process. The programs do.

mod config;
mod failure;
mod log;

pub use config::{ConfigError, parse};
pub use failure::{ENVIRONMENT, Failure, USAGE};
pub use log::{Log, LogFormat};
