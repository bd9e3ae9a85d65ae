//! The performance gateway.

#![forbid(unsafe_code)]
