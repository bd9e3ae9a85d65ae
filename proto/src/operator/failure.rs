//! How a program ends: 0, or one sentence on standard error and one of three codes.

use std::fmt;
use std::process::ExitCode;

use super::ConfigError;

/// Exit code of a fault in the command line or the configuration (`EX_USAGE` of sysexits.h).
pub const USAGE: u8 = 64;
/// Exit code of a fault in the environment.
pub const ENVIRONMENT: u8 = 1;
/// Exit code of a `doctor` that found something at fault.
pub const FINDINGS: u8 = 2;

/// Why a command failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The command line or the configuration is wrong: exit code 64.
    Usage(String),
    /// The world is: a file or interface that cannot be read, a port in use, a program that does not run, a missing
    /// privilege. Exit code 1.
    Environment(String),
    /// What was looked at is at fault; the looking itself went well. Exit code 2.
    Findings(String),
}

impl Failure {
    /// The code the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(USAGE),
            Self::Environment(_) => ExitCode::from(ENVIRONMENT),
            Self::Findings(_) => ExitCode::from(FINDINGS),
        }
    }

    /// A fault of the environment with the text of `error`.
    pub fn environment(error: impl fmt::Display) -> Self {
        Self::Environment(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) | Self::Environment(sentence) | Self::Findings(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unreadable { .. } => Self::environment(error),
            ConfigError::Syntax { .. } | ConfigError::Contradiction { .. } => Self::Usage(error.to_string()),
        }
    }
}
