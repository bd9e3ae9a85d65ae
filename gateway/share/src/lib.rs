//! Gateways that estimate from what all of them saw.
//!
//! ```text
//! engine threads ─ engine_end ─ hub ─ exchange ─► other gateways
//!   own cells  ─►                  format     ◄─
//! ```
//!
//! Engines hand over cells of their own networks, and take those of others ([`spand_cells`]). The hub packs them for an
//! exchange, which carries them. What publishers have each other know goes the same way ([`spand_cells::Notice`]). Nobody waits for another: what does not fit is dropped and counted, and closed cells are sent again out of
//! the engines' own records once messages get through.

#![forbid(unsafe_code)]

mod complaints;
mod digests;
mod engine_end;
pub mod exchange;
pub mod format;
mod hub;
mod losses;
mod measure;
mod members;
pub mod memory;
pub mod nats;
mod notices;
mod outliers;
#[cfg(test)]
mod patience;
mod publisher;
mod status;
#[cfg(test)]
mod tests;

/// The most that sharing takes with N engines, beside networks and budgets.
pub const fn most_bytes(engines: usize) -> usize {
    let (hub, client) = (hub::most_bytes(), nats::most_bytes());
    engine_end::most_bytes(engines).saturating_add(hub).saturating_add(client)
}

pub use self::engine_end::EngineEnd;
pub use self::hub::{Owner, Sharing};
pub use self::measure::{GatewayLabel, ReasonLabel, ShareMeasures, TapLabel, TopicLabel};
pub use self::members::{Incompatible, MemberView};
pub use self::publisher::Publisher;
pub use self::status::{ShareStatus, ShareView};
