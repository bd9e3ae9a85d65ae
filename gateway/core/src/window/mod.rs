//! The sliding window per destination network (TCP/SPAND section 5: all flows to a network share, over 5 minutes).
//!
//! A [`table::NetworkTable`] takes samples, round-trip times, losses and limits, keeps them in a ring of buckets per
//! network ([`record::NetworkRecord`]), evaluates the rule where one of them changed it, and announces when an
//! estimate appeared, changed, was refreshed or removed. Independent of connections, packets, hosts and subscribers.

pub mod bucket;
pub mod cells;
pub mod delivery;
pub mod live;
pub(crate) mod majority;
mod parallel;
pub mod record;
mod sound;
pub mod table;
pub mod traffic;
pub mod view;
