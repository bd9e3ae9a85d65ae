//! The host agent: asks the gateway, explains its advice and applies it.
//!
//! Knows nothing about packets, captures or how an estimate came about. [`policy`] is one pure function; [`apply`] changes
//! the kernel; nothing is changed without an entry in the [`ledger`], with its reason, its undo and a lifetime.

#![forbid(unsafe_code)]

pub mod applications;
pub mod apply;
mod args;
mod capabilities;
pub mod cli;
mod clock;
mod commands;
pub mod config;
pub mod control;
mod destination;
mod doctor;
mod hash;
pub mod ledger;
pub mod pause;
pub mod policy;
mod probe;
mod run;
pub mod subscriber;

pub use clock::Clock;
pub use commands::metrics::exposition;
