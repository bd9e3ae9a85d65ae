//! The engine.

#![forbid(unsafe_code)]
