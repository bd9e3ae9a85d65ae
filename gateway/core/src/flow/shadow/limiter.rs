//! What held a sender back, by round trip.
//!
//! A round trip ends when the highest byte sent at its start is acknowledged. The signs of the current one and the one
//! before decide: a filled window beats a full receiver beats an application that had nothing more.

use crate::flow::sample::Limiter;

/// What happened in one round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// The pipe reached the window.
    pub(super) filled: bool,
    /// One more segment would not have fitted the peer's window.
    pub(super) receiver_full: bool,
    /// A segment below the full size, or nothing outstanding when there was something new to send: the application had no more.
    pub(super) ran_dry: bool,
    /// Full-sized segments of new data.
    pub(super) full_sized: u16,
    /// Those among them that an acknowledgement let go.
    pub(super) clocked: u16,
    /// Largest pipe in segments.
    pub(super) pipe_max_segments: u32,
}

impl Signs {
    fn with(self, other: Self) -> Self {
        Self {
            filled: self.filled || other.filled,
            receiver_full: self.receiver_full || other.receiver_full,
            ran_dry: self.ran_dry || other.ran_dry,
            full_sized: self.full_sized.saturating_add(other.full_sized),
            clocked: self.clocked.saturating_add(other.clocked),
            pipe_max_segments: self.pipe_max_segments.max(other.pipe_max_segments),
        }
    }
}

/// Round trips of one sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    pub(super) current: Signs,
    last: Option<Signs>,
    /// Position in the stream whose acknowledgement ends the current one.
    end: u64,
}

impl Rounds {
    /// An acknowledgement up to `una` when `nxt` was sent; returns the round trip that it ended.
    pub(super) fn on_ack(&mut self, una: u64, nxt: u64) -> Option<Signs> {
        if una < self.end {
            return None;
        }
        self.end = nxt;
        let ended = std::mem::take(&mut self.current);
        self.last = Some(ended);
        Some(ended)
    }

    /// Forgets what was before a change of the window.
    pub(super) fn forget(&mut self, nxt: u64) {
        *self = Self { end: nxt, ..Self::default() };
    }

    /// The last full round trip and the current one together.
    pub(super) fn recent(&self) -> Signs {
        self.last.map_or(self.current, |last| last.with(self.current))
    }

    /// What held the sender in them. `paced`: the sender's window is not meant to be filled (BBR).
    pub(super) fn limiter(&self, paced: bool) -> Limiter {
        let recent = self.recent();
        if recent.filled || (paced && !recent.ran_dry && !recent.receiver_full && self.last.is_some()) {
            Limiter::Window
        } else if recent.receiver_full {
            Limiter::Receiver
        } else if self.last.is_some() || recent.ran_dry {
            Limiter::Application
        } else {
            Limiter::Unknown
        }
    }
}
