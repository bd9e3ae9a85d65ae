//! A wide-area path in user space: per direction a bottleneck rate, a drop-tail queue, a fixed delay, random loss.
//!
//! One thread carries all paths of a lab between pairs of TUN devices. Rates count IP bytes, without link headers. It
//! has no jitter, reordering, duplication or marks yet. Use it up to 100 Mbit/s: above, the thread is the bottleneck.

mod config;
mod emulator;
mod link;

pub use config::{LinkConfig, PathConfig, Queue, parse_delay, parse_rate};
pub use emulator::{Emulator, LinkCounters, PathCounters, PathEnds};
pub(in crate::lab) use emulator::{nanoseconds, real_time_priority};
