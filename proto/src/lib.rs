//! The contract of spand, shared by gateway and agent.
//!
//! Knows units, networks, estimates, the start model, and the messages between gateway and agents. Knows nothing about
//! packets, flows, sockets, files, clocks or how advice is applied: everything here is a value or a pure function.
//!
//! The messages on the wire and their conversions come with the feature `grpc`. Without it no dependency here can do IO;
//! the engine and the packet sources take it that way. What both programs owe their operator comes with the feature
//! `operator`, what they know of certificates with `tls`, and what tests make up with `made-up`.

#![forbid(unsafe_code)]

pub mod comparison;
pub mod contract;
#[cfg(feature = "grpc")]
pub mod convert;
pub mod estimate;
pub mod growth;
#[cfg(feature = "made-up")]
pub mod made_up;
pub mod model;
pub mod network;
pub mod no_estimate;
pub mod opening;
#[cfg(feature = "operator")]
pub mod operator;
pub mod push;
pub mod query;
pub mod report;
pub mod resume;
pub mod start;
pub mod timer;
#[cfg(feature = "tls")]
pub mod tls;
pub mod units;
#[cfg(feature = "grpc")]
pub mod v1;
