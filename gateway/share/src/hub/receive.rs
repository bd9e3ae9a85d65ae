//! Messages of other gateways: refuses what does not fit its topic or its sender, and hands cells to the engines. It sends nothing.

use std::sync::mpsc::TrySendError;
use std::time::Instant;

use spand_cells::GatewayId;

use super::{COMPARED, Hub};
use crate::engine_end::ToEngine;
use crate::exchange::{Incoming, Topic};
use crate::format::{FormatError, Kind, kind_of_message, read_again, read_batch, read_member};
use crate::measure::{OTHER_FORMAT, OTHER_GATEWAY, ReasonLabel, TopicLabel, UNREADABLE};
use crate::members::Incompatible;

impl Hub {
    pub(super) fn receive(&mut self, message: &Incoming) {
        let refused = |reason: &'static str| ReasonLabel { reason };
        self.status.measures.bytes_received.inc_by(message.payload.len() as u64);
        // A gateway of another release may write kinds that this one does not have: they are unreadable below.
        let kind = kind_of_message(&message.payload);
        if kind.is_some_and(|kind| !fits(kind, message.topic)) {
            return self.unreadable(message.gateway, &FormatError::Misplaced);
        }
        let holds_notices = kind == Some(Kind::Notices);
        if message.topic == Topic::Member && !holds_notices {
            match read_member(&message.payload) {
                Ok(member) if member.gateway == message.gateway && member.tap.may_be_of(member.gateway) => {
                    let news = self.members.take(member, self.clock.now(), Instant::now());
                    if let Some(news) = news {
                        tracing::info!("{news}");
                        self.show_members();
                        if self.notices.greets(self.clock.now()) {
                            self.announce();
                        }
                    }
                    if self.compared.is_none_or(|at| at.elapsed() >= COMPARED) {
                        self.compared = Some(Instant::now());
                        self.ask_for_missing(&self.counts());
                    }
                }
                Ok(_) => drop(self.status.measures.refused.get_or_create(&refused(OTHER_GATEWAY)).inc()),
                Err(error) => self.unreadable(message.gateway, &error),
            }
            return;
        }
        if let Some(why) = self.members.refuses(message.gateway) {
            self.status.measures.refused.get_or_create(&refused(why.name())).inc();
            return;
        }
        if kind == Some(Kind::Again) {
            match read_again(&message.payload) {
                Ok(buckets) => self.answer(message.gateway, &buckets),
                Err(error) => self.unreadable(message.gateway, &error),
            }
            return;
        }
        if holds_notices {
            match self.notices.take(message.gateway, message.topic, &message.payload) {
                Ok(count) => drop(self.status.measures.notices_received.inc_by(count as u64)),
                Err(error) => self.unreadable(message.gateway, &error),
            }
            return;
        }
        let batch = match read_batch(&message.payload) {
            Ok(batch) => batch,
            Err(error) => return self.unreadable(message.gateway, &error),
        };
        // Who may write to a subject is the exchange's to say, and what is in the message is the sender's.
        let reason = if batch.gateway != message.gateway || !batch.tap.may_be_of(batch.gateway) {
            Some(OTHER_GATEWAY)
        } else if batch.bucket != self.bucket {
            Some(Incompatible::BucketLength.name())
        } else {
            None
        };
        if let Some(reason) = reason {
            self.status.measures.refused.get_or_create(&refused(reason)).inc();
            return;
        }
        let topic = message.topic;
        self.status.measures.cells_received.get_or_create(&TopicLabel::of(topic)).inc_by(batch.cells.len() as u64);
        if !batch.cells.is_empty() {
            *self.status.view.lock().cells_received.entry(message.gateway).or_default() += batch.cells.len() as u64;
        }
        self.held.extend(batch.cells.into_iter().map(|(network, cell)| (topic, network, cell)));
        self.hand_over();
    }

    /// Has a gateway that is here sent what it asks for.
    fn answer(&mut self, gateway: GatewayId, buckets: &[u64]) {
        if !self.members.compatible().any(|member| member.gateway == gateway) {
            return;
        }
        let own = &self.members.own_as_it_was().digests;
        for index in self.digests.answer(gateway, buckets, own, Instant::now()) {
            for engine in &self.engines {
                // Where there is no room it asks again.
                drop(engine.engine.try_send(ToEngine::SendTo(gateway, index)));
            }
        }
    }

    /// Gives cells to their engines, in order, until one has no room.
    pub(super) fn hand_over(&mut self) {
        while let Some((topic, network, cell)) = self.held.pop_front() {
            let engine = self.engines.get((self.owner)(network));
            match engine.map(|end| end.engine.try_send(ToEngine::Cell(topic, network, Box::new(cell)))) {
                Some(Ok(())) => {}
                Some(Err(TrySendError::Full(ToEngine::Cell(topic, network, cell)))) => {
                    self.held.push_front((topic, network, *cell));
                    return;
                }
                // It has ended.
                _ => drop(self.status.measures.dropped.inc()),
            }
        }
    }

    fn unreadable(&self, GatewayId(gateway): GatewayId, error: &FormatError) {
        let reason = if matches!(error, FormatError::Unknown(_)) { OTHER_FORMAT } else { UNREADABLE };
        if self.status.measures.refused.get_or_create(&ReasonLabel { reason }).inc() == 0 {
            tracing::warn!(gateway, %error, "a message of another gateway cannot be read; further ones are only counted");
        }
    }
}

/// Whether messages about a topic may hold this. Of a flood of cells on a topic that waits for no engine nothing is to be kept.
fn fits(kind: Kind, topic: Topic) -> bool {
    match topic {
        Topic::Closed => matches!(kind, Kind::Cells | Kind::Notices),
        Topic::Open | Topic::Again => kind == Kind::Cells,
        Topic::Member => matches!(kind, Kind::Member | Kind::Notices),
        Topic::Host => matches!(kind, Kind::Notices | Kind::Again),
    }
}
