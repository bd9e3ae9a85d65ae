//! Sharing with other gateways (the crate `spand-share`), as the rest of this crate uses it: with the feature `share`, and without it.

use crate::config::Share;

#[cfg_attr(feature = "share", path = "on.rs")]
#[cfg_attr(not(feature = "share"), path = "off.rs")]
mod with;

pub use self::with::*;

/// Whether this program can share at all.
pub(crate) const IS_BUILT: bool = cfg!(feature = "share");
