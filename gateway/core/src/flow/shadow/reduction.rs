//! How a reduction goes on: proportional rate reduction as Linux does it (`tcp_cwnd_reduction`, after RFC 6937), in fast
//! recovery and after a mark.
//!
//! Counted from the first transmission or acknowledgement after it began. What a tap some way off has not seen yet of
//! what the sender sent lacks in the network and in what was sent alike, so the window is right from there, too.

use super::cwnd::Cwnd;

/// Segments of one reduction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    delivered: u32,
    sent: u32,
}

/// An acknowledgement during a reduction, in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// In the network after it.
    pub(super) pipe: u32,
    /// Newly acknowledged or SACKed.
    pub(super) newly: u32,
    /// The cumulative acknowledgement advanced, and nothing more is lost.
    pub(super) clean: bool,
}

impl Reduction {
    /// Segments went out, new or again; the first of them at once with the acknowledgement that began it.
    pub(super) fn sent(&mut self, segments: u32) {
        self.delivered = self.delivered.max(1);
        self.sent = self.sent.saturating_add(segments);
    }

    /// Whether nothing was sent in it yet.
    pub(super) const fn is_fresh(self) -> bool {
        self.sent == 0
    }

    pub(super) fn delivered(&mut self, segments: u32) {
        self.delivered = self.delivered.saturating_add(segments);
    }

    /// Segments sent and arrived in it, once something was sent.
    pub(super) fn counted(self) -> Option<(u32, u32)> {
        (self.sent > 0).then_some((self.sent, self.delivered))
    }

    /// The window after `step`, for a sender that had the window and threshold in `cwnd` when the reduction began.
    pub(super) fn window(self, step: &Step, cwnd: &Cwnd) -> u32 {
        let (delivered, sent) = (i64::from(self.delivered), i64::from(self.sent));
        let (threshold, prior) = (i64::from(cwnd.threshold()), i64::from(cwnd.prior().max(1)));
        let room = threshold - i64::from(step.pipe);
        let more = if room < 0 {
            threshold.saturating_mul(delivered).saturating_add(prior - 1) / prior - sent
        } else {
            room.min((delivered - sent).max(i64::from(step.newly)) + i64::from(step.clean))
        };
        let more = more.max(i64::from(self.is_fresh()));
        u32::try_from(i64::from(step.pipe) + more).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of 11 that is reduced to 5, as the kernel's account of one has it.
    fn reduced() -> Cwnd {
        let mut cwnd = Cwnd::new(11);
        cwnd.reduce(5);
        cwnd
    }

    fn step(pipe: u32, newly: u32, clean: bool) -> Step {
        Step { pipe, newly, clean }
    }

    #[test]
    fn segments_leave_in_proportion_to_those_that_arrive() {
        let (cwnd, mut reduction) = (reduced(), Reduction::default());
        reduction.delivered(1);
        assert_eq!(reduction.window(&step(8, 1, false), &cwnd), 9, "the repeat at least");
        reduction.sent(1);
        let windows: Vec<u32> = (0..3)
            .map(|n| {
                reduction.delivered(1);
                reduction.window(&step(8 - n, 1, false), &cwnd)
            })
            .collect();
        assert_eq!(windows, [8, 8, 7], "5 of 11 that arrive");
    }

    #[test]
    fn below_the_threshold_it_fills_up_again() {
        let (cwnd, mut reduction) = (reduced(), Reduction::default());
        reduction.sent(1);
        reduction.delivered(1);
        assert_eq!(reduction.window(&step(1, 1, true), &cwnd), 3, "one more than arrived, where nothing more is lost");
        assert_eq!(reduction.window(&step(1, 1, false), &cwnd), 2);
        reduction.delivered(9);
        assert_eq!(reduction.window(&step(0, 1, false), &cwnd), 5, "nothing to send: up to the threshold");
    }
}
