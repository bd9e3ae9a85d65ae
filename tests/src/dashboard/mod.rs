//! A gateway for the dashboard's tests, and a browser to look at it with.
//!
//! The gateway runs in this process, with everything that the daemon has but its capture threads: kept captures of real TCP
//! are played to the engine by their own clock, and beside it a table of made-up networks of any number.

pub mod browser;
mod hosts;
mod others;
mod past;
mod played;
pub mod stage;
