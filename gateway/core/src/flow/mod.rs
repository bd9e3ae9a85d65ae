//! Connections and the state of their senders.

pub mod report;
pub mod sample;
pub mod shadow;
