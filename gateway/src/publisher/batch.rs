//! What the engine hands over.

use std::time::Instant;

use spand_core::event::Event;
use spand_core::types::WindowSample;

use super::{EngineStatus, Trend};

/// What the engine's thread hands over at a time.
#[derive(Clone, Debug)]
pub struct Batch {
    /// When the engine gave it, to time the hop to the publisher.
    pub polled: Instant,
    /// Events in the order polled. `DirectionEnded` is of no interest here.
    pub events: Vec<Event>,
    /// The windows of networks that changed, to be shown.
    pub trends: Vec<Trend>,
    /// Samples since the last batch with any, to be shown.
    pub samples: Vec<WindowSample>,
    /// The engine's numbers, where they are renewed with this batch.
    pub engine: Option<EngineStatus>,
}

impl Batch {
    /// A batch of nothing, polled now.
    pub fn new() -> Self {
        Self { polled: Instant::now(), events: Vec::new(), trends: Vec::new(), samples: Vec::new(), engine: None }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
