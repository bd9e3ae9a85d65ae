//! What both programs owe the person who runs them: exit codes, one sentence per failure, faults of a configuration that
//! name file, line and key, the log, the JSON that both print: moments, advice, and what a `doctor` finds,
//! and the text formats of metrics.
//!
//! Does not: read files, print or end a process. The programs do.

mod advice;
mod config;
mod diagnosis;
mod exposition;
mod gone;
mod logging;
mod moment;
mod printable;
mod values;

pub use advice::AdviceDocument;
pub use config::{ConfigError, Renamed, or_default, parse, salvage, text};
pub use diagnosis::{
    Check, Diagnosis, ENVIRONMENT, FINDINGS, Failure, LEAST_ROOM_BYTES, USAGE, Verdict, judge_broken,
    judge_configuration, judge_directory, judge_kernel,
};
pub use exposition::Exposition;
pub use gone::{Gone, refuse_gone};
pub use logging::{LINES, Log, LogFormat, WINDOW, lines_left_out};
pub use moment::{rfc3339, rfc3339_ms, rfc3339_ns, rfc3339_unix_s};
pub use printable::{printable, printable_json};
pub use values::{parse_bytes, parse_positive, parse_seconds};
