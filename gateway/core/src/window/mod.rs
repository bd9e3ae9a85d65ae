//! What is kept of one destination network in its sliding window (TCP/SPAND section 5: all flows to a network share, over 5 minutes).
//!
//! A ring of buckets ([`record::NetworkRecord`]) with samples, round-trip times, losses and limits. The networks in their table are
//! [`crate::networks`]. Independent of connections, packets, hosts and subscribers.

pub mod bucket;
pub(crate) mod delivery;
pub(crate) mod parallel;
pub mod record;
mod sound;
