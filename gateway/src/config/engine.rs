//! `[engine]`: how many engines share the work.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// `[engine]`: how the work is shared out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// Engines side by side, a thread each, with the networks divided among them. Default 1.
    pub threads: NonZeroU32,
}

impl Engine {
    /// Each has a queue and tables of its own: more than a large machine's cores is a typing error.
    pub(super) const MAX_THREADS: u32 = 64;
}

impl Default for Engine {
    fn default() -> Self {
        Self { threads: NonZeroU32::MIN }
    }
}
