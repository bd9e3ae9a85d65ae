//! What gateways of a cluster share: cells of what each saw of a network, and what they have each other know beside.
//!
//! An engine estimates from its own records merged with the cells of others ([`Shares`]), through the hook
//! [`spand_core::networks::OtherGateways`]. How both get from one gateway to another is no concern of this crate's.

#![forbid(unsafe_code)]

mod cell;
mod foreign;
mod gateway;
mod merge;
mod notice;
mod outlier;
mod pseudonyms;
mod shares;
mod table;
#[cfg(test)]
mod tests;

pub use self::cell::{Cell, CellRefused, Digest};
pub use self::gateway::{GatewayId, MOST_GATEWAYS, Sharing, TapId, fingerprint};
pub use self::notice::{Addressed, HeldBack, Notice, SEATS_AGAIN, StartSeen, WireNetwork};
pub use self::outlier::Outlier;
pub use self::pseudonyms::Pseudonyms;
pub use self::shares::Shares;
pub use self::table::{Outliers, SeenByBoth, SharingCounts};
