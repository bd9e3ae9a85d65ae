//! From captured bytes to a TCP segment.

pub mod segment;
