//! The `cached` method that Yu & Newman compare with (section 5.4, after TCP Fast Start): the slow-start threshold of a connection to the
//! same network.
//!
//! Of an active one, the oldest that has a threshold; else the one that left last. There, the latter is only for the same destination
//! address. An estimate is for a network, so here it is the last one's, whatever its address, and for five minutes: one value per network.

use spand_proto::units::{Micros, Window};

use crate::window::live::LiveView;

/// How long the threshold of a connection that ended counts: as long as its samples.
const AGE: Micros = Micros::from_secs(300);

/// That threshold.
pub(super) fn threshold(live: LiveView<'_>) -> Option<Window> {
    live.senders().find_map(|sender| sender.state.ssthresh).or_else(|| live.left_with(AGE))
}
