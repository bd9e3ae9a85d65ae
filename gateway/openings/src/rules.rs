//! What each rule computes from the senders under way.

use spand_proto::estimate::RuleKind;
use spand_proto::opening::{LossClock, Opening, Sharing};
use spand_proto::units::{Micros, Timestamp, Window};

use crate::senders::{LiveSender, LiveSenders};

/// What one more connection may open with by a rule; nothing by those that look at no senders under way.
pub(crate) fn opening(rule: RuleKind, live: &LiveSenders, now: Timestamp) -> Option<Opening> {
    let threshold = match rule {
        RuleKind::Spand | RuleKind::Probe | RuleKind::Robust => None,
        RuleKind::Liss | RuleKind::Miss => fair_share(live, now, |oldest| oldest.state.window),
        RuleKind::Iss => fair_share(live, now, |oldest| oldest.smoothed),
        RuleKind::Cached => cached_threshold(live, now),
        RuleKind::Averaged => live.mean_window(now),
    };
    let threshold = threshold.filter(|threshold| threshold.bytes() > 0.0)?;
    let losses = if rule == RuleKind::Miss { loss_clock(live, now) } else { None };
    Some(Opening { rule, threshold, losses })
}

/// The fair share (Yu & Newman, section 3): the window that one more connection has when all that share the path have the same
/// (equation 2, [`Sharing::fair_share`]), by the window of the oldest sender that is not in slow start. Less Informed Slow Start takes that
/// window as it is, and Informed Slow Start smoothed.
///
/// Nothing where no sender is in congestion avoidance: those in slow start are on their way to a window that nobody knows yet.
fn fair_share(live: &LiveSenders, now: Timestamp, window: impl Fn(&LiveSender) -> Window) -> Option<Window> {
    let oldest = live.senders(now).find(|sender| sender.is_steady())?;
    let (slow_starting, in_avoidance) = live.crowd(now);
    Sharing { slow_starting, in_avoidance, oldest: window(oldest).bytes() }.fair_share()
}

/// The clock of losses of More Informed Slow Start (Yu & Newman, section 4): how often the connections of a network lose something, and how
/// often the oldest of them does. What follows for a start is computed by its host at its start ([`LossClock::window`]): it is another every
/// round trip.
///
/// Nothing before the network and one of its senders lost something twice. The oldest: of the senders under way, the first that did.
fn loss_clock(live: &LiveSenders, now: Timestamp) -> Option<LossClock> {
    let losses = live.losses();
    Some(LossClock {
        interval: losses.interval()?,
        oldest_interval: live.senders(now).find_map(|sender| sender.losses.interval())?,
        last: losses.last()?,
    })
}

/// How long the threshold of a connection that ended counts: as long as its samples.
const AGE: Micros = Micros::from_secs(300);

/// The slow-start threshold of a connection to the same network, as in the `cached` method that Yu & Newman compare with (section 5.4, after
/// TCP Fast Start).
///
/// Of an active one, the oldest that has a threshold; else the one that left last. There, the latter is only for the same destination
/// address. An estimate is for a network, so here it is the last one's, whatever its address, and for five minutes: one value per network.
fn cached_threshold(live: &LiveSenders, now: Timestamp) -> Option<Window> {
    live.senders(now).find_map(|sender| sender.state.ssthresh).or_else(|| live.left_with(AGE, now))
}
