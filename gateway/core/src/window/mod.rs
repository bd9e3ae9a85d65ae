//! The sliding window per destination network.

pub mod view;
