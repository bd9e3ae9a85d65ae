//! Less Informed and Informed Slow Start (Yu & Newman, section 3): the window that one more connection has when all that share the path
//! have the same (equation 2, [`Sharing::fair_share`]).
//!
//! Nothing where no sender is in congestion avoidance: those in slow start are on their way to a window that nobody knows yet.

use spand_proto::opening::Sharing;
use spand_proto::units::Window;

use crate::window::live::{LiveSender, LiveView};

/// LISS: by the congestion window of the oldest sender that is not in slow start.
pub(super) fn by_window(live: LiveView<'_>) -> Option<Window> {
    fair_share(live, |oldest| oldest.state.window)
}

/// ISS: by that window, smoothed.
pub(super) fn by_smoothed_window(live: LiveView<'_>) -> Option<Window> {
    fair_share(live, |oldest| oldest.smoothed)
}

fn fair_share(live: LiveView<'_>, window: impl Fn(&LiveSender) -> Window) -> Option<Window> {
    let oldest = live.senders().find(|sender| sender.is_steady())?;
    let (slow_starting, in_avoidance) = live.crowd();
    Sharing { slow_starting, in_avoidance, oldest: window(oldest).bytes() }.fair_share()
}
