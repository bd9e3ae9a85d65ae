//! Connections and the state of their senders.

pub mod kept;
pub mod report;
pub mod sample;
pub mod shadow;

pub(crate) mod connection;
pub(crate) mod findings;
pub(crate) mod hosts;
pub(crate) mod openings;
pub(crate) mod prefixes;
pub(crate) mod push_ledger;
pub(crate) mod table;
pub(crate) mod tuple;
pub(crate) mod untold;

mod acceptance;
mod announced;
mod copies;
mod coverage;
mod followed;
mod handshake;
mod maybe;
mod party;
mod passing;
mod recovery;
mod rtt;
mod said;
mod scoreboard;
mod segment_size;
mod sender;
mod sequence;
mod timestamps;
