//! What the product does to real transfers (`make benefit`): the same transfers with and without it, side by side on paths
//! of the same kind, timed at their senders.

mod crowd;
pub mod flight;
mod learn;
pub mod page;
pub mod path;
pub mod plan;
pub mod quic;
pub mod result;
pub mod run;
pub mod scenario;
mod scenarios;
pub mod stage;
pub mod timeline;
mod work;
