//! Notices between this gateway's publisher and those of others.

use std::collections::BTreeMap;

use spand_core::sharing::GatewayId;
use spand_proto::units::Timestamp;
use tokio::sync::mpsc::{Receiver, channel};

use super::exchange::{Outgoing, Topic};
use super::format::{FormatError, NOTICES_AT_ONCE, Notices, read_notices, write_notices};
use crate::publisher::{NOTICES, Notice, Published};

/// The hub's end towards the publisher.
pub(super) struct NoticeEnd {
    published: Published,
    /// Of the last message sent.
    number: u64,
    /// Of the last message taken, by whose it was: kept ones may come again.
    taken: BTreeMap<(GatewayId, Topic), u64>,
}

impl NoticeEnd {
    /// Has a publisher's notices come here.
    pub(super) fn new(published: Published) -> (Self, Receiver<Notice>) {
        let (notices, waiting) = channel(NOTICES);
        published.share_by(notices);
        (Self { published, number: 0, taken: BTreeMap::new() }, waiting)
    }

    /// Messages of these notices.
    pub(super) fn messages(&mut self, notices: &[Notice], now: Timestamp) -> Vec<Outgoing> {
        let mut messages = Vec::new();
        for notices in notices.chunks(NOTICES_AT_ONCE) {
            self.number = now.0.max(self.number.saturating_add(1));
            let payload = write_notices(&Notices { number: self.number, notices: notices.to_vec() });
            messages.push(Outgoing { topic: Topic::Closed, payload });
        }
        messages
    }

    /// What others may not have heard while messages did not get through.
    pub(super) fn again(&self) -> Vec<Notice> {
        self.published.held_back().into_iter().map(Notice::HeldBack).collect()
    }

    /// Takes a message; how many notices it had, none where it came before.
    pub(super) fn take(&mut self, from: GatewayId, topic: Topic, message: &[u8]) -> Result<usize, FormatError> {
        let Notices { number, notices } = read_notices(message)?;
        let taken = self.taken.entry((from, topic)).or_default();
        if number <= *taken {
            return Ok(0);
        }
        *taken = number;
        self.published.take_notices(from, &notices);
        Ok(notices.len())
    }
}
