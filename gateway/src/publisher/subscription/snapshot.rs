//! Snapshots: the published state page by page, at the beginning of a stream and after updates were lost.

use spand_proto::contract::ContractVersion;
use spand_proto::network::Network;
use spand_proto::push::{ResyncReason, UpdateEvent};

use tokio::time::Instant;

use super::Subscription;
use crate::publisher::talking::News;

/// How far a stream is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Say that changes were lost, then begin anew.
    Resync(ResyncReason, u64),
    Begin,
    /// Pages of the published state, one at each turn.
    Snapshot {
        after: Option<Network>,
        page: std::vec::IntoIter<Network>,
        sent: u32,
    },
    /// The last page was sent.
    End {
        sent: u32,
    },
    /// Changes, as far as there are some at each turn.
    Live,
}

impl Phase {
    /// An estimate was told out of turn: it counts to the snapshot that it came in.
    pub(super) fn count(&mut self) {
        if let Self::Snapshot { sent, .. } | Self::End { sent } = self {
            *sent += 1;
        }
    }
}

/// Networks of one page of a snapshot.
const SNAPSHOT_PAGE: u32 = 256;

impl Subscription {
    /// The next message of a snapshot, or of what is around it.
    pub(super) fn next_of_snapshot(&mut self) -> Option<UpdateEvent> {
        match &mut self.phase {
            Phase::Resync(reason, dropped_updates) => {
                let event = UpdateEvent::Resync { reason: *reason, dropped_updates: *dropped_updates };
                self.phase = Phase::Begin;
                Some(event)
            }
            Phase::Begin => {
                self.phase = Phase::Snapshot { after: None, page: Vec::new().into_iter(), sent: 0 };
                let networks = u32::try_from(self.published.told_count(self.mailbox.holder)).unwrap_or(u32::MAX);
                self.turn.as_mut().reset(self.published.shared.pace.reserve(networks.min(SNAPSHOT_PAGE)));
                Some(UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks })
            }
            Phase::Snapshot { page, sent, .. } => {
                // Read anew and not kept from the page: a slow reader gets what holds when it reads.
                let estimate = page.find_map(|network| match self.published.news(self.mailbox.holder, network)? {
                    News::Estimate(estimate) => Some(estimate),
                    News::Withdrawn(_) => None,
                })?;
                *sent += 1;
                Some(UpdateEvent::Estimate(self.update(&estimate)))
            }
            Phase::End { sent } => {
                let networks = *sent;
                self.phase = Phase::Live;
                self.published.shared.leases.lock().told_anew(self.mailbox.holder, self.published.now());
                self.tell_sizes();
                self.begin_turns();
                Some(UpdateEvent::SnapshotEnd { networks })
            }
            Phase::Live => None,
        }
    }

    /// Takes the next page; `None` when the gateway stops.
    pub(super) fn take_page(&mut self) -> Option<()> {
        let Phase::Snapshot { after, page, sent } = &mut self.phase else { return Some(()) };
        let shared = &self.published.shared;
        if shared.gather.is_closed() {
            return None;
        }
        let networks = self.published.told_page(self.mailbox.holder, *after, SNAPSHOT_PAGE as usize);
        let Some(last) = networks.last() else {
            self.phase = Phase::End { sent: *sent };
            return Some(());
        };
        *after = Some(*last);
        let is_last = networks.len() < SNAPSHOT_PAGE as usize;
        *page = networks.into_iter();
        let next = if is_last { Instant::now() } else { shared.pace.reserve(SNAPSHOT_PAGE) };
        self.turn.as_mut().reset(next);
        Some(())
    }

    /// Lets go of everything not handed out and begins anew at the present state.
    pub(super) fn restart(&mut self, reason: ResyncReason) -> Option<()> {
        let (changes, next_number) = self.published.shared.gather.listen().ok()?;
        let dropped = next_number.saturating_sub(self.next_number);
        self.published.measures().changes_dropped.inc_by(dropped);
        self.sequence += dropped;
        self.changes = changes;
        self.next_number = next_number;
        self.batch = (std::sync::Arc::from([]), 0);
        self.phase = Phase::Resync(reason, dropped);
        Some(())
    }
}
