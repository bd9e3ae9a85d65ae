//! Pages: the published state, at the beginning of a stream and after updates were lost, and what changed meanwhile and since.

use spand_proto::contract::ContractVersion;
use spand_proto::network::Network;
use spand_proto::push::{ResyncReason, UpdateEvent};

use super::Subscription;
use crate::publisher::adoption::NotAdoptedLabel;

/// How far a stream is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Changes were lost: the marker comes first, then a new snapshot.
    Resync(ResyncReason, u64),
    /// A new stream: the host may be adopted.
    Adopt,
    Begin,
    /// The published state up to `after` was paged.
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
    /// An estimate was sent: it counts towards the snapshot that is under way.
    pub(super) fn count(&mut self) {
        if let Self::Snapshot { sent, .. } | Self::End { sent } = self {
            *sent += 1;
        }
    }

    /// Whether a network's page was read already, so that a change of it comes with no later one.
    pub(super) fn has_reached(&self, network: Network) -> bool {
        match self {
            Self::Resync(..) | Self::Adopt | Self::Begin => false,
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
        // Read now and not with the page: a slow reader gets the state at the time it reads.
        let turn = self.turn.as_mut().filter(|turn| turn.is_granted())?;
        let network = self.page.next()?;
        turn.take();
        Some(self.state_of(network))
    }

    /// The next message of those around the pages of a snapshot.
    pub(super) fn next_marker(&mut self) -> Option<UpdateEvent> {
        match self.phase {
            Phase::Resync(reason, dropped_updates) => {
                self.phase = Phase::Begin;
                Some(UpdateEvent::Resync { reason, dropped_updates })
            }
            Phase::Adopt => {
                self.phase = Phase::Begin;
                self.adopt().or_else(|| self.next_marker())
            }
            Phase::Begin => {
                self.queue.begin_snapshot();
                if std::mem::take(&mut self.page_is_ahead) {
                    // What was not sent of it is in no page of the snapshot.
                    let rest: Vec<_> = self.page.by_ref().chain(self.ahead.by_ref()).collect();
                    self.ahead = rest.into_iter();
                }
                self.page = Vec::new().into_iter();
                self.turn = None;
                self.phase = Phase::Snapshot { after: None, sent: 0 };
                let networks = self.published.advertised_count(self.queue.host_id) + self.ahead.len();
                let networks = u32::try_from(networks).unwrap_or(u32::MAX);
                let cluster = self.published.cluster().cloned();
                Some(UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks, cluster })
            }
            Phase::Snapshot { .. } | Phase::Live => None,
            Phase::End { sent } => {
                self.phase = Phase::Live;
                // If another snapshot follows, leases may have changed in the middle of this one.
                if !self.queue.needs_snapshot() {
                    let now = self.published.now();
                    self.published.shared.state.write().leases.all_advertised(self.queue.host_id, now);
                }
                self.queue_sizes();
                Some(UpdateEvent::SnapshotEnd { networks: sent })
            }
        }
    }

    /// Has what the host holds live on, where it asked for that and this gateway knows enough.
    fn adopt(&mut self) -> Option<UpdateEvent> {
        let (measures, held) = (self.published.measures(), std::mem::take(&mut self.held));
        match self.published.adopt(self.queue.subscriber.cluster.as_ref()?, (self.queue.host_id, &held)) {
            Ok(ahead) => {
                measures.subscriptions_adopted.inc();
                self.ahead = ahead.into_iter();
                Some(UpdateEvent::Adopted { lifetime: self.published.config().lifetime })
            }
            Err(why) => {
                measures.subscriptions_not_adopted.get_or_create(&NotAdoptedLabel { reason: why.name() }).inc();
                None
            }
        }
    }

    /// Takes the next page, half of it from the snapshot and half from networks that changed in the part of the snapshot already
    /// sent (more where the other has less), and requests its turn.
    fn take_page(&mut self) {
        let is_snapshot = matches!(self.phase, Phase::Snapshot { .. });
        self.page_is_ahead = is_snapshot && self.ahead.len() > 0;
        let mut page = if self.page_is_ahead {
            let page = self.ahead.by_ref().take(PAGE).collect();
            if self.ahead.len() == 0 {
                // For as long as the stream lives it would hold the room of the whole list.
                self.ahead = Vec::new().into_iter();
            }
            page
        } else {
            self.queue.take_paced(if is_snapshot { PAGE / 2 } else { PAGE })
        };
        if let Phase::Snapshot { after, sent } = &mut self.phase
            && !self.page_is_ahead
        {
            let networks = self.published.advertised_page(self.queue.host_id, *after, PAGE - page.len());
            match networks.last() {
                Some(last) => *after = Some(*last),
                None => self.phase = Phase::End { sent: *sent },
            }
            page.extend(networks);
        }
        let messages = u32::try_from(page.len()).unwrap_or(u32::MAX);
        // The rest of the turn before is credited first.
        self.turn = None;
        self.turn = (messages > 0).then(|| self.published.shared.pace.request(&self.client, messages));
        self.page = page.into_iter();
    }

    /// Drops everything not sent and restarts from the current state.
    pub(super) fn restart(&mut self, reason: ResyncReason) -> Option<()> {
        let (changes, next_number) = self.published.shared.outbound.lock().gather.listen().ok()?;
        let dropped = next_number.saturating_sub(self.next_number);
        self.published.measures().changes_dropped.inc_by(dropped);
        self.sequence += dropped;
        self.changes = changes;
        self.next_number = next_number;
        self.phase = Phase::Resync(reason, dropped);
        Some(())
    }
}
