//! The section `[process]` of both configurations.

use serde::{Deserialize, Serialize};

/// `[process]`: what the program may still do once it runs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// User that the program becomes where it was started as root. Default none: it stays who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Give up what is not needed. Default on.
    pub confine: bool,
}

impl Default for Process {
    fn default() -> Self {
        Self { user: None, confine: true }
    }
}
