//! What the fuzz targets share.

mod allocation;
mod scratch;
mod talk;

pub use allocation::Counting;
pub use scratch::Scratch;
pub use talk::{Packet, Talk};
