//! The performance gateway.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "share"),
    allow(
        dead_code,
        unused_variables,
        reason = "what publishers do for those of other gateways, of which there are none"
    )
)]

pub mod api;
pub mod ask;
mod buckets;
pub mod cert;
pub mod cli;
pub mod config;
mod descriptors;
pub mod doctor;
mod http_client;
mod listener;
mod names;
pub mod network_traffic;
pub mod opening;
mod other_protocols;
mod password;
#[cfg(test)]
#[path = "../share/src/patience.rs"]
mod patience;
pub mod publisher;
pub mod replay;
pub mod run;
pub mod sharing;
pub mod store;
pub mod tls;
pub mod totals;
