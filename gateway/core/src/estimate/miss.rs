//! More Informed Slow Start (Yu & Newman, section 4): how often the connections of a network lose something, and how often the oldest of
//! them does. What follows for a start is computed by its host at its start ([`LossClock::window`]): it is another every round trip.

use spand_proto::opening::LossClock;

use crate::window::live::LiveView;

/// The clock of losses; nothing before the network and one of its senders lost something twice. The oldest: of the senders under way,
/// the first that did.
pub(super) fn loss_clock(live: LiveView<'_>) -> Option<LossClock> {
    let losses = live.losses();
    Some(LossClock {
        interval: losses.interval()?,
        oldest_interval: live.senders().find_map(|sender| sender.losses.interval())?,
        last: losses.last()?,
    })
}
