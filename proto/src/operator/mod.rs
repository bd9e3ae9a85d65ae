//! What both programs owe the person who runs them: exit codes, one sentence per failure, faults of a configuration that
//! name file, line and key, the log, and the JSON that both print: moments, advice, and what a `doctor` finds.
//!
//! Does not: read files, print or end a process. The programs do.

mod advice;
mod config;
mod diagnosis;
mod failure;
mod log;
mod logging;
mod moment;
mod renamed;

pub use advice::AdviceDocument;
pub use config::{ConfigError, or_default, parse, salvage, text};
pub use diagnosis::{
    Check, Diagnosis, LEAST_ROOM_BYTES, Verdict, judge_broken, judge_configuration, judge_directory, judge_kernel,
};
pub use failure::{ENVIRONMENT, FINDINGS, Failure, USAGE};
pub use log::{Log, LogFormat};
pub use logging::{LINES, WINDOW, lines_left_out};
pub use moment::{rfc3339, rfc3339_ms, rfc3339_ns, rfc3339_unix_s};
pub use renamed::Renamed;
