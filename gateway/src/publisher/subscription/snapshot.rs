//! Pages: the published state, at the beginning of a stream and after updates were lost, and what changed meanwhile and since.

use spand_proto::contract::ContractVersion;
use spand_proto::network::Network;
use spand_proto::push::{ResyncReason, UpdateEvent};

use super::Subscription;

/// How far a stream is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Say that changes were lost, then begin anew.
    Resync(ResyncReason, u64),
    Begin,
    /// The published state up to `after` was taken in hand.
    Snapshot {
        after: Option<Network>,
        sent: u32,
    },
    /// The last page was sent.
    End {
        sent: u32,
    },
    /// Only what changed.
    Live,
}

impl Phase {
    /// An estimate was told: it counts to the snapshot that it came in.
    pub(super) fn count(&mut self) {
        if let Self::Snapshot { sent, .. } | Self::End { sent } = self {
            *sent += 1;
        }
    }

    /// Whether a network's page was read already, so that a change of it comes with no later one.
    pub(super) fn has_reached(&self, network: Network) -> bool {
        match self {
            Self::Resync(..) | Self::Begin => false,
            Self::Snapshot { after, .. } => after.is_some_and(|after| network <= after),
            Self::End { .. } | Self::Live => true,
        }
    }
}

/// Networks of one page: 5 ms of the pace.
const PAGE: usize = 256;

impl Subscription {
    /// The next message of those that wait for the pace, and the sizes of the host's few services.
    pub(super) fn next_in_turn(&mut self) -> Option<UpdateEvent> {
        if matches!(self.phase, Phase::Live)
            && let Some(size) = self.next_size()
        {
            return Some(UpdateEvent::ServiceSize(size));
        }
        if self.page.len() == 0 {
            self.take_page();
            return self.next_marker();
        }
        // Read now and not with the page: a slow reader gets what holds when it reads.
        let turn = self.turn.as_mut().filter(|turn| turn.is_granted())?;
        let network = self.page.next()?;
        turn.take();
        Some(self.news(network))
    }

    /// The next message of those around the pages of a snapshot.
    pub(super) fn next_marker(&mut self) -> Option<UpdateEvent> {
        match self.phase {
            Phase::Resync(reason, dropped_updates) => {
                self.phase = Phase::Begin;
                Some(UpdateEvent::Resync { reason, dropped_updates })
            }
            Phase::Begin => {
                self.mailbox.begin_anew();
                self.page = Vec::new().into_iter();
                self.turn = None;
                self.phase = Phase::Snapshot { after: None, sent: 0 };
                let networks = u32::try_from(self.published.told_count(self.mailbox.holder)).unwrap_or(u32::MAX);
                Some(UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks })
            }
            Phase::Snapshot { .. } | Phase::Live => None,
            Phase::End { sent } => {
                self.phase = Phase::Live;
                // Where it is told everything once more, leases may have changed in the middle of this snapshot.
                if !self.mailbox.is_anew() {
                    self.published.shared.leases.lock().told_anew(self.mailbox.holder, self.published.now());
                }
                self.tell_sizes();
                Some(UpdateEvent::SnapshotEnd { networks: sent })
            }
        }
    }

    /// Takes the next page in hand, of a snapshot and of what changed in the part of it that was told, each at least half where
    /// there is enough, and has it wait for the pace.
    fn take_page(&mut self) {
        let is_snapshot = matches!(self.phase, Phase::Snapshot { .. });
        let mut page = self.mailbox.take_paced(if is_snapshot { PAGE / 2 } else { PAGE });
        if let Phase::Snapshot { after, sent } = &mut self.phase {
            let networks = self.published.told_page(self.mailbox.holder, *after, PAGE - page.len());
            match networks.last() {
                Some(last) => *after = Some(*last),
                None => self.phase = Phase::End { sent: *sent },
            }
            page.extend(networks);
        }
        let messages = u32::try_from(page.len()).unwrap_or(u32::MAX);
        // What is left of the turn before is given back first.
        self.turn = None;
        self.turn = (messages > 0).then(|| self.published.shared.pace.ask(&self.client, messages));
        self.page = page.into_iter();
    }

    /// Lets go of everything not handed out and begins anew at the present state.
    pub(super) fn restart(&mut self, reason: ResyncReason) -> Option<()> {
        let (changes, next_number) = self.published.shared.gather.listen().ok()?;
        let dropped = next_number.saturating_sub(self.next_number);
        self.published.measures().changes_dropped.inc_by(dropped);
        self.sequence += dropped;
        self.changes = changes;
        self.next_number = next_number;
        self.phase = Phase::Resync(reason, dropped);
        Some(())
    }
}
