//! Gateways that estimate from what all of them saw.
//!
//! Engines hand over cells of their own networks, and take those of others ([`spand_core::window::cells`]). An [`exchange`] carries them. Nobody waits
//! for it: what does not fit is dropped and counted, and closed cells are sent again out of the engines' own records.

pub mod exchange;
pub mod format;
pub mod memory;
pub mod nats;
