//! How the program ends: 0, or one sentence on standard error and one of two codes.

use std::fmt;
use std::process::ExitCode;

use crate::config::{ConfigError, PrefixListError};

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command line or the configuration is wrong: exit code 64 (`EX_USAGE` of sysexits.h).
    Usage(String),
    /// The world is: a file or interface that cannot be read, a port in use, a missing privilege. Exit code 1.
    Environment(String),
}

impl Failure {
    /// The code the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(USAGE),
            Self::Environment(_) => ExitCode::from(ENVIRONMENT),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) | Self::Environment(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let sentence = error.to_string();
        match error {
            ConfigError::Unreadable { .. } | ConfigError::PrefixList(PrefixListError::Unreadable { .. }) => {
                Self::Environment(sentence)
            }
            ConfigError::Syntax { .. } | ConfigError::Contradiction { .. } | ConfigError::PrefixList(_) => {
                Self::Usage(sentence)
            }
        }
    }
}

/// Exit code of a fault in the command line or the configuration.
pub const USAGE: u8 = 64;
/// Exit code of a fault in the environment.
pub const ENVIRONMENT: u8 = 1;
