//! The performance gateway.

#![forbid(unsafe_code)]

pub mod publisher;
