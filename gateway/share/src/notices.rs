//! Notices between this gateway's publisher and those of others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spand_cells::{Addressed, GatewayId, Notice, SEATS_AGAIN};
use spand_proto::units::{Micros, Timestamp};
use tokio::sync::mpsc::{Receiver, channel};

use super::exchange::{Outgoing, Topic};
use super::format::{FormatError, Member, NOTICES_AT_ONCE, Notices, read_notices, write_notices};
use super::members::MemberView;
use super::publisher::Publisher;

/// Notices that wait for the hub.
pub(super) const NOTICES: usize = 8_192;

/// The hub's end towards the publisher.
pub(super) struct NoticeEnd {
    published: Arc<dyn Publisher>,
    /// Of the last message sent.
    number: u64,
    /// When all hosts were named last.
    seats_named: Option<Timestamp>,
    /// When that was for a gateway that was new.
    greeted: Option<Timestamp>,
    /// Of the messages taken, by whose they were.
    taken: BTreeMap<(GatewayId, Topic), Taken>,
}

/// Which messages of one gateway were taken. Kept ones may come again, and older ones after newer: of each the number is remembered, of
/// the last [`REMEMBERED`]. Of others the newest counts alone.
#[derive(Debug, Default)]
struct Taken {
    numbers: BTreeSet<u64>,
}

/// Kept messages whose numbers are remembered: they are few, each with many notices where there are many.
const REMEMBERED: usize = 1_024;
/// Gateways of which that is so, with each topic: more than there are members. At the limit those of the others wait until some are forgotten.
const SENDERS: usize = 1_024;
/// Time between two times that all hosts are named for gateways that are new.
const GREETED: Micros = Micros::from_secs(1);

impl Taken {
    /// Whether this one is new.
    fn take(&mut self, number: u64, most: usize) -> bool {
        let is_old = self.numbers.len() >= most && self.numbers.first().is_some_and(|first| number < *first);
        let is_new = !is_old && self.numbers.insert(number);
        while self.numbers.len() > most {
            self.numbers.pop_first();
        }
        is_new
    }
}

/// What a notice is about, which decides how it travels.
fn topic_of(notice: &Notice) -> Topic {
    match notice {
        Notice::HeldBack(_) => Topic::Closed,
        Notice::Seat { .. } => Topic::Member,
        _ => Topic::Host,
    }
}

impl NoticeEnd {
    /// Has a publisher's notices come here.
    pub(super) fn new(published: Arc<dyn Publisher>) -> (Self, Receiver<Addressed>) {
        let (notices, waiting) = channel(NOTICES);
        published.share_by(notices);
        (Self { published, number: 0, seats_named: None, greeted: None, taken: BTreeMap::new() }, waiting)
    }

    /// People are shown that a tap lies far from all others.
    pub(super) fn note_outlier(&self, sentence: String) {
        self.published.outlier_found(sentence);
    }

    /// Messages of these notices.
    pub(super) fn messages(&mut self, notices: Vec<Addressed>, now: Timestamp) -> Vec<Outgoing> {
        let mut by_way = BTreeMap::<_, Vec<_>>::new();
        for Addressed { to, notice } in notices {
            let topic = topic_of(&notice);
            by_way.entry((topic, to)).or_default().push(notice);
        }
        let mut messages = Vec::new();
        for ((topic, to), notices) in by_way {
            for notices in notices.chunks(NOTICES_AT_ONCE) {
                self.number = now.0.max(self.number.saturating_add(1));
                let payload = write_notices(&Notices { number: self.number, notices: notices.to_vec() });
                messages.push(Outgoing { topic, to, payload });
            }
        }
        messages
    }

    /// What others may not have heard while messages did not get through. All hosts are named with the next message about this gateway.
    pub(super) fn again(&mut self) -> Vec<Addressed> {
        self.seats_named = None;
        let held_back = self.published.held_back().into_iter().map(Notice::HeldBack);
        held_back.map(|notice| Addressed { to: None, notice }).collect()
    }

    /// There is another gateway, which knows no host of this one: whether it is to hear who this one is. At most once a second, however
    /// often that changes.
    pub(super) fn greets(&mut self, now: Timestamp) -> bool {
        let greets = self.greeted.is_none_or(|greeted| now.since(greeted) >= GREETED);
        if greets {
            (self.greeted, self.seats_named) = (Some(now), None);
        }
        greets
    }

    /// All hosts here, where it is time to name them again; how many those elsewhere are is known then, too.
    pub(super) fn seats_again(&mut self, now: Timestamp) -> Vec<Addressed> {
        self.seats_named = Some(now);
        let seats = self.published.seated().into_iter().map(|host| Notice::Seat { host, here: true });
        seats.map(|notice| Addressed { to: None, notice }).collect()
    }

    /// Whether it is time to name all hosts again.
    pub(super) fn is_time_for_seats(&self, now: Timestamp) -> bool {
        self.seats_named.is_none_or(|named| now.since(named) >= SEATS_AGAIN)
    }

    /// Takes which other gateways there are.
    pub(super) fn set_members<'a>(&mut self, own: &Member, members: impl Iterator<Item = &'a MemberView>) {
        let members = members.filter(|known| known.incompatible.is_none());
        let members: BTreeMap<_, _> = members.map(|known| (known.member.gateway, known.member.tap)).collect();
        // What comes again of one that is gone changes nothing that it had not changed before.
        self.taken.retain(|(gateway, _), _| members.contains_key(gateway));
        self.published.set_members((own.gateway, own.tap), members);
    }

    /// Takes a message; how many notices it had, none where it came before.
    pub(super) fn take(&mut self, from: GatewayId, topic: Topic, message: &[u8]) -> Result<usize, FormatError> {
        let Notices { number, notices } = read_notices(message)?;
        if notices.iter().any(|notice| topic_of(notice) != topic) {
            return Err(FormatError::Misplaced);
        }
        if self.taken.len() >= SENDERS && !self.taken.contains_key(&(from, topic)) {
            return Ok(0);
        }
        let most = if topic.is_kept() { REMEMBERED } else { 1 };
        if !self.taken.entry((from, topic)).or_default().take(number, most) {
            return Ok(0);
        }
        self.published.take_notices(from, Timestamp(number), &notices);
        Ok(notices.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_messages_count_once_in_any_order_and_of_others_the_newest() {
        let new = |numbers: &[u64], most| -> Vec<bool> {
            let mut taken = Taken::default();
            numbers.iter().map(|number| taken.take(*number, most)).collect()
        };
        assert_eq!(new(&[5, 3, 5, 4, 3], 8), [true, true, false, true, false]);
        assert_eq!(new(&[5, 3, 5, 6, 6, 4], 1), [true, false, false, true, false, false]);
        assert_eq!(new(&[5, 6, 7, 4, 6, 8, 5], 3), [true, true, true, false, false, true, false]);
    }
}
