//! The `averaged` method that Yu & Newman compare with (section 5.4, after TCP/SPAND): the mean window of all connections to the network,
//! sampled once a second over five minutes and renewed every minute.

use spand_proto::units::Window;

use crate::window::live::LiveView;

/// That mean.
pub(super) fn threshold(live: LiveView<'_>) -> Option<Window> {
    live.mean_window()
}
