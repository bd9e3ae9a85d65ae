//! The performance gateway.

#![forbid(unsafe_code)]

pub mod api;
pub mod cert;
pub mod cli;
pub mod config;
mod descriptors;
pub mod doctor;
mod encoding;
pub mod opening;
mod other_protocols;
mod password;
#[cfg(test)]
mod patience;
pub mod publisher;
pub mod replay;
mod reset_experiment;
pub mod run;
pub mod share;
pub mod store;
pub mod tls;
