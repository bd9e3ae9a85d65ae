//! Connections and the state of their senders.

pub mod evidence;
pub mod report;

pub(crate) mod connection;
pub(crate) mod hosts;
pub(crate) mod passed;
pub(crate) mod pending;
pub(crate) mod prefixes;
pub(crate) mod push_ledger;
pub(crate) mod sink;
pub(crate) mod table;
pub(crate) mod tuple;

mod acceptance;
mod connection_end;
pub(crate) mod copies;
mod coverage;
mod handshake;
mod maybe;
mod observation;
mod recovery;
mod reported_window;
mod rtt;
mod scoreboard;
mod segment_size;
mod sender;
mod seq_state;
mod sequence;
mod timestamps;
mod tracked;
