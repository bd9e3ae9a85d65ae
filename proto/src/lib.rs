//! The contract of spand, shared by gateway and agent.
//!
//! Knows units, networks, estimates, the start model and the messages on the wire. Knows nothing about packets, flows,
//! sockets, files, clocks or how advice is applied: everything here is a value or a pure function.

#![forbid(unsafe_code)]

pub mod estimate;
pub mod model;
pub mod network;
pub mod start;
pub mod units;
pub mod v1;
