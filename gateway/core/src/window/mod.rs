//! The sliding window per destination network (TCP/SPAND section 5: all flows to a network share, over 5 minutes).
//!
//! A [`table::NetworkTable`] takes samples, round-trip times, losses and limits, keeps them in a ring of buckets per
//! network ([`record::NetworkRecord`]), asks the rule for an estimate where one of them changed it, and says when an
//! estimate appeared, moved, was refreshed or went. Does not know connections, packets, hosts or who is told.

pub mod bucket;
pub(crate) mod majority;
mod parallel;
pub mod record;
mod sound;
pub mod table;
pub mod view;
