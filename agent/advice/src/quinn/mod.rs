//! Congestion control for quinn that starts on advice: a factory for one connection, on top of one of quinn's own algorithms.
//!
//! quinn's pacer lets up to twenty packets of a connection that was quiet leave at once, and no controller changes that. A server that writes
//! its first flight by [`Handle::pace`] keeps to the start's own burst and rate, which a narrow path's queue may need. A path that the
//! connection migrates to starts plain: the advice is for the first one.

mod controller;
mod resuming;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quinn_proto::congestion::{BbrConfig, Controller, ControllerFactory, CubicConfig, NewRenoConfig};

use self::controller::{Met, Stage, Started};
use crate::{Adviser, Pace, Question};

/// quinn's algorithm that goes on from the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Base {
    /// quinn's default.
    #[default]
    Cubic,
    /// New Reno.
    NewReno,
    /// BBR, which quinn calls experimental. It has no threshold.
    Bbr,
}

impl Base {
    /// A controller that begins with this window, or with quinn's own.
    fn build(self, window: Option<u64>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        match self {
            Self::Cubic => {
                let mut config = CubicConfig::default();
                window.map(|window| config.initial_window(window));
                Arc::new(config).build(now, mtu)
            }
            Self::NewReno => {
                let mut config = NewRenoConfig::default();
                window.map(|window| config.initial_window(window));
                Arc::new(config).build(now, mtu)
            }
            Self::Bbr => {
                let mut config = BbrConfig::default();
                window.map(|window| config.initial_window(window));
                Arc::new(config).build(now, mtu)
            }
        }
    }
}

/// A factory for the controller of **one** connection: quinn does not name the other end to it.
///
/// A server gives each connection a configuration of its own by `Incoming::accept_with`, a client by `Endpoint::connect_with`.
#[derive(Debug)]
pub struct Advised {
    adviser: Adviser,
    question: Question,
    base: Base,
    handle: Handle,
    is_used: AtomicBool,
}

/// What an application adds to a connection's start, and what it may take from it.
#[derive(Clone, Debug, Default)]
pub struct Handle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicU64,
    /// How the first flight is to be written.
    pace: Mutex<Option<Pace>>,
}

impl Handle {
    /// The first transfer has this many bytes, which a server knows with its first request. It counts where it is set before the
    /// transfer's first packets have left.
    pub fn set_transfer_size(&self, bytes: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    /// How the first flight is to be written, from now on.
    pub fn pace(&self) -> Pace {
        let pace = *self.0.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.map_or_else(Pace::at_once, |pace| pace.from(Instant::now()))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    fn set_pace(&self, pace: Option<Pace>) {
        *self.0.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }
}

impl Advised {
    /// For the connection of this question. Its round trip is measured by the connection itself.
    pub fn new(adviser: Adviser, question: Question) -> Self {
        let handle = Handle::default();
        handle.set_transfer_size(question.bytes.unwrap_or(0));
        Self { adviser, question, base: Base::Cubic, handle, is_used: AtomicBool::new(false) }
    }

    /// For the application.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Over another algorithm than CUBIC.
    #[must_use]
    pub fn over(self, base: Base) -> Self {
        Self { base, ..self }
    }
}

impl ControllerFactory for Advised {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let base = self.base.build(None, now, current_mtu);
        if self.is_used.swap(true, Ordering::Relaxed) {
            return base;
        }
        Box::new(Started {
            adviser: self.adviser.clone(),
            question: self.question,
            kind: self.base,
            handle: self.handle.clone(),
            asked_bytes: None,
            mtu: current_mtu,
            stage: Stage::Waiting,
            base,
            connection: None,
            flight: None,
            met: Met::default(),
        })
    }
}
