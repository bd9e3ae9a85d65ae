//! Packet sources.
