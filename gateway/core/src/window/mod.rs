//! The sliding window per destination network.
