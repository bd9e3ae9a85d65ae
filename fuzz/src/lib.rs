//! What the fuzz targets share.

mod allocation;
mod gateways;
mod options;
mod scratch;
mod talk;

pub use allocation::Counting;
pub use gateways::Gateway;
pub use options::Options;
pub use scratch::Scratch;
pub use talk::{Packet, Talk};
