//! The data that gateways of a cluster share: a cell holds what one gateway saw of a network in one bucket, and a notice holds a single fact.
//!
//! An engine estimates from its own records merged with the cells of others ([`Shares`]), through the hook
//! [`spand_core::networks::OtherGateways`]. This crate sends and receives nothing: `spand-share` does.

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
