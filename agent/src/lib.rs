//! The host agent.

#![forbid(unsafe_code)]
