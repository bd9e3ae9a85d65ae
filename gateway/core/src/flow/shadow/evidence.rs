//! Evidence from the packets themselves: whether a sender is clocked by its acknowledgements, and at which pipe.
//!
//! A sender that its window limits answers each acknowledgement at once with full-sized segments: then the pipe *is* the
//! window. One that paces, or waits for its application, does not.

use spand_proto::units::{Micros, Timestamp};

/// An answer comes within this time of the acknowledgement, or it is none. (At 40 % of the link rate an application's
/// segments fall between acknowledgements often enough to look clocked under "before the next one".)
const ANSWER_WITHIN: Micros = Micros(1_000);
/// Acknowledgements answered one after the other that make the pipe the window.
const RUN: u8 = 8;

/// Follows acknowledgements and the segments they let go.
#[derive(Clone, Debug, Default)]
pub(super) struct AckClock {
    last_ack: Option<Timestamp>,
    /// Smoothed time between acknowledgements of new data.
    gap: Option<Micros>,
    answered: bool,
    run: u8,
    run_pipe_segments: u32,
}

impl AckClock {
    /// An acknowledgement of new data; returns the pipe in segments, where a run of answered ones makes it the window.
    ///
    /// Judged here and not at a segment sent: more segments of the same answer may follow that one.
    pub(super) fn on_ack(&mut self, at: Timestamp) -> Option<u32> {
        if self.answered {
            self.run = self.run.saturating_add(1);
        } else {
            self.break_run();
        }
        self.answered = false;
        if let Some(last) = self.last_ack {
            let gap = at.since(last);
            self.gap = Some(self.gap.map_or(gap, |smoothed| Micros((smoothed.0 * 7 + gap.0) / 8)));
        }
        self.last_ack = Some(at);
        (self.run >= RUN).then_some(self.run_pipe_segments)
    }

    /// A segment of new data; returns whether the last acknowledgement let it go.
    pub(super) fn on_sent(&mut self, full_sized: bool, since_ack: Option<Micros>, pipe_segments: u32) -> bool {
        let answer = since_ack.is_some_and(|since| since <= ANSWER_WITHIN);
        if !full_sized || !answer {
            self.break_run();
            return false;
        }
        self.answered = true;
        self.run_pipe_segments = self.run_pipe_segments.max(pipe_segments);
        // Between densely spaced acknowledgements a paced segment is near one of them as well.
        let within = self.gap.map_or(ANSWER_WITHIN, |gap| Micros(gap.0 / 4).min(ANSWER_WITHIN));
        since_ack.is_some_and(|since| since <= within)
    }

    /// Something else than the window held the sender.
    pub(super) fn break_run(&mut self) {
        self.run = 0;
        self.run_pipe_segments = 0;
        self.answered = false;
    }
}
