//! What fuzzing may reach and nobody else: compiled only with `--cfg fuzzing`, which cargo-fuzz sets.

pub use crate::flow::table::twin::Pair as FlowTablePair;
pub use crate::networks::twin::{Input, Pair as WindowPair};

use spand_proto::units::Timestamp;

use crate::counters::Ignored;
use crate::wire::segment::Segment;
use crate::wire::{Decoder, Frame};

/// What [`Decoder::decode`] finds, without its short ways: through all layers.
///
/// # Errors
///
/// As there.
pub fn walk(decoder: &mut Decoder, at: Timestamp, frame: &Frame<'_>) -> Result<Segment, Ignored> {
    decoder.walk(at, frame)
}
