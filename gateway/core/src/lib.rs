//! The engine: frames in, estimates out.
//!
//! Takes the time and the bytes of each frame, rebuilds the state of every TCP sender seen, keeps what it learns per
//! destination network in a sliding window, and says when an estimate appears, moves or expires and when a connection is
//! about to start. The packet's time is the only clock: the same frames give the same events, byte for byte.
//!
//! Does not read a clock, a file or a socket, start a thread, hold a global, or allocate per packet. Nothing from the
//! network makes it panic, and everything that grows has a limit and a counter ([`counters`]).
//!
//! Modules stand in an order, from accounts of memory to the engine, in which none imports what stands to its right
//! (`docs/explain/ARCHITECTURE.md`).

#![forbid(unsafe_code)]

pub mod config;
pub mod counters;
pub mod engine;
pub mod estimate;
pub mod event;
pub mod flow;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod mem;
pub mod networks;
pub mod opening;
pub mod service;
pub mod shard;
pub mod types;
pub mod window;
pub mod wire;

mod hash;
mod recency;
