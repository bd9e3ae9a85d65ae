//! A wide-area path in user space, both directions apart: bottlenecks in a row with drop-tail queues, delay, losses single
//! and in bursts, reordering, jitter, duplicates, congestion marks, bunches, policers, outages, an MTU that drops, and cross traffic.
//!
//! One thread carries all paths of a lab between pairs of TUN devices. Rates count IP bytes, without link headers. Use it
//! up to 100 Mbit/s: above, the thread is the bottleneck. What happens to a packet is arithmetic ([`link`], [`hop`],
//! [`cross`]) on its time of arrival and dice thrown from the path's seed: the same arrivals meet the same fate.

mod config;
mod cross;
mod emulator;
mod hop;
mod impairments;
mod ip;
mod kernel;
mod link;
mod seed;

pub use config::{
    CHANGES_MAX, DelayChange, FURTHER_MAX, Hop, LinkConfig, PathConfig, Queue, RateChange, parse_delay, parse_rate,
};
pub use emulator::{Emulator, LinkCounters, PathCounters, PathEnds};
pub(in crate::lab) use emulator::{nanoseconds, real_time_priority};
pub use impairments::{Burst, Cross, Episodes, Impairments, MtuDrop, Policer, Reorder};
pub use kernel::{Carrier, Counts, KernelPath};
pub use link::{Arrival, Drop as LinkDrop, Link, Packet};
