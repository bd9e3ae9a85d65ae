//! The section `[log]` of both configurations.

use serde::{Deserialize, Serialize};

/// `[log]`: what is logged, always on standard error.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Level, or a filter by module such as `info,spand_agent::apply=debug`. Default `info`.
    pub filter: String,
    /// Form of a line. Default `text`.
    pub format: LogFormat,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::default() }
    }
}
