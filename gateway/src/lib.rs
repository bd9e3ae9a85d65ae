//! The performance gateway.
