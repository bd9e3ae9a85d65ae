//! One line in the log where a network's advice begins, changes by much, or ends, with the reason.

use std::collections::BTreeMap;

use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;
use spand_proto::units::{Segments, Timestamp};
use tracing::info;

use crate::apply::Desired;

/// Part of the window by which advice has to change for a line: a quarter.
const MUCH: u32 = 4;

/// What the log has of each network with advice. Holds no more networks than the holdings do.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    networks: BTreeMap<Network, Logged>,
}

#[derive(Debug)]
struct Logged {
    window: Segments,
    expires: Timestamp,
    withdrawn: Option<WithdrawalReason>,
}

/// What became of a network's advice.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Change {
    Begins(Segments),
    Changes(Segments, Segments),
    Ends(Segments, &'static str),
}

impl ChangeLog {
    /// Connections to the network start with this.
    pub(super) fn on_start(&mut self, network: Network, desired: &Desired) {
        let reason = desired.reason;
        let limit = reason.clipped_by.map_or("none", Into::into);
        match self.start(network, desired.window, desired.expires) {
            Some(Change::Begins(window)) => {
                info!(%network, cwnd_segments = window.0, share_segments = reason.share.0, limit, "advice begins");
            }
            Some(Change::Changes(from, window)) => info!(
                %network, cwnd_segments = window.0, from_segments = from.0, share_segments = reason.share.0, limit,
                "advice changes"
            ),
            Some(Change::Ends(..)) | None => {}
        }
    }

    /// They start as the host would.
    pub(super) fn on_end(&mut self, network: Network, reason: &'static str) {
        if let Some(change) = self.end(network, reason) {
            say_end(network, &change);
        }
    }

    /// The gateway takes its advice back, which ends it as soon as that is decided.
    pub(super) fn on_withdrawal(&mut self, network: Network, reason: WithdrawalReason) {
        if let Some(logged) = self.networks.get_mut(&network) {
            logged.withdrawn = Some(reason);
        }
    }

    /// The advice is not held any more.
    pub(super) fn on_gone(&mut self, network: Network, now: Timestamp) {
        if let Some(change) = self.gone(network, now) {
            say_end(network, &change);
        }
    }

    /// All of which the advice is held no more.
    pub(super) fn retain(&mut self, is_held: impl Fn(&Network) -> bool, now: Timestamp) {
        let gone: Vec<_> = self.networks.keys().filter(|network| !is_held(network)).copied().collect();
        for network in gone {
            self.on_gone(network, now);
        }
    }

    fn start(&mut self, network: Network, window: Segments, expires: Timestamp) -> Option<Change> {
        let Some(logged) = self.networks.get_mut(&network) else {
            self.networks.insert(network, Logged { window, expires, withdrawn: None });
            return Some(Change::Begins(window));
        };
        (logged.expires, logged.withdrawn) = (expires, None);
        let from = logged.window;
        (from.0.abs_diff(window.0) * MUCH >= from.0 && from != window).then(|| {
            logged.window = window;
            Change::Changes(from, window)
        })
    }

    fn end(&mut self, network: Network, reason: &'static str) -> Option<Change> {
        self.networks.remove(&network).map(|logged| Change::Ends(logged.window, reason))
    }

    fn gone(&mut self, network: Network, now: Timestamp) -> Option<Change> {
        let logged = self.networks.get(&network)?;
        let reason = match logged.withdrawn {
            Some(reason) => reason.name(),
            None if logged.expires <= now => "lifetime",
            None => "not_in_snapshot",
        };
        self.end(network, reason)
    }
}

fn say_end(network: Network, change: &Change) {
    if let Change::Ends(window, reason) = change {
        info!(%network, cwnd_segments = window.0, reason, "advice ends");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_the_beginning_a_change_by_a_quarter_and_the_end_with_its_reason() {
        let (network, end) = ("192.0.2.0/24".parse().unwrap(), Timestamp(60_000_000_000));
        let mut log = ChangeLog::default();
        let mut start = |window: u32| log.start(network, Segments(window), end);
        assert_eq!(start(40), Some(Change::Begins(Segments(40))));
        // A quarter of what the log has, not of what was in force last.
        assert_eq!([40, 49, 31].map(&mut start), [None, None, None]);
        assert_eq!(start(50), Some(Change::Changes(Segments(40), Segments(50))));
        assert_eq!(log.end(network, "held_out"), Some(Change::Ends(Segments(50), "held_out")));
        assert_eq!(log.end(network, "held_out"), None);

        for (withdrawn, now, reason) in [
            (Some(WithdrawalReason::TooFew), Timestamp(0), "too_few"),
            (None, end, "lifetime"),
            (None, Timestamp(0), "not_in_snapshot"),
        ] {
            log.start(network, Segments(40), end);
            if let Some(reason) = withdrawn {
                log.on_withdrawal(network, reason);
            }
            assert_eq!(log.gone(network, now), Some(Change::Ends(Segments(40), reason)));
        }
        assert_eq!(log.gone(network, end), None);
    }
}
