//! The experiments of the papers in the simulator that they used (`make papers`): which there are, how each runs in Debian's
//! ns-2, what it must come to, and the page of results.
//!
//! A script of `tests/papers` simulates; what its senders need to decide it asks of `spand-oracle`, which is the product's
//! own code. The same seed gives the same bytes.

pub mod crowd;
mod find;
pub mod ns;
pub mod page;
pub mod plan;
pub mod plots;
mod query;
pub mod result;
pub mod row;
pub mod rows;
